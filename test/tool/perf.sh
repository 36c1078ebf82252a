#!/usr/bin/env bash
# railyard perf: every operation, checked; its table and JSON.
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/lib.sh"
good='j["ok"] and all(r["wrong"] == 0 for r in j["rows"]) and j["error"] is None'

for op in put get; do
    run "$op" 0 "$R" perf $op --size 1:4K --iters 40 --warmup 4 --json - &&
        json perf "$work/out" "$good" \
            '[r["bytes"] for r in j["rows"]] == [1 << i for i in range(13)]' \
            'all(r["iters"] == 40 and len(r["rail_gbps"]) == 2 for r in j["rows"])' \
            'all(r["memcpy_gbps"] > 0 and r["us_p99"] >= r["us_p50"] > 0 for r in j["rows"])'
done
run "three under way" 0 "$R" perf put --size 64K --iters 50 --outstanding 3 --json - &&
    json perf "$work/out" "$good" 'j["rows"][0]["iters"] == 50'
run "threads, 4 rails, odd size" 0 "$R" perf put --size 1000003 --iters 20 --rails 4 \
    --pes-as threads --json - && json perf "$work/out" "$good" 'len(j["rows"][0]["rail_gbps"]) == 4'
run "a signal stays behind its payload, one rail slow" 0 "$R" perf put-signal --iters 6000 \
    --size 256 --fault 'slow@0:pe0/rail1:factor=20' --json - &&
    json perf "$work/out" "$good" 'j["rows"][0]["iters"] == 6000' \
        '[f["kind"] for f in j["faults"]] == ["slow"]'
run "amo-add" 0 "$R" perf amo-add --iters 500 --json - && json perf "$work/out" "$good"
run "ping-pong" 0 "$R" perf ping-pong --iters 2000 --json - &&
    json perf "$work/out" "$good" 'j["rows"][0]["us_p50"] > 0'
run "ping-pong with payload" 0 "$R" perf ping-pong --size 64 --iters 300 --json - &&
    json perf "$work/out" "$good"
run "failover off and on" 0 "$R" perf put --size 4K --iters 16 --failover both --json - &&
    json perf "$work/out" "$good" 'isinstance(j["rows"][0]["failover_cost"], float)'
run "two rates add up" 0 "$R" perf put --size 1M --iters 24 --link-rate 40MB/s,20MB/s --json - &&
    json perf "$work/out" "$good" 'j["rows"][0]["gbps"] < 0.0605' \
        '1.6 < j["rows"][0]["rail_gbps"][0] / j["rows"][0]["rail_gbps"][1] < 2.4'

# a port that dies under load
run "port down" 0 "$R" perf put --size 64K --duration 1500ms --link-rate 50MB/s \
    --fault 'port-down@300ms:pe0/rail1:for=300ms' --json "$work/f.json" --svg "$work/f.svg" && {
    json perf "$work/f.json" "$good" 'len(j["faults"]) == 1' \
        'j["faults"][0]["kind"] == "port-down" and j["faults"][0]["rail"] == 1' \
        'j["faults"][0]["at_us"] >= 300000 and j["faults"][0]["detect_us"] >= 0' \
        'j["faults"][0]["switch_us"] >= 0 and j["faults"][0]["failback_us"] >= 300000'
    grep -q '^port-down' "$work/out" || failed "the text has no fault"
    grep -q 'port-down rail1' "$work/f.svg" || failed "the picture has no fault"
}
# failover off: the first failure is the operation's error, and JSON is written all the same
run "failover off" 3 "$R" perf put --size 64K --duration 3s --failover off --link-rate 50MB/s \
    --fault 'port-down@200ms:pe0/rail1' --json "$work/off.json" &&
    json perf "$work/off.json" 'not j["ok"] and "pe 1" in j["error"]'
done_testing
