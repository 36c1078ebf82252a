#!/bin/bash
# The tables of the manual are what the command prints, and what it prints as a file it takes.
# shellcheck disable=SC1091,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
cd "$RY_TEST_SOURCE" || exit 1
# Nothing of the caller's own settings.
for name in $(env | sed -n 's/^\(RAILYARD_[A-Z_]*\|NVSHMEM_[A-Z_0-9]*\)=.*/\1/p'); do
    unset "$name"
done
export HOME=$work

check "settings as markdown" 0 "$R" info --settings md
diff -u doc/settings.md "$work/out" || {
    echo "FAIL doc/settings.md is old: make it with railyard info --settings md"
    failures=$((failures + 1))
}
check "settings as a manual page" 0 "$R" info --settings man
diff -u doc/man/railyard.conf.5 "$work/out" || {
    echo "FAIL doc/man/railyard.conf.5 is old: make it with railyard info --settings man"
    failures=$((failures + 1))
}

check "a file" 0 env RAILYARD_SL=5 RAILYARD_RAILS=4,2 "$R" info --config
says 1 '^SL = 5$'
says 1 '^RAILS = 4,2$'
says 1 '^#QP_DEPTH = 1024$'
cp "$work/out" "$work/railyard.conf"
check "the file is valid" 0 env RAILYARD_CONFIG="$work/railyard.conf" "$R" info
says 1 "SL +5 +from $work/railyard.conf"
mkdir -p "$work/.config"
sed 's/^#\([A-Z]\)/\1/' "$work/railyard.conf" >"$work/.config/railyard.conf"
check "the file with every line in effect" 0 "$R" info
says 1 "QP_DEPTH +1024 +from $work/.config/railyard.conf"
check "another library's name" 0 env NVSHMEM_QP_DEPTH=64 "$R" info
says 1 'QP_DEPTH +64 +from NVSHMEM_QP_DEPTH'
check "JSON" 0 env NVSHMEM_QP_DEPTH=64 "$R" info --json -
python3 -c '
import json, sys
s = json.load(open(sys.argv[1]))["settings"]["QP_DEPTH"]
assert s == {"value": "64", "source": "NVSHMEM_QP_DEPTH", "default": "1024"}, s
' "$work/out" || failures=$((failures + 1))

echo 'LATENZY = 5us' >"$work/bad.conf"
check "a bad file" 2 env RAILYARD_CONFIG="$work/bad.conf" "$R" info
says 1 "bad.conf:1: no setting is called 'LATENZY': did you mean LATENCY\\?$"
check "a file that is not there" 2 env RAILYARD_CONFIG=/nonexistent "$R" info
check "no file at all" 2 env RAILYARD_CONFIG=/dev/zero "$R" info
check "a bad value" 2 env RAILYARD_BUFFERS=9 "$R" info
says 1 "^railyard info: environment: RAILYARD_BUFFERS: '9' is not one of: 2 to 3$"
check "an unknown name" 0 env RAILYARD_CHANELS=2 "$R" info --config
says 1 '^railyard info: RAILYARD_CHANELS is no setting: did you mean RAILYARD_CHANNELS\?$'
finish
