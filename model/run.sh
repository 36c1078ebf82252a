#!/bin/bash
# Runs the Spin models and their mutants, prints two tables.
#
#   run.sh [ci|long]      ci (default): the bounds that fit a short check; long: bigger ones besides
#
# A model must be clean over its whole stated space: no assertion violated, no invalid end state (a
# wait for ever), and, in the rows marked "ends", no cycle at all, so that every run ends. A mutant
# lacks one rule and must give a counterexample. A relaxation lacks something that was found not to be
# needed and must be clean.
#
# Exit: 0 all as expected, 1 not so, 2 bad argument, 77 spin or gcc is missing.
# JOBS (2) searches run at once, each within TIME_S and MEM_MB.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
jobs=${JOBS:-2}
mem_mb=${MEM_MB:-3000}

# kind|model|what|flags; kind: clean, ends, relaxed, falls (safety or wait), loops (a cycle)
rows_ci() {
    cat <<'ROWS'
clean|submit|gpu: 3 initiators, ring of 2, 1 move|GPU
clean|submit|cpu: 3 initiators, ring of 2, 1 move|CPU
clean|submit|cpu_host_memory: 3 initiators, ring of 2, 1 move|CPUHOST
clean|submit|gpu: 2 initiators, ring of 2, 2 moves|GPU INITS=2 MOVES=2
clean|submit|cpu: 2 initiators, ring of 2, 2 moves|CPU INITS=2 MOVES=2
clean|submit|cpu_host_memory: 2 initiators, ring of 2, 2 moves|CPUHOST INITS=2 MOVES=2
ends|submit|gpu: 2 initiators, ring of 2, 1 move|GPU INITS=2
ends|submit|cpu: 2 initiators, ring of 2, 1 move|CPU INITS=2
ends|submit|cpu_host_memory: 2 initiators, ring of 2, 1 move|CPUHOST INITS=2
clean|move|2 slots, 3 generations x 1, 2 failures|GENS=3 FAILS=2 PLANNED=0
clean|move|2 slots, 3 generations x 1, 1 failure, 1 planned|GENS=3 FAILS=1 PLANNED=1
clean|move|2 slots, 2 generations x 2, 1 buffer, 2 failures, 1 planned|MSGS=2 GENS=2 BUFS=1 FAILS=2 PLANNED=1
clean|move|3 slots, 2 generations x 1, 1 buffer, 2 failures|SLOTS=3 GENS=2 BUFS=1 FAILS=2 PLANNED=0
clean|move|3 slots, 2 generations x 1, 1 buffer, 1 failure, 1 planned|SLOTS=3 GENS=2 BUFS=1 FAILS=1 PLANNED=1
clean|move|4 slots, 2 generations x 1, 1 buffer, 1 failure|SLOTS=4 GENS=2 BUFS=1 FAILS=1 PLANNED=0
ends|move|2 slots, 2 generations x 2, 1 buffer, 1 failure, 1 planned|MSGS=2 GENS=2 BUFS=1 FAILS=1 PLANNED=1
clean|agent|2 epochs, 2 failures, 1 message lost, 1 mover out of time|EPOCHS=2
clean|agent|2 incarnations x 2 epochs, 2 failures or restarts|EPOCHS=2 INCS=2 LOSSES=0
ends|agent|2 incarnations x 2 epochs, 2 failures or restarts|EPOCHS=2 INCS=2 LOSSES=0
clean|mask|3 survivors, 2 iterations, 1 dies, replacement|PES=3 ITERS=2
clean|mask|2 survivors, 3 iterations, 1 dies, replacement|PES=2 ITERS=3
clean|mask|3 survivors, 3 iterations, 2 die, no replacement|PES=3 ITERS=3 JOIN=0 DEATHS=2
ends|mask|2 survivors, 3 iterations, 1 dies, replacement|PES=2 ITERS=3
relaxed|submit|resv_head without the move number|GPU INITS=2 MOVES=2 RELAX_RESV_NOMOVE
relaxed|submit|base read before the reservation|GPU INITS=2 MOVES=2 RELAX_BASE_EARLY
relaxed|submit|producer slot without the move number|CPU INITS=2 MOVES=2 RELAX_SLOT_NOMOVE
relaxed|move|released on the answer alone|MSGS=2 GENS=2 BUFS=1 FAILS=2 PLANNED=0 RELAX_RELEASE_ANSWER
relaxed|move|one signal word, one signal a generation|GENS=3 FAILS=2 PLANNED=0 MUT_ONE_WORD
relaxed|move|slot reused before its fence, on a second word|MSGS=2 GENS=1 FAILS=1 PLANNED=0 MUT_EARLY TWO_WORDS
relaxed|mask|admission promised before the mask is learnt|PES=2 ITERS=3 RELAX_ADMIT_EARLY
falls|submit|reserve by fetch-and-add after a test|GPU MUT_FETCH_ADD
falls|submit|CLOSED outside resv_head|GPU MUT_CLOSED_APART
falls|submit|room awaited after the reservation|GPU MUT_ROOM_AFTER
falls|submit|reservation abandoned, not published|GPU MUT_ABANDON
falls|submit|no move number, and base read before|GPU INITS=2 MOVES=2 RELAX_RESV_NOMOVE RELAX_BASE_EARLY
falls|submit|published before the WQE is written|GPU MUT_NO_RELEASE
falls|submit|publish without order (no wait on ready_head)|GPU MUT_NO_READY
falls|submit|doorbell without the lock|GPU MUT_NO_LOCK
falls|submit|doorbell without the test inside the lock|GPU MUT_NO_TEST
falls|submit|test inside the lock: CLOSED only|GPU INITS=2 MOVES=2 TEST_CLOSED_ONLY
falls|submit|test inside the lock: move number only|GPU INITS=2 MOVES=2 TEST_MOVE_ONLY
falls|submit|doorbell stored, not maxed|GPU MUT_DB_STORE
falls|submit|new ring opened before its doorbell|GPU MUT_OPEN_EARLY
falls|submit|consumer word without the move number|GPU INITS=2 MOVES=2 MUT_CONS_NOMOVE
falls|submit|waiter believes its own late max|GPU INITS=2 MOVES=2 MUT_CONS_IGNORE
falls|submit|mover loads the frontier, does not close it|GPU INITS=2 MOVES=2 MUT_CONS_OPEN
falls|submit|producer slot stored, not maxed|CPU MUT_SLOT_STORE
falls|submit|no echo awaited (cpu)|CPU INITS=2 MOVES=2 MUT_NO_ECHO
falls|submit|no echo awaited (cpu_host_memory)|CPUHOST INITS=2 MOVES=2 MUT_NO_ECHO
falls|submit|proxy reads another counter|CPUHOST MUT_WRONG_COUNTER
falls|move|no fence before reuse|GENS=3 FAILS=1 MUT_NO_FENCE
falls|move|an acknowledgement counts as proof|GENS=3 FAILS=1 MUT_ACK_PROVES
falls|move|an answer proves a replaying path|GENS=3 FAILS=1 MUT_ANSWER_PROVES
falls|move|RESET without flush|GENS=3 FAILS=1 MUT_NO_FLUSH
falls|move|replay from the oldest unacknowledged|GENS=3 FAILS=1 MUT_REPLAY_UNACKED
falls|move|released on the acknowledgement alone|GENS=3 FAILS=1 MUT_RELEASE_ACK
falls|move|a replayed signal without its payload|GENS=3 FAILS=1 MUT_SIGNAL_ONLY
falls|move|no read behind the replay|GENS=3 FAILS=1 MUT_NO_REPLAY_READ
falls|move|one signal word, two signals a generation|MSGS=2 GENS=2 BUFS=1 FAILS=1 MUT_ONE_WORD
falls|move|slot reused before its fence, on its own word|MSGS=2 GENS=1 BUFS=1 FAILS=1 PLANNED=0 MUT_EARLY
falls|move|planned move without its read|MSGS=2 GENS=2 BUFS=1 FAILS=1 MUT_NO_READ
falls|move|ring left by a planned move not emptied|GENS=3 FAILS=1 MUT_KEEP_RING
falls|move|rebuild in place, no spare ring|GENS=3 FAILS=1 MUT_NO_SPARE
falls|move|new ring is the log before the copy is whole|GENS=3 FAILS=2 PLANNED=0 MUT_RING_EARLY
falls|agent|GOOD to MOVING without compare-and-swap|EPOCHS=2 MUT_NO_CAS
falls|agent|winner does not look again|EPOCHS=2 MUT_NO_RECHECK
loops|agent|winner asks if the path is usable, not which life|EPOCHS=2 LOSSES=0 MUT_RESUME_USABLE
falls|agent|kernel ends in MOVING|EPOCHS=2 MUT_NO_PARK
falls|agent|agent launches nobody|EPOCHS=2 MUT_NO_HINT
falls|agent|hint without the life it is about|EPOCHS=2 MUT_HINT_NOEPOCH
falls|agent|agent launches once|EPOCHS=2 MUT_LAUNCH_ONCE
falls|agent|agent reads and writes back the state|EPOCHS=2 MUT_AGENT_RMW
falls|agent|FAILED said once|EPOCHS=2 MUT_NO_REPEAT
falls|agent|FENCED said once|EPOCHS=2 MUT_NO_REANSWER
falls|agent|any FENCED taken|EPOCHS=2 MUT_FENCED_ANY
falls|agent|no FENCED awaited|EPOCHS=2 MUT_NO_FENCE
falls|agent|FENCED before the flush|EPOCHS=2 MUT_NO_FLUSH
falls|agent|rebuild with the same QPN|EPOCHS=2 MUT_SAME_QPN
falls|agent|older news heeded|EPOCHS=2 MUT_OLD_NEWS
falls|agent|predecessor's QP left open at a join|EPOCHS=2 INCS=2 MUT_KEEP_OPEN
falls|agent|epochs compared without incarnation|EPOCHS=2 INCS=2 MUT_NO_INC
falls|agent|both agents rebuild|EPOCHS=2 MUT_BOTH_REBUILD
falls|mask|commit before all have RESET|PES=2 ITERS=3 MUT_NO_RESET
falls|mask|survivors go on after their promise|PES=2 ITERS=3 MUT_NO_PLEDGE
falls|mask|each masks at its own iteration|PES=2 ITERS=3 MUT_LOCAL
falls|mask|least iteration instead of greatest|PES=2 ITERS=3 MUT_MIN_CUT
falls|mask|commit of an older ballot heeded|PES=3 ITERS=2 MUT_OLD_BALLOT
falls|mask|new coordinator does not adopt|PES=3 ITERS=2 MUT_NO_ADOPT
falls|mask|coordinator waits for the dead|PES=2 ITERS=3 MUT_WAIT_DEAD
falls|mask|nobody takes over|PES=2 ITERS=3 MUT_NO_TAKEOVER
falls|mask|newcomer gets the predecessor's QPN|PES=2 ITERS=3 MUT_SAME_QPN
falls|mask|start value gathered before RESET|PES=2 ITERS=3 MUT_GATHER_EARLY
falls|mask|newcomer starts at zero|PES=2 ITERS=3 MUT_JOIN_ZERO
falls|mask|newcomer not asked by a new coordinator|PES=2 ITERS=3 MUT_JOINER_NOT_ASKED
falls|mask|commit names no incarnation|PES=3 ITERS=2 MUT_NO_INC
ROWS
}

