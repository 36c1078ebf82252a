# What the scripts of this folder share: source it.
# shellcheck shell=bash disable=SC2034
set -u
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$bench/.." || exit 2
bin=${RAILYARD_BIN:-build/bin/railyard}
unset RAILYARD_BIN # the library would warn of a name that is no setting
[ -x "$bin" ] || {
    echo "no $bin here: build first, or set RAILYARD_BIN"
    exit 77
}
command -v python3 >/dev/null || {
    echo "no python3 to read JSON with"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0

# value FILE EXPRESSION: of the JSON j, printed
value() {
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$1" "$2"
}

# program NAME: of this build, or nothing and a line on stderr
program() {
    local at
    at=$(find "$(dirname "$bin")/.." -name "$1" -type f -perm -u+x | head -n 1)
    if [ -n "$at" ]; then echo "$at"; else echo "no $1 in the build: build all" >&2; fi
}

# ratio EXPRESSION: of plain numbers, to four places
ratio() { python3 -c "print(round($1, 4))"; }

# claim TEXT MEASURED OPERATOR LIMIT: prints a line, and remembers if it does not hold
claim() {
    local verdict=holds
    python3 -c "import sys; sys.exit(not ($2 $3 $4))" || {
        verdict=MISSED
        missed=$((missed + 1))
    }
    printf '%-64s %12s %2s %-10s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}

# quiet COMMAND...: stderr shown only when it fails
quiet() {
    local rc=0
    timeout "${limit:-120}" "$@" >"$work/out" 2>"$work/err" </dev/null || rc=$?
    [ "$rc" -eq 0 ] || {
        echo "exit $rc: $*"
        tail -n 3 "$work/err"
        missed=$((missed + 1))
    }
    return "$rc"
}

done_with_claims() { [ "$missed" -eq 0 ] || exit 1; }
