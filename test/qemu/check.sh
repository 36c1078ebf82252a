#!/bin/bash
# check.sh short|full|speed: everything that is tried on real verbs, in guests (see guest.sh).
#   short  under 3 minutes: the parts come up, the chief faults look as faults.expect says
#   full   under 10 minutes: every fault, two guests, 50 links pulled, ep while links are pulled
#   speed  perf beside perftest in turns; wants a machine of its own, decides nothing
# RY_TEST_ROUTING names a recording of routing for ep in the guest, instead of the built-in gate.
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
tests=(-b "$probe" -b "$build/test/rdma-nic" -b "$build/test/rdma-mesh")
command=(-b "$build/bin/railyard" -b "$build/bin/ring" -b "$(command -v setpriv)"
    -f "$here/on_node.sh")
[ -z "${RY_TEST_ROUTING:-}" ] || command+=(-f "$RY_TEST_ROUTING:/app/routing.jsonl")
mpi=() # and where Open MPI is installed, what mpirun needs
plugins=/usr/lib/x86_64-linux-gnu
if command -v orted > /dev/null && [ -d "$plugins/openmpi/lib/openmpi3" ]; then
    mpi=(-b "$(command -v mpirun)" -b "$(command -v orted)" -d "$plugins/openmpi/lib/openmpi3")
    [ ! -d "$plugins/pmix2/lib/pmix" ] || mpi+=(-d "$plugins/pmix2/lib/pmix")
fi
script() { # NAME...: options that copy scripts of this folder
    local name
    for name in "$@"; do
        scripts+=(-f "$here/$name.sh")
    done
}
scripts=()

case $form in
    short)
        script faults ep_run short_run
        step 165 "faults, backend, library and ep in one guest" "${guest[@]}" -t 150 \
            -o "$result" "${tests[@]}" "${command[@]}" "${scripts[@]}" -- sh short_run.sh
        grep '^short: ' "$result/log" || true
        step 10 "faults look as expected" \
            "$here/compare.sh" "$here/faults.expect" "$result/faults.txt"
        ;;
    full)
        script pair faults ep_run dead_run launch_run bad_run moved_run full_run two_run
        step 520 "all that one guest shows" "${guest[@]}" -t 500 -o "$result" "${tests[@]}" \
            "${command[@]}" "${mpi[@]}" "${scripts[@]}" -- sh full_run.sh
        grep '^full: ' "$result/log" || true
        step 10 "faults look as expected" \
            "$here/compare.sh" "$here/faults.expect" "$result/faults.txt"
        step 100 "two guests move data on both ports" "${guest[@]}" -2 -t 90 \
            "${command[@]}" "${scripts[@]}" -- sh two_run.sh
        ;;
    speed)
        script speed_run
        step 900 "beside perftest" "${guest[@]}" -t 850 "${command[@]}" "${scripts[@]}" \
            -- sh speed_run.sh 7
        grep '^speed:' "$result/all.log"
        ;;
esac
exit $rc
