#!/bin/bash
# check.sh short|full|speed: everything that is tried on real verbs, in guests (see guest.sh).
#   short  under 3 minutes: the parts come up, the chief faults look as faults.expect says
#   full   under 10 minutes: every fault, two guests, 50 links pulled, ep while links are pulled
#   speed  perf beside perftest in turns; wants a machine of its own, decides nothing
# Results are left in $RY_TEST_BUILD/qemu/result; logs of a guest that failed in qemu/failed.
# exit: 0 all as expected, 1 something is not, 2 bad use, 77 the parts cannot be had here
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${RY_TEST_BUILD:-$here/../../build}
cache=${RY_QEMU_CACHE:-$build/qemu}
result=$cache/result
probe=$build/test/rdma-probe
form=${1:-short}
case $form in
    short | full | speed) ;;
    *)
        echo "check.sh: '$form' is none of short, full, speed" >&2
        exit 2
        ;;
esac
if [ ! -x "$probe" ]; then
    echo "skipped: $probe is not built: it needs libibverbs-dev" >&2
    exit 77
fi

rc=0
"$here/fetch.sh" "$cache" || exit $?
rm -rf "$result"
mkdir -p "$result"

step() { # seconds, what, command: runs it, says how it went, remembers a failure
    local limit=$1 what=$2 began=$SECONDS one=0
    shift 2
    setpriv --pdeathsig TERM timeout -k 10 "$limit" "$@" > "$result/log" 2>&1 || one=$?
    if [ $one = 0 ]; then
        echo "passed $what ($((SECONDS - began)) s)"
    else
        rc=1
        echo "failed $what (exit $one after $((SECONDS - began)) s):"
        tail -n 25 "$result/log"
    fi
    cat "$result/log" >> "$result/all.log"
}

guest=("$here/guest.sh" -c "$cache")
data=(-f "$here/pair.sh" -- sh pair.sh)
faults=(-o "$result" -b "$probe" -f "$here/faults.sh" -- sh faults.sh)
mesh=(-b "$build/test/rdma-mesh" -- rdma-mesh)
command=(-b "$build/bin/railyard" -f "$here/on_node.sh")
run=(-f "$here/ep_run.sh" -- sh ep_run.sh)

case $form in
    short)
        step 165 "faults, backend, library and ep in one guest" "${guest[@]}" -t 150 \
            -o "$result" -b "$probe" -b "$build/test/rdma-nic" "${mesh[@]:0:2}" "${command[@]}" \
            -f "$here/faults.sh" -f "$here/ep_run.sh" -f "$here/short_run.sh" -- sh short_run.sh
        grep '^short: ' "$result/log" || true
        step 10 "faults look as expected" \
            "$here/compare.sh" "$here/faults.expect" "$result/faults.txt"
        ;;
    full)
        step 60 "both ports of both nodes move data" "${guest[@]}" -t 40 "${data[@]}"
        step 90 "two guests move data on both ports" "${guest[@]}" -2 -t 60 "${data[@]}"
        step 250 "links break and are mended" "${guest[@]}" -t 220 "${faults[@]}" 2
        step 10 "faults look as expected" \
            "$here/compare.sh" "$here/faults.expect" "$result/faults.txt"
        step 100 "the verbs backend works and fails as it should" "${guest[@]}" -t 80 \
            -b "$build/test/rdma-nic" -- rdma-nic
        step 280 "50 links pulled under the library" "${guest[@]}" -t 250 "${mesh[@]}" -n 50
        step 220 "ep is exact, also while links are pulled" "${guest[@]}" -t 200 \
            "${command[@]}" "${run[@]}" 2 4
        step 150 "no link left, and bad links" "${guest[@]}" -t 120 "${command[@]}" \
            -f "$here/dead_run.sh" -- sh dead_run.sh
        ;;
    speed)
        step 900 "beside perftest" "${guest[@]}" -t 850 "${command[@]}" \
            -f "$here/speed_run.sh" -- sh speed_run.sh 7
        grep '^speed:' "$result/all.log"
        ;;
esac
exit $rc
