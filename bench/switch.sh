#!/usr/bin/env bash
# How fast a failure is seen and left, over 200 events in one pair of PEs: three runs, the median of
# their p99. By port event, by an error completion, and by silence (path time-out 50 ms).
# usage: bench/switch.sh [port|error|silence]...     all three: four minutes
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
limit=200
# p99 KEY KIND FILE
p99() {
    value "$3" "round((lambda v: v[int(0.99 * (len(v) - 1) + 0.5)] if v else -1)(sorted(
        f['$1'] for f in j['faults'] if f['kind'] == '$2' and f['$1'] >= 0)), 1)"
}
median() { python3 -c "print(sorted([$1, $2, $3])[1])"; }
# measure NAME KIND SPEC DETECT-LIMIT-US FLAG...
measure() {
    local name=$1 kind=$2 spec=$3 most=$4 detect=() move=()
    shift 4
    for _ in 1 2 3; do
        quiet "$bin" perf put --size 4K --pes 2 --fault "$spec" --json "$work/j" "$@" ||
            return
        detect+=("$(p99 detect_us "$kind" "$work/j")")
        move+=("$(p99 switch_us "$kind" "$work/j")")
    done
    claim "$name: events seen in the last run" \
        "$(value "$work/j" "sum(f['detect_us'] >= 0 for f in j['faults'])")" '>=' 190
    claim "$name: detect, p99, us" "$(median "${detect[@]}")" '<=' "$most"
    claim "$name: switch, p99, us" "$(median "${move[@]}")" '<=' 1000
}
export RAILYARD_RECOVERY_INTERVAL=10ms RAILYARD_RECOVERY_INTERVAL_MAX=10ms
[ $# -gt 0 ] || set -- port error silence
for part in "$@"; do
    case $part in
    port)
        measure "port event" flap 'flap@0:pe0/rail1:count=200,period=100ms' 1000 --duration 21s
        ;;
    error)
        errors=$(python3 -c "print(';'.join(f'cqe-error@{i * 100 + 50}ms:pe0/rail1'
            for i in range(200)))")
        measure "error completion" cqe-error "$errors" 1000 --duration 21s
        ;;
    silence)
        stalls=$(python3 -c "print(';'.join(f'stall@{i * 150 + 50}ms:pe0/rail1:for=70ms'
            for i in range(200)))")
        measure "silence" stall "$stalls" 51000 --duration 31s
        ;;
    esac
done
done_with_claims