rows_long() {
    cat <<'ROWS'
clean|submit|gpu: 3 initiators, ring of 2, 2 moves|GPU MOVES=2
clean|submit|gpu: 4 initiators, ring of 2, 1 move|GPU INITS=4
clean|submit|cpu_host_memory: 2 initiators, ring of 2, 3 moves|CPUHOST INITS=2 MOVES=3
ends|submit|gpu: 3 initiators, ring of 2, 1 move|GPU
clean|move|2 slots, 3 generations x 1, 2 failures, 1 planned|GENS=3 FAILS=2 PLANNED=1
clean|move|2 slots, 4 generations x 1, 2 failures|GENS=4 FAILS=2 PLANNED=0
clean|move|2 slots, 2 generations x 2, 2 failures|MSGS=2 GENS=2 FAILS=2 PLANNED=0
clean|move|3 slots, 2 generations x 1, 1 buffer, 2 failures, 1 planned|SLOTS=3 GENS=2 BUFS=1 FAILS=2
clean|move|4 slots, 2 generations x 1, 1 buffer, 2 failures|SLOTS=4 GENS=2 BUFS=1 FAILS=2 PLANNED=0
clean|agent|3 epochs, 3 failures, 1 message lost|EPOCHS=3 EVENTS=3
clean|agent|2 incarnations x 2 epochs, 2 events, 1 message lost|EPOCHS=2 INCS=2
clean|mask|3 survivors, 3 iterations, 1 dies, replacement|PES=3 ITERS=3
clean|mask|3 survivors, 2 iterations, 2 die, replacement|PES=3 ITERS=2 DEATHS=2
ends|mask|3 survivors, 2 iterations, 1 dies, replacement|PES=3 ITERS=2
ROWS
}

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
        ! gcc "${cc[@]}" -w -DCOLLAPSE -DVECTORSZ=512 "-DMEMLIM=$mem_mb" -o pan pan.c >>log 2>&1; then
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
            verdict=$(sed -n 's/^pan:1: *\(assertion violated\|invalid end state\|[a-z -]*cycle\).*/\1/p' out)
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
{
    rows_ci
    if [ "$mode" = long ]; then
        rows_long
    fi
} | awk '{ printf "%03d|%s\n", NR, $0 }' >"$tmp/todo"
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
