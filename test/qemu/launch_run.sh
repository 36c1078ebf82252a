#!/bin/sh
# launch_run.sh: runs in the guest. The program `ring`, as it is, on real verbs between two nodes
# under every launcher: railyard run, torchrun's variables, mpirun where it was copied in; and once
# on the emulated NIC.
# shellcheck disable=SC2016 # the inner shells expand
failed=0
export RAILYARD_HEAP_SIZE=16M
hostname guest # mpirun wants one
echo "127.0.0.1 guest" >> /etc/hosts

is_good() { # what, exit code of what wrote /tmp/ring.log
    if [ "$2" = 0 ] && grep -q '^4 PEs, 256 of 256 blocks good' /tmp/ring.log; then
        echo "launch_run: ring on $1: good"
    else
        cat /tmp/ring.log
        echo "launch_run: ring on $1: exit $2"
        failed=1
    fi
}

RAILYARD_NIC=emu railyard run -n 4 --nodes 2 ring > /tmp/ring.log 2>&1
is_good "emu, railyard run" $?
railyard run -n 4 --nodes 2 on_node.sh ring > /tmp/ring.log 2>&1
is_good "verbs, railyard run" $?

: > /tmp/ring.log
pids=
for i in 0 1 2 3; do
    MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 RANK=$i WORLD_SIZE=4 LOCAL_RANK=$((i % 2)) \
        RAILYARD_PE=$i RAILYARD_PES=4 RAILYARD_HOST_ID=host$((i / 2)) \
        sh on_node.sh sh -c 'unset RAILYARD_PE RAILYARD_PES; exec ring' >> /tmp/ring.log 2>&1 &
    pids="$pids $!"
done
rc=0
for p in $pids; do
    wait "$p" || rc=$?
done
is_good "verbs, torchrun's variables" $rc

if command -v mpirun > /dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RAILYARD_NODES=2
    mpirun --oversubscribe --mca plm isolated --mca btl self,tcp -n 4 sh -c '
        export RAILYARD_PE=$OMPI_COMM_WORLD_RANK RAILYARD_PES=4
        exec sh on_node.sh sh -c "unset RAILYARD_PE RAILYARD_PES; exec ring"' > /tmp/ring.log 2>&1
    is_good "verbs, mpirun" $?
else
    echo "launch_run: no mpirun here"
fi
exit $failed
