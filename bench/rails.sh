#!/usr/bin/env bash
# What several rails of a limited rate add up to, and a cap that the ports of one NIC share.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
# rate NAME FLAG...: GB/s of perf put, kept in the variable NAME
rate() {
    local name=$1
    shift
    quiet "$bin" perf put --size 1M --duration 3s --json "$work/$name" "$@" || return 1
    printf -v "$name" %s "$(value "$work/$name" 'j["rows"][0]["gbps"]')"
}
rate one --rails 1 --link-rate 100MB/s
rate two --rails 2 --link-rate 100MB/s
rate four --rails 4 --link-rate 100MB/s
claim "2 rails of 100 MB/s over 1" "$(ratio "$two / $one")" '>=' 1.95
claim "4 rails of 100 MB/s over 1" "$(ratio "$four / $one")" '>=' 3.8
rate fast --rails 1 --link-rate 400MB/s
rate unequal --rails 2 --link-rate 400MB/s,234MB/s
claim "400 and 234 MB/s: part of the sum" "$(ratio "$unequal / 0.634")" '>=' 0.97
claim "400 and 234 MB/s over the faster alone" "$(ratio "$unequal / $fast")" \
    '>=' 1.0
export RAILYARD_NIC_CAP=150MB/s
rate capped --rails 2 --ports-per-nic 2
claim "a NIC's cap of 150 MB/s: off by" \
    "$(ratio "abs($capped / 0.150 - 1)")" '<=' 0.03
claim "its two ports' shares differ by" "$(value "$work/capped" \
    'round(abs(j["rows"][0]["rail_gbps"][0] / j["rows"][0]["rail_gbps"][1] - 1), 4)')" '<=' 0.05
done_with_claims
