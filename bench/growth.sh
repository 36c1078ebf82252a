#!/usr/bin/env bash
# The main job over minutes: memory, descriptors and threads do not grow; jitter of its steps.
# usage: bench/growth.sh [TIME] [FAULT-SPEC] [FLAG...]
#        bench/growth.sh SECONDS random:SEED [FLAG...]: a random fault every other second
# RAILYARD_BIN chooses a sanitized build, which ends the job at its first finding.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
limit=1200
time=${1:-5m}
faults=${2:-}
if [[ $faults == random:* ]]; then
    faults=$(python3 -B "$bench/random_fault.py" "${faults#random:}" "$time")
    time+=s
fi
quiet "$bin" ep --duration "$time" --tokens 16 --hidden 1024 ${faults:+--fault "$faults"} \
    "${@:3}" --json "$work/j" && {
    # Pages of the heap are touched as routing leads to them, so the first half may grow. The gate's
    # tokens come again in the same batches after 14,156 steps: with few and short tokens that is
    # long before half-way.
    claim "memory of a PE, last over first" "$(value "$work/j" \
        'round(max(p["rss_last_bytes"] / p["rss_first_bytes"] for p in j["step"]["pes"]), 3)')" \
        '<=' 1.6
    claim "memory of a PE, last over half-way" "$(value "$work/j" \
        'round(max(p["rss_last_bytes"] / p["rss_half_bytes"] for p in j["step"]["pes"]), 3)')" \
        '<=' 1.01
    claim "descriptors gained" "$(value "$work/j" \
        'max(p["descriptors_last"] - p["descriptors_first"] for p in j["step"]["pes"])')" '<=' 0
    # with its first fault an emulated NIC gets a thread that keeps its times
    claim "threads gained" "$(value "$work/j" \
        'max(p["threads_last"] - p["threads_first"] for p in j["step"]["pes"])')" \
        '<=' $((${faults:+1} + 0))
    claim "rows lost, doubled or corrupted" "$(value "$work/j" \
        'j["lost"] + j["duplicated"] + j["corrupted"]')" '==' 0
    value "$work/j" '"steps: p50 %.1f us, p99 %.1f us, worst %.1f us" % (j["step"]["us_p50"],
        j["step"]["us_p99"], j["step"]["us_worst"])'
}
done_with_claims
