#!/usr/bin/env bash
# The main job in every mode, type, shape and handler, on recorded routing where a folder of
# recordings is named, else on the built-in gate: right, and spread evenly over the rails.
# usage: bench/ep_matrix.sh [FOLDER]
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
routings=()
[ -n "${1:-}" ] && mapfile -t routings < <(find "$1" -name '*.jsonl' | sort)
[ "${#routings[@]}" -gt 0 ] || routings=("")
right='int(j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0)'
# greatest difference between the rails of a PE, those of equal PEs compared
spread='round(max(max(b) / min(b) - 1 for b in [[r["bytes"] for r in j["rails"] if r["pe"] == p]
    for p in range(j["pes"])]), 4)'
one() {
    local name=$1
    shift
    quiet "$bin" ep --hidden 2048 --json "$work/j" "$@" || return
    claim "$name: right" "$(value "$work/j" "$right")" '==' 1
    claim "$name: rails differ by" "$(value "$work/j" "$spread")" '<=' 0.05
    claim "$name: rails of a pair of PEs differ by" \
        "$(value "$work/j" 'round(j["pair_balance"], 4)')" '<=' 0.05
}
for file in "${routings[@]}"; do
    routing=()
    label=gate
    [ -n "$file" ] && routing=(--routing "$file") label=$(basename "$file" .jsonl | cut -c 1-12)
    # two PEs are one pair: what its rails carry
    one "$label ll one pair" --pes 2 "${routing[@]}"
    for mode in ll ht; do
        for dtype in bf16 fp8; do
            one "$label $mode $dtype" --mode $mode --dtype $dtype "${routing[@]}"
        done
        one "$label $mode 4 nodes" --mode $mode --nodes 4 "${routing[@]}"
        one "$label $mode rails 4,2" --mode $mode --rails 4,2 "${routing[@]}"
        for handler in gpu cpu cpu_host_memory; do
            one "$label $mode $handler" --mode $mode --handler $handler --iters 20 "${routing[@]}"
        done
    done
done
quiet "$bin" ep --mode ht --json "$work/j" ${file:+--routing "$file"} &&
    claim "ht dispatch: bytes to other nodes over the minimum" "$(value "$work/j" \
        'round(j["wire"]["dispatch_bytes"] / j["wire"]["minimum_bytes"], 4)')" '<=' 1.05
done_with_claims
