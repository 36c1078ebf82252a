#!/bin/sh
# bad_run.sh: runs in the guest. What the network of a user may be like when it is wrong: each must
# end with one clear line and the documented exit code, in bounded time. Every case mends what it
# broke.
# shellcheck disable=SC2016 # the inner shells expand
failed=0
export RAILYARD_HEAP_SIZE=160M RAILYARD_TIMEOUT=3s RAILYARD_START_TIMEOUT=15s

put() { # runs the command between both nodes
    timeout 50 railyard run --quiet -n 2 --nodes 2 on_node.sh railyard perf put --size 4K \
        --iters 16 --warmup 0 --nic verbs "$@" > /tmp/bad.log 2>&1
    rc=$?
}
expect() { # what, exit code, words that one line of stderr has; rc and /tmp/bad.log are there
    lines=$(grep -c "^railyard[a-z ]*: " /tmp/bad.log)
    if [ "$rc" = "$2" ] && { [ -z "$3" ] || grep -q "$3" /tmp/bad.log; }; then
        echo "bad_run: $1: exit $rc, $lines lines: $(grep -m 1 "$3" /tmp/bad.log | cut -c1-200)"
    else
        cat /tmp/bad.log
        echo "bad_run: $1: exit $rc where $2 was due, or no line says '$3'"
        failed=1
    fi
}
settled() { usleep 1200000; } # a port's address is resolved again after about a second

put
expect "nothing wrong" 0 ""

mv /etc/libibverbs.d /etc/libibverbs.off
put
mv /etc/libibverbs.off /etc/libibverbs.d
expect "no device" 2 "no rdma device"

for p in a0 a1; do pull link on $p; done
put
for p in a0 a1; do pull link off $p; done
expect "every port down at the start" 2 "is down"
settled

pull link on a1
put
pull link off a1
expect "one of two ports cabled" 0 ""
settled

/sbin/ip addr flush dev b0
ONE_RAIL=1 put
/sbin/ip addr add 10.0.0.2/24 dev b0
expect "no GID" 2 "no RoCEv2 address"
settled

CROSS=1 put
expect "peer in another subnet" 3 "subnet"

/sbin/ip link set b0 mtu 1500
settled
ONE_RAIL=1 put
/sbin/ip link set b0 mtu 4500
expect "a smaller MTU at the far end" 0 ""
settled

/sbin/ip link set swb0 mtu 1500 # both ends believe in 4096
ONE_RAIL=1 put --size 64K
/sbin/ip link set swb0 mtu 4500
expect "a smaller MTU inside the network" 3 ""
settled

chmod 600 /dev/infiniband/uverbs*
# the shell would take busybox's, which cannot do this
as_nobody() { /app/setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
mkdir -p /tmp && chmod 1777 /tmp /dev/shm
as_nobody env RAILYARD_NIC=verbs RAILYARD_HCA=rxe_a0 railyard perf put --pes 2 --iters 1 \
    --nic verbs > /tmp/bad.log 2>&1
rc=$?
expect "no permission" 2 "no permission to open"
chmod 666 /dev/infiniband/uverbs*
# shellcheck disable=SC3045 # busybox has it
(ulimit -l 64 && as_nobody env RAILYARD_NIC=verbs RAILYARD_HCA=rxe_a0 railyard perf put --pes 2 \
    --iters 1 --nic verbs) > /tmp/bad.log 2>&1
rc=$?
expect "too little memory may be locked" 2 "limit on locked memory"
exit $failed
