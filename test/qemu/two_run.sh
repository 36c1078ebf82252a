#!/bin/sh
# two_run.sh: runs in both of two guests, each a machine of its own: first perftest on each rail,
# then railyard from guest to guest, two PEs each, found through torchrun's variables.
sh pair.sh || exit 1
export RAILYARD_NIC=verbs RAILYARD_HEAP_SIZE=64M RAILYARD_RETRY_TIME=67ms RAILYARD_PATH_TIMEOUT=2s
export MASTER_ADDR=10.0.0.1 WORLD_SIZE=4
[ "$NODE" = 0 ] || usleep 500000

both() { # PORT, command: this machine's two PEs
    port=$1
    shift
    pids=
    for local in 0 1; do
        MASTER_PORT=$port LOCAL_RANK=$local RANK=$((NODE * 2 + local)) "$@" &
        pids="$pids $!"
    done
    rc=0
    for p in $pids; do
        wait "$p" || rc=$?
    done
    echo "two_run: $*: exit $rc"
    [ $rc = 0 ] || failed=1
}
failed=0
both 29601 ring
both 29602 railyard ep --mode ll --tokens 16 --hidden 512 --iters 2 --warmup 1 --nic verbs
both 29603 railyard ep --mode ht --tokens 16 --hidden 512 --iters 2 --warmup 1 --nic verbs
exit $failed
