#!/bin/bash
# However the launcher or a PE ends, no process and no socket of the job stays.
# shellcheck disable=SC1091,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
mark=ry-signals-$$
launcher=
trap 'kill -9 $launcher 2>/dev/null; rm -rf "$work"' EXIT

# start PES: a job that waits, with a grandchild a PE; sets $launcher and $job
start() {
    : >"$work/out" # nothing of the run before
    "$R" run -n "$1" bash -c "sleep 1000.$$ & exec -a $mark '$J' wait" >"$work/out" 2>&1 &
    launcher=$!
    for _ in $(seq 200); do
        [ "$(grep -c waits "$work/out")" -eq "$1" ] && break
        sleep 0.05
    done
    if [ "$(grep -c waits "$work/out")" -ne "$1" ]; then
        echo "FAIL no start"
        cat "$work/out"
        exit 1
    fi
    job=$(sed -n 's/^railyard: job \([0-9a-f]*\):.*/\1/p' "$work/out")
}

for signal in KILL TERM INT HUP; do
    start 3
    kill -"$signal" "$launcher"
    wait "$launcher" 2>/dev/null
    rc=$?
    want=$((128 + $(kill -l "$signal")))
    if [ "$rc" -ne "$want" ]; then
        echo "FAIL SIG$signal: exit $rc, not $want"
        failures=$((failures + 1))
    fi
    gone "$mark|sleep 1000\\.$$" "$job" && echo "ok   SIG$signal to the launcher"
done

start 3
kill -KILL "$(sed -n 's/^pe 1 waits as //p' "$work/out")"
wait "$launcher"
rc=$?
[ "$rc" -eq 137 ] || { echo "FAIL a killed PE: exit $rc"; failures=$((failures + 1)); }
gone "$mark|sleep 1000\\.$$" "$job" && echo "ok   SIGKILL to a PE"

left=$(find /dev/shm /tmp -maxdepth 1 -name '*railyard*' -newer "$work" 2>/dev/null)
[ -z "$left" ] || { echo "FAIL files: $left"; failures=$((failures + 1)); }
finish
