#!/bin/sh
# ep_run.sh ROUNDS [PULLS]: runs in the guest. railyard ep between two nodes over real verbs, ll and
# ht, every row compared with the reference and every PE's ports within 5 % of each other; then
# again while links are pulled: each for a moment, at a random end or at both, and mended before the
# next. A recording in /app/routing.jsonl is taken instead of the built-in gate.
rounds=$1
pulls=${2:-0}
export RAILYARD_HEAP_SIZE=64M RAILYARD_RECOVERY_INTERVAL_MAX=400ms
seed=7
routing=
[ ! -f /app/routing.jsonl ] || routing="--routing /app/routing.jsonl"

roll() { # leaves a number below $1 in dice
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    dice=$((seed / 65536 % $1))
}

ep() { # MODE, how long
    mode=$1
    shift
    # shellcheck disable=SC2086 # two words
    railyard run -n 4 --nodes 2 on_node.sh railyard ep --mode "$mode" --tokens 16 --hidden 512 \
        --warmup 1 --nic verbs $routing "$@"
}

for mode in ll ht; do
    if ! ep $mode --iters "$rounds" > /tmp/ep.log 2>&1; then
        cat /tmp/ep.log
        echo "ep_run: $mode failed"
        exit 1
    fi
    cat /tmp/ep.log
    awk '$1 ~ /^pe[0-9]+$/ && $NF == "%" { n++; if ($(NF - 1) < 95) bad++ }
        END { exit !(n == 4 && !bad) }' /tmp/ep.log || {
        echo "ep_run: $mode: not every PE's ports are within 5 % of each other"
        exit 1
    }
done
[ "$pulls" -gt 0 ] || exit 0

for mode in ll ht; do
    ep $mode --duration $((pulls * 3 + 6))s > /tmp/ep.log 2>&1 &
    job=$!
    i=0
    sleep 4
    while [ $i -lt "$pulls" ] && kill -0 $job 2> /dev/null; do
        i=$((i + 1))
        roll 2
        rail=$dice
        roll 3
        case $dice in
            0) ends="a$rail" ;;
            1) ends="b$rail" ;;
            *) ends="a$rail b$rail" ;;
        esac
        echo "ep_run: $mode: link down: $ends"
        for port in $ends; do pull link on "$port"; done
        roll 400
        usleep $((100000 + dice * 1000))
        for port in $ends; do pull link off "$port"; done
        usleep 2500000
    done
    wait $job
    rc=$?
    grep -E "rows checked|switched|^ok|^failed|railyard ep:" /tmp/ep.log | tr '\r' '\n' | tail -n 40
    moves=$(grep -c switched /tmp/ep.log)
    echo "ep_run: $mode with $i links pulled: exit $rc, $moves lines of moves"
    [ $rc = 0 ] || exit 1
    grep -q switched /tmp/ep.log || { echo "ep_run: no channel ever moved"; exit 1; }
done
