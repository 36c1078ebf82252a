#!/usr/bin/env bash
# drain under full load: nothing is replayed, and when the drained port's NIC dies nothing changes.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
"$bin" perf put --size 256K --duration 6s --link-rate 200MB/s --rails 2 --ports-per-nic 1 \
    --json "$work/j" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
job=
for _ in $(seq 100); do
    job=$(sed -n 's/^railyard: job \([0-9a-f]*\): .*/\1/p' "$work/err")
    [ -n "$job" ] && "$bin" status --job "$job" >/dev/null 2>&1 && break
    sleep 0.1
done
sleep 2
quiet "$bin" drain --job "$job" pe0/rail1
sleep 1
quiet "$bin" status --job "$job" --json "$work/drained"
claim "messages replayed by the drain" "$(value "$work/drained" \
    'sum(p["replayed"] for e in j["pes"] for p in e["paths"])')" '==' 0
claim "channels that still use the port" "$(value "$work/drained" \
    'sum(p["use"] == "active" and p["rail"] == 1 for p in j["pes"][0]["paths"])')" '==' 0
quiet "$bin" fault --job "$job" 'nic-down@0:pe0/rail1'
sleep 1
quiet "$bin" status --job "$job" --json "$work/dead"
moves='sum(p["moves"] for p in j["pes"][0]["paths"] if p["use"] == "active")'
claim "moves that the death of the drained NIC made" \
    $(($(value "$work/dead" "$moves") - $(value "$work/drained" "$moves"))) '==' 0
wait $pid
claim "the job's exit code" $? '==' 0
live=$(program bench_live)
[ -n "$live" ] || exit 77
quiet "$live" drain &&
    claim "drain: time beyond that of the rail that is left, us" "$(cat "$work/out")" '<=' 10000
done_with_claims
