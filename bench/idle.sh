#!/usr/bin/env bash
# PEs that wait for a signal sleep: percent of a core of the busiest of eight, after 100 ms.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
idle=$(find "$(dirname "$bin")/.." -name bench_idle -type f -perm -u+x | head -n 1)
[ -n "$idle" ] || {
    echo "no bench_idle in the build: build all"
    exit 77
}
quiet "$bin" run -n 8 --nodes 2 "$idle" &&
    claim "8 PEs that wait: percent of a core of the busiest" "$(tail -n 1 "$work/out")" '<=' 5
done_with_claims
