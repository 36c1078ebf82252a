#!/bin/sh
# compare.sh EXPECT FOUND: every try in FOUND (lines of faults.sh) must be one that EXPECT allows,
# and every fault of FOUND must be in EXPECT. Lines of EXPECT:
#   fault  statuses  near_event  far_event  near_qp  far_qp  rebuilt
# with the status numbers of ibv_wc_status (0: no completion at all), commas between alternatives
# and - where anything goes.
# exit: 0 as expected, 1 not, 2 bad use
if [ $# != 2 ] || [ ! -r "$1" ] || [ ! -s "$2" ]; then
    echo "compare.sh: say compare.sh EXPECT FOUND, two files; FOUND must not be empty" >&2
    exit 2
fi
awk '
function allowed(list, value,    parts, n, i) {
    if (list == "-") return 1
    n = split(list, parts, ",")
    for (i = 1; i <= n; i++) if (parts[i] == value) return 1
    return 0
}
function check(what, list, value) {
    if (!allowed(list, value)) {
        printf "%s: %s is %s, expected %s\n", v["fault"], what, value, list
        bad++
    }
}
NR == FNR {
    if ($0 !~ /^#/ && NF == 7)
        for (i = 2; i <= 7; i++) want[$1, i] = $i
    next
}
{
    delete v
    for (i = 1; i <= NF; i++) {
        at = index($i, "=")
        v[substr($i, 1, at - 1)] = substr($i, at + 1)
    }
    f = v["fault"]
    if (!((f, 2) in want)) {
        printf "%s: not among the expected faults\n", f
        bad++
        next
    }
    check("status", want[f, 2], v["status"])
    check("near event", want[f, 3], v["near_event"])
    check("far event", want[f, 4], v["far_event"])
    check("near queue pair", want[f, 5], v["near_qp"])
    check("far queue pair", want[f, 6], v["far_qp"])
    check("return of the queue pairs", want[f, 7], v["rebuilt_ms"] < 0 ? "no" : "yes")
    if (f == "acks-lost-atomic" && (v["far_sum"] != 1 || v["far_landed"] != 1)) {
        printf "%s: the far end has sum %s, write landed %s\n", f, v["far_sum"], v["far_landed"]
        bad++
    }
    tries++
}
END {
    printf "%d tries, %d not as expected\n", tries, bad
    exit bad > 0
}' "$1" "$2"
