#!/usr/bin/env bash
# Throughput with one of two equal rails gone, after its return, and with a port that flaps.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
put() {
    local name=$1
    shift
    quiet "$bin" perf put --size 1M --duration 4s --link-rate 100MB/s --json "$work/$name" "$@" ||
        return 1
    printf -v "$name" %s "$(value "$work/$name" 'j["rows"][0]["gbps"]')"
}
put one --rails 1
put both --rails 2
put gone --rails 2 --fault 'port-down@0:pe0/rail1'
claim "one of two rails gone, over one rail" "$(ratio "$gone / $one")" '>=' 0.95
put back --rails 2 --duration 8s --fault 'port-down@0:pe0/rail1:for=500ms'
# what the first 0.8 s cost at most is known: the rest is what both rails did after the return
after="($back * 8 - 0.8 * $one) / 7.2"
claim "after the return, over both rails" "$(ratio "($after) / $both")" '>=' 0.98
put flapping --rails 2 --duration 10s --fault 'flap@0:pe0/rail1:count=20,period=500ms'
claim "20 flaps in 10 s, over staying on the good rail" \
    "$(ratio "$flapping / $one")" '>=' 0.9
claim "20 flaps: switches" "$(value "$work/flapping" \
    'sum(f["switch_us"] >= 0 for f in j["faults"])')" '<=' 40
done_with_claims
