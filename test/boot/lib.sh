# Helpers of the launch tests: source it. "$R" is the command, "$J" a PE that does what it is told.
# shellcheck shell=bash disable=SC2034
set -u
R=$RY_TEST_BIN
J=$RY_TEST_BUILD/test/boot_job
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# check NAME EXPECTED-EXIT COMMAND...: output in $work/out
check() {
    local name=$1 want=$2 rc
    shift 2
    timeout 40 "$@" >"$work/out" 2>&1
    rc=$?
    if [ "$rc" -ne "$want" ]; then
        echo "FAIL $name: exit $rc, not $want"
        sed 's/^/    /' "$work/out"
        failures=$((failures + 1))
        return 1
    fi
    echo "ok   $name"
}

# says COUNT PATTERN: that many lines of the last output match
says() {
    local n
    n=$(grep -c -E -e "$2" "$work/out")
    if [ "$n" -ne "$1" ]; then
        echo "FAIL   '$2' is there $n times, not $1"
        sed 's/^/    /' "$work/out"
        failures=$((failures + 1))
    fi
}

# gone PATTERN: no process has it in its command line and no job of ours has a socket, within 2 s
gone() {
    local i
    for i in $(seq 40); do
        if ! pgrep -f -- "$1" >/dev/null && ! grep -q "@railyard/$(id -u)/$2" /proc/net/unix; then
            return 0
        fi
        sleep 0.05
    done
    echo "FAIL   left behind:"
    pgrep -af -- "$1"
    grep "@railyard/$(id -u)/$2" /proc/net/unix
    failures=$((failures + 1))
    return 1
}

finish() {
    [ "$failures" -eq 0 ] || echo "$failures failures"
    exit $((failures > 0))
}
