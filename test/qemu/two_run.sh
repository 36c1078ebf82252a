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

# One rail, and the far machine's port in another subnet: one line and the exit code of an error, no hang. The
# meeting is over the other rail.
export MASTER_ADDR=10.0.1.1 RAILYARD_START_TIMEOUT=15s RAILYARD_TIMEOUT=3s WORLD_SIZE=2
if [ "$NODE" = 0 ]; then
    port=a0
else
    port=b0
    /sbin/ip addr flush dev b0
    /sbin/ip addr add 10.9.0.2/24 dev b0
fi
usleep 1500000
began=$(cut -d. -f1 /proc/uptime)
MASTER_PORT=29604 LOCAL_RANK=0 RANK=$NODE RAILYARD_HCA=rxe_$port timeout 40 ring > /tmp/log 2>&1
rc=$?
took=$(($(cut -d. -f1 /proc/uptime) - began))
tail -n 3 /tmp/log
echo "two_run: peer in another subnet: exit $rc after $took s"
{ [ $rc = 1 ] && grep -q 'subnet\|cannot reach\|unreachable\|no usable path' /tmp/log; } || failed=1
exit $failed
