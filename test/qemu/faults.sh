#!/bin/sh
# faults.sh ROUNDS [NAME...]: runs in the guest; breaks the link between a0 and b0 in every
# way of the list, ROUNDS times each, and writes one line a try to /out/faults.txt. With names only
# those. The node that sends is a, so near is a's end and far is b's.
rounds=${1:-1}
[ $# = 0 ] || shift
only=" $* "

# A timer as short as 8, 1 may run out by itself on an emulated CPU: the probe then ends with 3 and
# the try is repeated, five times at most.
try() { # name, arguments of the probe
    name=$1
    shift
    case $only in "  " | *" $name "*) ;; *) return ;; esac
    i=0
    while [ $i -lt "$rounds" ]; do
        i=$((i + 1))
        rc=3 n=0
        while [ $rc = 3 ] && [ $n -lt 5 ]; do
            n=$((n + 1))
            line=$(timeout 30 rdma-probe -n rxe_a0 -f rxe_b0 "$@" 2>&1)
            rc=$?
        done
        if [ $rc != 0 ]; then
            echo "$name failed: $line"
            failed=1
            continue
        fi
        echo "fault=$name $line" | tee -a /out/faults.txt
    done
}
failed=0

# the far port goes down, and what the retry timer of the QP makes of it
try far-down-8-1 -b down:b0 -u up:b0 -t 8 -r 1
try far-down -b down:b0 -u up:b0
try far-down-14-6 -b down:b0 -u up:b0 -t 14 -r 6 -w 3000
try far-down-10-7 -b down:b0 -u up:b0 -r 7 -w 1000
# the sender's own port goes down
try near-down -b down:a0 -u up:a0
# carrier lost at either end
try near-carrier -b down:swa0 -u up:swa0
try far-carrier -b down:swb0 -u up:swb0
# what no port sees
try bridge-down -b down:sw0 -u up:sw0
try requests-lost -b 'pull mute on b0' -u 'pull mute off b0'
try acks-lost -b 'pull mute on a0' -u 'pull mute off a0'
try far-blocked -b 'pull blocked on b0' -u 'pull blocked off b0'
# a fetch-add and a write posted while only acknowledgements are lost
try acks-lost-atomic -b 'pull mute on a0' -u 'pull mute off a0' -1
# short interruptions under a patient timer
try far-flap -b down:b0 -u up:b0 -a 200 -t 14 -r 6 -w 1500
try near-carrier-flap -b down:swa0 -u up:swa0 -a 200 -t 14 -r 6 -w 1500
# a bad link, not a dead one
try loss-1 -b 'pull loss:1 on b0' -u 'pull loss:1 off b0' -t 14 -r 6 -w 1000
try delay-10 -b 'pull delay:10:5 on b0' -u 'pull delay:10:5 off b0' -t 14 -r 6 -w 1000
try reorder-10 -b 'pull reorder:10:5 on b0' -u 'pull reorder:10:5 off b0' -t 14 -r 6 -w 1500
# no link involved
try far-qp-error -b qp-error -u none
try bad-key -b bad-key -u none
try far-address-gone -b '/sbin/ip addr del 10.0.0.2/24 dev b0' \
    -u '/sbin/ip addr add 10.0.0.2/24 dev b0'
exit $failed
