#!/bin/sh
# short_run.sh: runs in the guest, all of the short form in one boot. Says what passed and how long
# it took; the first failure ends it.
part() { # what, command
    what=$1
    shift
    began=$(cut -d. -f1 /proc/uptime)
    "$@" > /tmp/part.log 2>&1
    rc=$?
    took=$(($(cut -d. -f1 /proc/uptime) - began))
    cat /tmp/part.log
    if [ $rc != 0 ]; then
        echo "short: failed $what (exit $rc after $took s)"
        exit 1
    fi
    echo "short: passed $what ($took s)"
}

part "links break and are mended" sh faults.sh 1 far-down near-down bridge-down acks-lost-atomic \
    bad-key
part "the verbs backend works and fails as it should" rdma-nic
part "3 links pulled under the library" rdma-mesh -n 3
part "ep between the nodes is exact" sh ep_run.sh 1
