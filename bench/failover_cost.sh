#!/usr/bin/env bash
# What failover costs while nothing fails: blocks with it off and on in one run, 8 B to 1 MiB.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
limit=300
quiet "$bin" perf put --size 8:1M --failover both --json "$work/j" && {
    value "$work/j" '"\n".join("%9d B: %+.4f" % (r["bytes"], r["failover_cost"])
        for r in j["rows"])'
    claim "median cost over all sizes" "$(value "$work/j" \
        'round(sorted(r["failover_cost"] for r in j["rows"])[len(j["rows"]) // 2], 4)')" '<=' 0.01
    claim "greatest cost of a size" "$(value "$work/j" \
        'round(max(r["failover_cost"] for r in j["rows"]), 4)')" '<=' 0.01
}
done_with_claims
