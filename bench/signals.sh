#!/usr/bin/env bash
# A signal is never seen before its payload, one rail being slow; how long a signal takes.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
limit=300
quiet "$bin" perf put-signal --iters 1000000 --size 256 --fault 'slow@0:pe0/rail1:factor=20' \
    --json "$work/s" && {
    claim "put-signal: operations" "$(value "$work/s" 'j["rows"][0]["iters"]')" '>=' 1000000
    claim "put-signal: signals seen before their payload" \
        "$(value "$work/s" 'j["rows"][0]["wrong"]')" '==' 0
}
quiet "$bin" perf ping-pong --size 8 --iters 100000 --json "$work/p" &&
    claim "ping-pong of 8 bytes: p50 of half a round trip, us" \
        "$(value "$work/p" 'round(j["rows"][0]["us_p50"], 3)')" '<=' 5
done_with_claims
