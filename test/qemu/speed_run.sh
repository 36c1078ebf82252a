#!/bin/sh
# speed_run.sh PAIRS [NAME...]: runs in the guest. railyard perf beside perftest, in turns, on one
# port: put of 64 KiB and 1 MiB against ib_write_bw (one QP, 16 under way), ping-pong of 8 bytes
# against ib_write_lat; and put on two ports against two ib_write_bw at once; or those that are
# named. Prints every pair and the median of the ratios. An emulated CPU: the ratio says something,
# the figures nothing.
#
# Soft-RoCE works on the CPU of the thread that posts. On one port the programs of a node run on one
# CPU, as if that were all that it has (railyard perf sees to that by itself). On two ports each of
# the two ib_write_bw may take any CPU, and railyard any. Each of those keeps 16 under way on its
# port; railyard keeps between 36 and 48, or between 24 and 32 of 1 MiB, on both. Both run without a
# pause.
# shellcheck disable=SC2317 # functions are called by name
pairs=${1:-7}
[ $# = 0 ] || shift
only=" $* "
export RAILYARD_HEAP_SIZE=160M

cpus='1 2' # masks of node a, of node b
on_a() { taskset "${cpus% *}" "$@"; }
on_b() { taskset "${cpus#* }" "$@"; }

figure() { # the value of a name in what railyard wrote
    tr ',{}[]' '\n' < /tmp/ours | sed -n "s/^ *\"$1\": *//p" | head -n 1
}
ours() { # SIZE ITERS: GB/s
    ONE_RAIL=1 railyard run --quiet -n 2 --nodes 2 on_node.sh railyard perf put --size "$1" \
        --iters "$2" --channels 1 --warmup 8 --nic verbs --json /tmp/ours > /dev/null 2> /tmp/err
    figure gbps
}
ours_two() { # SIZE OUTSTANDING: GB/s
    ONE_RAIL='' railyard run --quiet -n 2 --nodes 2 on_node.sh railyard perf put --size "$1" \
        --duration 2s --outstanding "$2" --channels 2 --warmup 8 --nic verbs --json /tmp/ours \
        > /dev/null 2> /tmp/err
    figure gbps
}
ours_lat() {
    ONE_RAIL=1 railyard run --quiet -n 2 --nodes 2 on_node.sh railyard perf ping-pong --size 8 \
        --iters 500 --warmup 50 --nic verbs --json /tmp/ours > /dev/null 2> /tmp/err
    figure us_p50
}
theirs() { # RAIL SIZE ITERS: GB/s
    on_b ib_write_bw -d "rxe_b$1" -x 1 -s "$2" -n "$3" -t 16 -p "1860$1" > /dev/null 2>&1 &
    s=$!
    usleep 700000
    on_a ib_write_bw -d "rxe_a$1" -x 1 -s "$2" -n "$3" -t 16 -p "1860$1" "10.0.$1.2" 2> /dev/null |
        awk '$1 ~ /^[0-9]+$/ { printf "%.5f\n", $4 * 1048576 / 1e9 }'
    wait "$s"
}
theirs_two() {
    theirs 0 "$1" "$2" > /tmp/r0 &
    t=$!
    theirs 1 "$1" "$2" > /tmp/r1
    wait "$t"
    cat /tmp/r0 /tmp/r1 | awk '{ s += $1 } END { printf "%.5f\n", s }'
}
theirs_lat() {
    on_b ib_write_lat -d rxe_b0 -x 1 -s 8 -n 500 -p 18700 > /dev/null 2>&1 &
    s=$!
    usleep 700000
    on_a ib_write_lat -d rxe_a0 -x 1 -s 8 -n 500 -p 18700 10.0.0.2 2> /dev/null |
        awk '$1 == 8 { print $5 }'
    wait "$s"
}

compare() { # NAME, command of ours, command of theirs
    case $only in "  " | *" $1 "*) ;; *) return ;; esac
    i=0
    : > /tmp/ratios
    while [ $i -lt "$pairs" ]; do
        i=$((i + 1))
        if [ $((i % 2)) = 1 ]; then
            a=$($2)
            b=$($3)
        else
            b=$($3)
            a=$($2)
        fi
        if [ -z "$a" ] || [ -z "$b" ]; then
            echo "speed: $1: no figure ('$a', '$b'): $(tail -n 1 /tmp/err)"
            failed=1
            return
        fi
        echo "$1 $i $a $b" | awk '{
            printf "speed: %s pair %d: railyard %s perftest %s", $1, $2, $3, $4
            printf " ratio %.3f\n", $3 / $4
        }' | tee /tmp/line
        awk '{ print $NF }' /tmp/line >> /tmp/ratios
    done
    sort -n /tmp/ratios | awk -v n="$1" '{ v[NR] = $1 }
        END { printf "speed: %s median ratio %.3f of %d pairs\n", n, v[int((NR + 1) / 2)], NR }'
}
failed=0
compare put-64K "ours 64K 400" "theirs 0 65536 400"
compare put-1M "ours 1M 32" "theirs 0 1048576 32"
cpus='3 3'
compare put-64K-two-ports "ours_two 64K 48" "theirs_two 65536 2000"
compare put-1M-two-ports "ours_two 1M 32" "theirs_two 1048576 120"
cpus='1 2'
compare ping-pong ours_lat theirs_lat
exit $failed
