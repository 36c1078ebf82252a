#!/usr/bin/env bash
# perf put and get of 1 MiB without a rate limit against one thread's memcpy; ucx_perftest beside it
# where it is installed.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
for op in put get; do
    for rails in 1 2; do
        quiet "$bin" perf $op --size 1M --iters 2000 --rails $rails --json "$work/j" || continue
        claim "perf $op, 1 MiB, $rails rail(s): GB/s over memcpy's" \
            "$(value "$work/j" 'round(j["rows"][0]["gbps"] / j["rows"][0]["memcpy_gbps"], 3)')" \
            '>=' 0.7
    done
done
if command -v ucx_perftest >/dev/null; then
    port=$((20000 + $$ % 20000))
    UCX_TLS=posix,cma,self timeout 60 ucx_perftest -p $port -T 1 >/dev/null 2>&1 &
    server=$!
    sleep 1
    UCX_TLS=posix,cma,self timeout 60 ucx_perftest -p $port -t ucp_put_bw -s 1048576 -n 2000 \
        127.0.0.1 2>/dev/null | awk '/Final/ {
            printf "ucx_perftest ucp_put_bw, 1 MiB, shared memory: %.3f GB/s\n",
                $(NF - 2) * 1048576e-9 }'
    kill $server 2>/dev/null
    wait $server 2>/dev/null
else
    echo "ucx_perftest is not installed"
fi
done_with_claims
