#!/usr/bin/env bash
# Every kind of fault, in every mode, type, handler and number of rails: one row each. A row is good
# when the job ended well and nothing was lost, doubled or corrupted.
# usage: bench/faults.sh [quick | HANDLER RAILS]     quick: one handler, two rails; or one part
set -u
cd "$(dirname "$0")/.." || exit 2
bin=${RAILYARD_BIN:-build/bin/railyard}
handlers=(gpu cpu cpu_host_memory)
rails=(2 4)
[ "${1:-}" = quick ] && handlers=(gpu) rails=(2)
[ $# -eq 2 ] && handlers=("$1") rails=("$2")
specs=(
    'port-down@iter5:pe0/rail1:for=100ms'
    'flap@iter3:pe1/rail0:count=4,period=60ms'
    'stall@iter5:pe0/rail0:for=200ms'
    'drop@iter3:rail1:p=0.01,for=150ms'
    'ack-drop@iter3:rail0:p=0.01,for=150ms'
    'delay@iter3:pe2/rail1:us=2000,jitter=1000,for=100ms'
    'ghost@iter2:rail0:us=3000,for=200ms'
    'cqe-error@iter5:pe3/rail0'
    'cqe-error@iter6:pe0/rail1:syndrome=0x10,vendor=0x1'
    'qp-error@iter5:pe1/rail1'
    'nic-down@iter5:pe2/rail0:for=150ms'
    'slow@iter3:pe0/rail1:factor=8,for=150ms'
    'gid-change@iter5:pe1/rail0'
    'port-down@iter5:pe0/rail1:for=80ms;port-down@iter6:pe1/rail0:for=80ms'
)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
total=0
printf '%-5s %-5s %-16s %-5s %-58s %-7s %9s %9s %8s\n' mode dtype handler rails fault result \
    detect_us switch_us replayed
for r in "${rails[@]}"; do
    for handler in "${handlers[@]}"; do
        for mode in ll ht; do
            for dtype in bf16 fp8; do
                for spec in "${specs[@]}"; do
                    total=$((total + 1))
                    rc=0
                    timeout 60 "$bin" ep --pes 4 --nodes 2 --rails "$r" --handler "$handler" \
                        --tokens 32 --hidden 512 --iters 60 --mode $mode --dtype $dtype \
                        --p2p off --fault "$spec" --json "$tmp/j" >"$tmp/out" 2>"$tmp/err" || rc=$?
                    # detect_us, switch_us and replayed of the first fault
                    row=$(awk -F'[:,]' '/"detect_us"/ && !d { d = 1; printf "%9.1f", $2 }
                        /"switch_us"/ && !s { s = 1; printf " %9.1f", $2 }
                        /"replayed"/ && !p { p = 1; printf " %8d", $2 }' "$tmp/j" 2>/dev/null)
                    result=ok
                    if [ "$rc" -ne 0 ]; then
                        result="exit $rc"
                        bad=$((bad + 1))
                    fi
                    printf '%-5s %-5s %-16s %-5s %-58s %-7s %s\n' $mode $dtype "$handler" "$r" \
                        "$spec" "$result" "$row"
                    [ "$rc" -eq 0 ] || sed -n '/lost,/p;$p' "$tmp/out" "$tmp/err"
                done
            done
        done
    done
done
echo "$((total - bad)) of $total good"
[ "$bad" -eq 0 ]
