#!/usr/bin/env bash
# Bad flags, values and files: exit code 2 and one lowercase line on stderr that names the culprit;
# nothing on stdout, no JSON, nothing left running.
set -euo pipefail
bin=${RY_TEST_BIN:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failures=0

# bad CODE PART WORD...: the command says PART and exits with CODE
bad() {
    local code=$1 part=$2 rc=0
    shift 2
    timeout 20 "$bin" "$@" >"$tmp/out" 2>"$tmp/all" </dev/null || rc=$?
    grep -v "^railyard: job " "$tmp/all" >"$tmp/err"
    local why=
    [ "$rc" -eq "$code" ] || why="exit $rc, not $code"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || why="$why; $(wc -l <"$tmp/err") lines on stderr"
    grep -qF -- "$part" "$tmp/err" || why="$why; '$part' is not said"
    grep -qE '^railyard( [a-z]+)?: [^A-Z]' "$tmp/err" || why="$why; not a line of ours"
    [ ! -s "$tmp/out" ] || why="$why; something on stdout"
    if [ -n "$why" ]; then
        echo "railyard $*: $why"
        cat "$tmp/err"
        failures=$((failures + 1))
    fi
}

bad 2 "unknown flag '--tokenz'" ep --tokenz 5
bad 2 "--tokens needs a value" ep --tokens
bad 2 "unexpected 'now'" ep now
bad 2 "--experts 4 is less than --topk 8" ep --experts 4 --topk 8
bad 2 "--hidden 100 is 200 bytes a row in bf16, not a multiple of 16" ep --hidden 100
bad 2 "--hidden 192 with fp8 is no multiple of 128" ep --hidden 192 --dtype fp8
bad 2 "--hidden '0'" ep --hidden 0
bad 2 "--tokens 'many'" ep --tokens many
bad 2 "--tokens '-1'" ep --tokens -1
bad 2 "--mode 'fast' is unknown: use ll or ht" ep --mode fast
bad 2 "--dtype 'fp4' is unknown: use bf16 or fp8" ep --dtype fp4
bad 2 "--iters '0'" ep --iters 0
bad 2 "--pes '0'" ep --pes 0
bad 2 "--nodes 4 is more than the 2 PEs" ep --pes 2 --nodes 4
bad 2 "--outstanding '1'" perf put --outstanding 1
bad 2 "RAILS" ep --rails 17
bad 2 "RAILS" ep --rails 2,x
bad 2 "LINK_RATE" ep --link-rate fast
bad 2 "HANDLER" ep --handler fpga
bad 2 "--handler cpu on a gpu needs gdrdrv" ep --device cuda --handler cpu
bad 2 "--nic verbs with --device cuda" ep --device cuda --nic verbs
bad 2 "--pes-as processes with --device cuda" ep --device cuda --pes-as processes
bad 2 "--rails 2,1" ep --device cuda --rails 2,1
bad 2 "--fault 'drop@1ms" ep --device cuda --fault "drop@1ms:pe0/rail0:p=0.1"
bad 2 "--device 'tpu' is not host or cuda" tune --device tpu
bad 2 "NIC" ep --nic none
bad 2 "FAILOVER" ep --failover maybe
bad 2 "CHANNELS" ep --channels 65
bad 2 "--pes-as 'fibres'" ep --pes-as fibres
bad 2 "--duration 'long'" ep --duration long
bad 2 "both want stdout" ep --json - --svg -
bad 2 "column 1: 'prot-down': unknown kind" ep --fault 'prot-down@1ms:pe0'
bad 2 "pe8 does not exist" ep --fault 'port-down@1ms:pe8/rail0'
bad 2 "rail2 does not exist" ep --fault 'port-down@1ms:pe0/rail2'
bad 2 "rail3 does not exist" ep --rails 3,2 --fault 'stall@iter1:pe0/rail3'
bad 2 "kill ends a process" ep --pes-as threads --fault 'kill@iter1:pe0'
bad 2 "none.jsonl: No such file" ep --routing "$tmp/none.jsonl"

printf '{"type":"meta","top_k":2}\n{"type":"route","topk_ids":[1,2],"topk_weights":[0.5,0.5]}\n' \
    >"$tmp/good.jsonl"
{ cat "$tmp/good.jsonl"; echo '{"type":"route","topk_ids":[1,1],"topk_weights":[0.5,0.5]}'; } \
    >"$tmp/twice.jsonl"
bad 2 "twice.jsonl: line 3: topk_ids has expert 1 twice" ep --routing "$tmp/twice.jsonl"
{ cat "$tmp/good.jsonl"; printf '{"type":"route","topk_ids":[1,'; } >"$tmp/cut.jsonl"
bad 2 "cut.jsonl: line 3: cut short" ep --routing "$tmp/cut.jsonl"
bad 2 "good.jsonl" ep --routing "$tmp/good.jsonl" --topk 3
bad 2 "good.jsonl" ep --routing "$tmp/good.jsonl" --experts 2

bad 2 "nothing to measure" perf
bad 2 "'push' is unknown: use put, get, put-signal, amo-add or ping-pong" perf push
bad 2 "--handler cpu on a gpu needs gdrdrv" perf put --device cuda --handler cpu
bad 2 "unexpected 'get'" perf put get
bad 2 "--size '1Q' is no size" perf put --size 1Q
bad 2 "--size '1M:1K' is out of range" perf put --size 1M:1K
bad 2 "--size '128M' is out of range" perf get --size 128M
bad 2 "an atomic has 8 bytes" perf amo-add --size 64
bad 2 "--pes 1: an operation needs two PEs" perf put --pes 1

bad 2 "no job" status --job 0123456789abcdef
bad 2 "no job" drain --job 0123456789abcdef pe0/rail1
bad 2 "'eth0' is no port" drain eth0
bad 2 "nothing is named" undrain
bad 2 "nothing is named" fault
bad 2 "column 11: 'soon'" fault 'port-down@soon:pe0/rail1'
bad 2 "give one" status --metrics --json -
bad 2 "--plan '0'" info --plan 0
bad 2 "give one" info --plan 8 --config
bad 2 "unknown command 'epp'" epp

# what only starting shows: the heap is the user's and too small
RAILYARD_HEAP_SIZE=1M bad 2 "heap too small: low-latency exchange needs" \
    ep --pes 2 --iters 1 --pes-as threads

# a port that is not there
wrong_hca() {
    RAILYARD_HCA=$2 bad 2 "$3" ep --pes 2 --iters 1 --nic emu --pes-as "$1"
}
wrong_hca processes emu1 "'emu1' in RAILYARD_HCA is no emulated port"
for wrong in emu0:3 mlx5_0:1 'emu0:1,emu2' '^emu1' 'mlx*'; do
    wrong_hca threads "$wrong" "'${wrong#*,}' in RAILYARD_HCA is no emulated port"
done
for wrong in 'emu0:' ',emu0' 'emu 0' 'emu0,' '^'; do
    wrong_hca threads "$wrong" "'$wrong' in RAILYARD_HCA is no list"
done
wrong_hca threads '^emu*' "leaves no emulated port"
for command in topo env doctor; do
    RAILYARD_HCA=nic99:1 bad 2 "'nic99:1' in RAILYARD_HCA is not a port of this machine" $command
    RAILYARD_HCA='^nic99' bad 2 "'^nic99' in RAILYARD_HCA is not a port of this machine" $command
    RAILYARD_HCA='a:b' bad 2 "'a:b' in RAILYARD_HCA is no list" $command
done

[ "$failures" -eq 0 ] || exit 1
