#!/bin/bash
# Runs the Spin models and their mutants, prints two tables.
#
#   run.sh [ci|long] [model ...]
#
# ci (default): bounds that fit a short check; long: bigger ones besides. The rows are in ci.rows
# and long.rows: kind|model|what|flags, the flags being the switches of the model.
#
# clean: no assertion violated and no invalid end state (a wait for ever) in the whole space
# ends: besides, no cycle at all, so that every run ends
# relaxed: lacks something that was found not to be needed, and must be clean
# falls, loops: a mutant, lacks one rule and must give a counterexample
#
# Exit: 0 all as expected, 1 not so, 2 bad argument, 77 spin or gcc is missing.
# JOBS (2) searches run at once, each within TIME_S and MEM_MB.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jobs=${JOBS:-2}
mem_mb=${MEM_MB:-3000}

# one search: prints index|kind|model|what|states|depth|verdict, or the reason why it is none
search() {
    local index=$1 kind=$2 model=$3 what=$4 flag pan=(-m20000) cc=(-O2) states depth errors verdict
    local defs=()
    for flag in $5; do
        defs+=("-D$flag")
    done
    case $kind in
    falls) cc=(-O1 -DSAFETY) ;;
    ends | loops) cc+=(-DNP) pan+=(-l) ;;
    *) cc+=(-DSAFETY) ;;
    esac
    local dir=$tmp/$index
    mkdir "$dir" && cd "$dir" && cp "$here/$model.pml" . || exit 1
    if ! spin "${defs[@]}" -a "$model.pml" >log 2>&1 ||
        ! gcc "${cc[@]}" -w -DCOLLAPSE -DVECTORSZ=512 "-DMEMLIM=$mem_mb" \
            -o pan pan.c >>log 2>&1; then
        verdict="DOES NOT BUILD: $(grep -v '^$' log | head -1)"
    elif ! timeout "$time_s" ./pan "${pan[@]}" >out 2>&1; then
        verdict="NOT FINISHED: $(tail -1 out)"
    elif grep -q 'Search not completed' out && ! grep -q '^pan:1:' out; then
        verdict="NOT FINISHED: memory or depth"
    fi
    states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out 2>/dev/null)
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out 2>/dev/null)
    depth=$(sed -n 's/^State-vector.*depth reached \([0-9]*\).*/\1/p' out 2>/dev/null)
    if [ -z "${verdict:-}" ]; then
        if [ "$errors" = 0 ]; then
            verdict=clean
            case $kind in
            falls | loops) verdict=MISSED ;;
            esac
        else
            depth=$(sed -n 's/^pan:1:.*at depth \([0-9]*\).*/\1/p' out)
            verdict=$(grep -o -m 1 -E 'assertion violated|invalid end state|[a-z-]* cycle' out)
            case $kind in
            falls | loops) ;;
            *) verdict="FAILED: $verdict" ;;
            esac
        fi
    fi
    cd "$here" && rm -rf "$dir"
    printf '%s|%s|%s|%s|%s|%s|%s\n' "$index" "$kind" "$model" "$what" "${states:--}" "${depth:--}" \
        "${verdict:-no verdict: FAILED}" >"$tmp/$index.row"
}

table() {
    local kinds=$1 head=$2 index kind model what states depth verdict
    printf '\n%-8s%-62s%10s%7s  %s\n' model "$head" states depth result
    while IFS='|' read -r index kind model what states depth verdict; do
        case " $kinds " in
        *" $kind "*)
            [ "$kind" = ends ] && [ "$verdict" = clean ] && verdict="every run ends"
            printf '%-8s%-62s%10s%7s  %s\n' "$model" "$what" "$states" "$depth" "$verdict"
            ;;
        esac
    done <"$tmp/rows"
}

mode=${1:-ci}
if [ "$mode" = one ]; then
    # called by xargs below: one row
    tmp=$RUN_TMP time_s=$RUN_TIME_S
    IFS='|' read -r index kind model what flags <<<"$2"
    search "$index" "$kind" "$model" "$what" "$flags"
    exit 0
fi
shift $(($# > 0))
case $mode in
ci) time_s=${TIME_S:-240} ;;
long) time_s=${TIME_S:-3600} mem_mb=${MEM_MB:-12000} ;;
*)
    echo "run.sh: unknown mode '$mode', the modes are ci and long" >&2
    exit 2
    ;;
esac
for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "run.sh: $tool is missing, install it to check the models"
        exit 77
    fi
done

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
export RUN_TMP=$tmp RUN_TIME_S=$time_s MEM_MB=$mem_mb
begin=$SECONDS
files=("$here/ci.rows")
[ "$mode" = ci ] || files+=("$here/long.rows")
only=$(IFS='|' && echo "$*")
grep -hv '^#' "${files[@]}" | awk -F'|' -v only="^(${only:-.*})$" \
    '$2 ~ only { printf "%03d|%s\n", NR, $0 }' >"$tmp/todo"
if [ ! -s "$tmp/todo" ]; then
    echo "run.sh: no model '$*', the models are submit, move, agent and mask" >&2
    exit 2
fi
xargs -a "$tmp/todo" -d '\n' -P "$jobs" -n 1 "$here/run.sh" one
cat "$tmp"/*.row >"$tmp/rows"

table "clean ends" "bounds"
table relaxed "relaxation"
table "falls loops" "mutant: what was left out"
todo=$(wc -l <"$tmp/todo")
good=$(awk -F'|' '$2 ~ /falls|loops/ ? $7 ~ /^(assertion|invalid|.*cycle)/ : $7 == "clean"' \
    "$tmp/rows" | wc -l)
printf '\n%d of %d as expected, in %d s\n' "$good" "$todo" $((SECONDS - begin))
[ "$good" -eq "$todo" ]
