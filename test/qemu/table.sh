#!/bin/sh
# table.sh FOUND: the lines of faults.sh as the table of faults.md (Markdown, one row a fault).
# Times are least and greatest, in milliseconds from the start of whatever broke the link.
if [ $# != 1 ] || [ ! -s "$1" ]; then
    echo "table.sh: say table.sh FOUND, a file that faults.sh wrote" >&2
    exit 2
fi
awk '
function range(f, what) {
    if (!((f, what, "n") in lo)) return "-"
    return sprintf("%.0f-%.0f", lo[f, what, "n"], hi[f, what, "n"])
}
function add(f, what, value) {
    value += 0
    if (value < 0) return
    if (!((f, what, "n") in lo) || value < lo[f, what, "n"]) lo[f, what, "n"] = value
    if (!((f, what, "n") in hi) || value > hi[f, what, "n"]) hi[f, what, "n"] = value
}
function tally(f, what, value) {
    if (!((f, what, value) in count)) values[f, what] = values[f, what] " " value
    count[f, what, value]++
}
function show(f, what,    parts, n, i, s) {
    n = split(values[f, what], parts, " ")
    if (n == 1) return parts[1]
    for (i = 1; i <= n; i++)
        s = s (i > 1 ? ", " : "") parts[i] " x" count[f, what, parts[i]]
    return s
}
{
    delete v
    for (i = 1; i <= NF; i++) {
        at = index($i, "=")
        v[substr($i, 1, at - 1)] = substr($i, at + 1)
    }
    f = v["fault"]
    if (!(f in tries)) order[++faults] = f
    tries[f]++
    timer[f] = v["timeout"] ", " v["retry"]
    tally(f, "status", v["status"] == 0 ? "none" : v["name"] "(" v["status"] ")")
    tally(f, "qps", v["near_qp"] "/" v["far_qp"])
    tally(f, "events", v["near_event"] "/" v["far_event"])
    add(f, "first", v["first_ms"])
    add(f, "fault", v["fault_ms"])
    add(f, "gap", v["status"] == 0 ? v["gap_ms"] : -1)
    add(f, "rebuilt", v["rebuilt_ms"])
}
END {
    print "| fault | timer | tries | first bad completion | after ms | fault took ms |" \
        " events near/far | queue pairs near/far | gap ms if none | rebuilt ms |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= faults; i++) {
        f = order[i]
        printf "| %s | %s | %d | %s | %s | %s | %s | %s | %s | %s |\n", f, timer[f], tries[f],
            show(f, "status"), range(f, "first"), range(f, "fault"), show(f, "events"),
            show(f, "qps"), range(f, "gap"), range(f, "rebuilt")
    }
}' "$1"
