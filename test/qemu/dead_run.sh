#!/bin/sh
# dead_run.sh: runs in the guest. Every link of node a goes down while PEs talk, and stays down:
# both nodes must end with an error, in bounded time, and leave no process. So must they all when a
# PE is killed. Then a link with loss and one with jitter: results right, and no channel moves.
export RAILYARD_HEAP_SIZE=160M RAILYARD_TIMEOUT=4s

perf() { railyard run -n 2 --nodes 2 on_node.sh railyard perf "$@" --nic verbs; }

perf put-signal --size 4K --duration 60s > /tmp/dead.log 2>&1 &
job=$!
sleep 8
if ! kill -0 $job 2> /dev/null; then
    cat /tmp/dead.log
    echo "dead_run: ended before the links did"
    exit 1
fi
pull link on a0
pull link on a1
began=$(cut -d. -f1 /proc/uptime)
wait $job
rc=$?
took=$(($(cut -d. -f1 /proc/uptime) - began))
tr '\r' '\n' < /tmp/dead.log | tail -n 6
pull link off a0
pull link off a1
echo "dead_run: both links down: exit $rc after $took s"
if [ $rc = 0 ] || [ $took -gt 40 ]; then
    echo "dead_run: that is no bounded error"
    exit 1
fi
if grep -lx railyard /proc/[0-9]*/comm; then
    echo "dead_run: processes are left"
    exit 1
fi
grep -q "no usable path\|cannot reach\|unreachable" /tmp/dead.log || {
    echo "dead_run: nothing says what was lost"
    exit 1
}
usleep 1500000

# A PE that dies is noticed through the launcher, long before any timer.
perf put-signal --size 4K --duration 60s > /tmp/dead.log 2>&1 &
job=$!
sleep 5
victim=$(grep -lx railyard /proc/[0-9]*/comm | sed 's/[^0-9]//g' | while read -r p; do
    tr '\0' '\n' < "/proc/$p/environ" 2> /dev/null | grep -qx RAILYARD_PE=1 && echo "$p"
done | head -n 1)
kill -KILL "$victim"
began=$(cut -d. -f1 /proc/uptime)
wait $job
rc=$?
took=$(($(cut -d. -f1 /proc/uptime) - began))
tr '\r' '\n' < /tmp/dead.log | tail -n 4
echo "dead_run: pe 1 killed: exit $rc after $took s"
if [ $rc = 0 ] || [ $took -gt 5 ] || ! grep -q "pe 1" /tmp/dead.log; then
    echo "dead_run: its end was not noticed, or late, or is not named"
    exit 1
fi
if grep -lx railyard /proc/[0-9]*/comm; then
    echo "dead_run: processes are left"
    exit 1
fi

# With the thresholds that railyard has by itself. The fault-free run says what this machine's own
# hiccups are.
unset RAILYARD_TIMEOUT
export DEFAULT_TIMERS=1
for kind in none loss:1 delay:10:5; do
    for op in put-signal put; do
        [ $kind = none ] || pull $kind on b0
        if [ $op = put ]; then size=64K; else size=4K; fi
        perf $op --size $size --iters 300 --warmup 8 > /tmp/shape.log 2>&1
        rc=$?
        [ $kind = none ] || pull $kind off b0
        moves=$(grep -c switched /tmp/shape.log)
        tr '\r' '\n' < /tmp/shape.log | tail -n 5
        echo "dead_run: $kind on one port, $op: exit $rc, $moves moves"
        [ $rc = 0 ] || exit 1
        if [ "$moves" != 0 ]; then
            echo "dead_run: a channel moved, and the link was only bad"
            exit 1
        fi
    done
done
