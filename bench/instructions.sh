#!/usr/bin/env bash
# Instructions of one small put from the call to the doorbell, with failover off and on, counted by
# callgrind: what the library takes; the emulated NIC behind the doorbell is not counted.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
posts=2000
submit=$(program bench_submit)
[ -n "$submit" ] || exit 77
command -v callgrind_annotate >/dev/null || {
    echo "no callgrind here: install valgrind"
    exit 77
}
for failover in off on; do
    quiet valgrind --tool=callgrind --callgrind-out-file="$work/$failover" \
        --toggle-collect=ry_put_nbi "$submit" "$failover" "$posts" || continue
    callgrind_annotate --auto=no --threshold=100 "$work/$failover" >"$work/$failover.txt" 2>&1
    count=$(awk '/src\/(core|host)\// { gsub(",", "", $1); sum += $1 } END { print sum + 0 }' \
        "$work/$failover.txt")
    printf -v "$failover" %s "$(ratio "$count / $posts")"
    claim "instructions of a put, failover $failover" "${!failover}" '>' 50
done
claim "more with failover on" "$(ratio "${on:-0} - ${off:-0}")" '<=' 4
done_with_claims
