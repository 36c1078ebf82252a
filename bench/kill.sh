#!/usr/bin/env bash
# A PE is killed: the survivors finish, nothing but its share is missing; with return= a replacement
# takes part again; and those of a whole node that was lost.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
right='int(j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0)'
for mode in ll ht; do
    start=$(date +%s%N)
    quiet "$bin" ep --mode $mode --tokens 32 --hidden 512 --iters 60 --fault 'kill@iter20:pe5' \
        --json "$work/j" || continue
    took=$((($(date +%s%N) - start) / 1000000))
    claim "$mode, pe5 killed: the rest is right" "$(value "$work/j" "$right")" '==' 1
    claim "$mode, pe5 killed: pairs masked" "$(value "$work/j" 'j["masked"]')" '>' 0
    claim "$mode, pe5 killed: the whole run, ms" "$took" '<=' 20000
    claim "$mode, pe5 killed: the slowest dispatch and combine, s" \
        "$(value "$work/j" 'round(j["step"]["us_worst"] * 1e-6, 3)')" '<=' 1
    quiet "$bin" ep --mode $mode --tokens 32 --hidden 512 --duration 6s \
        --fault 'kill@iter20:pe5:return=500ms' --json "$work/j" || continue
    claim "$mode, pe5 replaced: right" "$(value "$work/j" "$right")" '==' 1
    claim "$mode, pe5 replaced: replacements that took part" "$(value "$work/j" \
        'j["replaced_pes"]')" '==' 1
    lost=
    for pe in 4 5 6 7; do lost+="${lost:+;}kill@iter20:pe$pe:return=500ms"; done
    quiet "$bin" ep --mode $mode --nodes 2 --tokens 32 --hidden 512 --duration 6s \
        --fault "$lost" --json "$work/j" || continue
    claim "$mode, a node of four replaced: right" "$(value "$work/j" "$right")" '==' 1
    claim "$mode, a node of four replaced: replacements that took part" "$(value "$work/j" \
        'j["replaced_pes"]')" '==' 4
done
done_with_claims
