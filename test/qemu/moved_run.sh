#!/bin/sh
# moved_run.sh: runs in the guest. What `railyard info -d` says of its ports; then a port gets
# another address while PEs talk: traffic leaves it, finds it again by the new one, and no result is
# wrong.
export RAILYARD_HEAP_SIZE=160M RAILYARD_RECOVERY_INTERVAL_MAX=400ms RAILYARD_DEBUG=info

RAILYARD_NIC=verbs RAILYARD_HCA=rxe_b1,rxe_a0 railyard info -d > /tmp/info.log 2>&1 || {
    cat /tmp/info.log
    echo "moved_run: info -d failed"
    exit 1
}
awk '/^rxe_/ { port = $1; n++ }
    $1 == "rail" { rail[port] = $2; backup[port] = $4 }
    $1 == "health" && $2 == "up" { up++ }
    END {
        exit !(n == 4 && up == 4 && rail["rxe_b1:1"] == "rail0," && rail["rxe_a0:1"] == "rail1," &&
            backup["rxe_b1:1"] == "rail1" && rail["rxe_a1:1"] == "none,")
    }' /tmp/info.log || {
    cat /tmp/info.log
    echo "moved_run: info -d does not show four ports, their rails and what stands in for them"
    exit 1
}
echo "moved_run: info -d shows four ports, rails and backups"

railyard run -n 2 --nodes 2 on_node.sh railyard perf put-signal --size 4K --iters 60000 \
    --nic verbs --json /tmp/moved.json > /tmp/moved.log 2>&1 &
job=$!
until grep -q "job " /tmp/moved.log; do usleep 100000; done
sleep 3
/sbin/ip addr del 10.0.0.2/24 dev b0
/sbin/ip addr add 10.0.0.77/24 dev b0
wait $job
rc=$?
/sbin/ip addr del 10.0.0.77/24 dev b0
/sbin/ip addr add 10.0.0.2/24 dev b0
tr '\r' '\n' < /tmp/moved.log | tail -n 12
wrong=$(tr ',{}[]' '\n' < /tmp/moved.json | sed -n 's/^ *"wrong": *//p' | head -n 1)
echo "moved_run: b0 got another address: exit $rc, $wrong wrong"
[ $rc = 0 ] && [ "$wrong" = 0 ] || exit 1
for node in a b; do
    grep -q "switched from rail rxe_${node}0" /tmp/moved.log || {
        echo "moved_run: no channel of node $node left the address that is gone"
        exit 1
    }
    grep -q "returned from rail rxe_${node}1" /tmp/moved.log || {
        echo "moved_run: no channel of node $node came back by the new one"
        exit 1
    }
done
