#!/usr/bin/env bash
# All rails of a PE gone for good: an error within RAILYARD_TIMEOUT (here 1 s) and 100 ms that names
# the peer, the rail and the cause; the exit code says that a peer could not be reached.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
export RAILYARD_TIMEOUT=1s
timeout 30 "$bin" perf put --size 64K --duration 20s --json "$work/j" \
    --fault 'port-down@500ms:pe0/rail0;port-down@500ms:pe0/rail1' >"$work/out" 2>"$work/err"
claim "exit code" "$?" '==' 3
tail -n 1 "$work/err"
# the clock of the loss and that of the error is the same
claim "from the loss to the error, us" "$(value "$work/j" \
    'round(j["error_at_us"] - max(f["at_us"] for f in j["faults"]))')" '<=' 1100000
claim "the error names peer and rail" "$(grep -cE 'pe 1 .*rail' "$work/err")" '>=' 1
# four PEs, one of which loses both its rails: its pair is told at both ends, another goes on
live=$(program bench_live)
[ -n "$live" ] || exit 77
quiet "$live" pair && read -r mine theirs failed <"$work/out" && {
    claim "the loss to the error at the PE that lost its rails, us" "$mine" '<=' 1100000
    claim "the loss to the error at the other end, us" "$theirs" '<=' 1100000
    claim "puts of another pair that failed" "$failed" '==' 0
}
done_with_claims
