#!/usr/bin/env bash
# Consecutive runs with random fault schedules; each is made of its seed alone, which is printed.
# usage: bench/campaign.sh [RUNS] [FIRST-SEED] [kills]     RAILYARD_BIN chooses a sanitized build
# kills: PEs are killed as well, and replaced
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
runs=${1:-20}
first=${2:-1}
wrong=0
for ((seed = first; seed < first + runs; seed++)); do
    mapfile -t words < <(python3 -B "$bench/random_fault.py" "$seed" ${3:+kills})
    job=(ep --tokens 24 --hidden 256 --experts 24 --topk 4 --seed "$seed" "${words[@]}")
    if [ -n "${3:-}" ]; then job+=(--duration 2s); else job+=(--iters 60); fi
    rc=0
    timeout 60 "$bin" "${job[@]}" >"$work/out" 2>"$work/err" </dev/null || rc=$?
    [ "$rc" -eq 0 ] && continue
    wrong=$((wrong + 1))
    if [ "$rc" -eq 124 ]; then echo "seed $seed hangs"; else echo "seed $seed: exit $rc"; fi
    printf '  %s' "$bin"
    printf ' %q' "${job[@]}"
    echo
    grep -h 'lost,' "$work/out"
    tail -n 2 "$work/err"
done
claim "seeds $first to $((first + runs - 1)): runs that were wrong or hung" "$wrong" '==' 0
done_with_claims
