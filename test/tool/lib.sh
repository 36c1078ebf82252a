# Helpers of the command's tests: source it. "$R" is the command, "$work" a folder of the test.
# shellcheck shell=bash disable=SC2034
set -u
R=${RY_TEST_BIN:?}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || {
    echo "no python3 to read JSON with"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

failed() {
    echo "FAIL $*"
    failures=$((failures + 1))
}

# run NAME EXPECTED-EXIT COMMAND...: stdout in $work/out, stderr in $work/err
run() {
    local name=$1 want=$2 rc=0
    shift 2
    timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null || rc=$?
    if [ "$rc" -ne "$want" ]; then
        failed "$name: exit $rc, not $want"
        tail -n 5 "$work/out" "$work/err"
        return 1
    fi
    echo "ok   $name"
}

# json KIND FILE EXPRESSION...: its keys, their types, and that each expression over j is true
json() { python3 -B "$here/check_json.py" "$@" || failed "$*"; }

done_testing() { [ "$failures" -eq 0 ] || exit 1; }
