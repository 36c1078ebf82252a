#!/bin/sh
# full_run.sh: runs in the guest, all of the full form that one guest can show, in one boot. Says
# what passed and how long it took; a part that fails, or takes longer than it may, does not stop
# the others.
# exit: 0 all passed, 1 something did not
failed=0

part() { # seconds, what, command
    limit=$1
    what=$2
    shift 2
    began=$(cut -d. -f1 /proc/uptime)
    timeout -s KILL "$limit" "$@" > /tmp/part.log 2>&1
    rc=$?
    took=$(($(cut -d. -f1 /proc/uptime) - began))
    cat /tmp/part.log
    if [ $rc = 0 ]; then
        echo "full: passed $what ($took s)"
    else
        echo "full: failed $what (exit $rc after $took s)"
        failed=1
    fi
}

part 40 "both ports of both nodes move data" sh pair.sh
part 150 "links break and are mended" sh faults.sh 1
part 60 "the verbs backend works and fails as it should" rdma-nic
part 160 "50 links pulled under the library" rdma-mesh -n 50
part 110 "ep is exact, also while links are pulled" sh ep_run.sh 2 3
part 100 "no link left, and bad links" sh dead_run.sh
part 90 "a port gets another address" sh moved_run.sh
part 60 "one program under every launcher" sh launch_run.sh
part 100 "what is wrong from the start is named" sh bad_run.sh
exit $failed
