#!/usr/bin/env bash
# shellcheck disable=SC2016 # commands expand in the shells that run them
# traffic on a tree of counters that the command itself advances: shares, verdict, exit, JSON,
# --watch, and a folder for each PE as the emulated NIC makes them.
set -euo pipefail
railyard=${RY_TEST_BIN:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "traffic: $*"; cat "$tmp/out" "$tmp/err" 2>/dev/null || true; exit 1; }

# port PATH SENT RECEIVED: counters in words of four bytes
port() {
    mkdir -p "$1/counters"
    echo "$2" >"$1/counters/port_xmit_data"
    echo "$3" >"$1/counters/port_rcv_data"
}
export -f port
tree=$tmp/tree
fresh() {
    rm -rf "$tree"
    port "$tree/mlx5_0/ports/1" 1000 5000
    port "$tree/mlx5_1/ports/1" 77 77
}

fresh
"$railyard" traffic --dir "$tree" --json "$tmp/json" -- bash -c "sleep 0.15
port $tree/mlx5_0/ports/1 251000 5000; port $tree/mlx5_1/ports/1 77 250077" >"$tmp/out" 2>"$tmp/err"
grep -q '^mlx5_0:1 .*1.00 MB .*0 B .*50.0%' "$tmp/out" || fail "the sender's line is wrong"
grep -q '^mlx5_1:1 .*0 B .*1.00 MB .*50.0%' "$tmp/out" || fail "the receiver's line is wrong"
grep -q 'verdict: all 2 ports carry traffic, shares differ by at most 0.0%' "$tmp/out" ||
    fail "no verdict that all ports are used"
grep -q '"sent_bytes": 1000000' "$tmp/json" || fail "JSON has no bytes"

fresh
"$railyard" traffic --dir "$tree" -- bash -c "port $tree/mlx5_0/ports/1 9000 9000" >"$tmp/out"
grep -q 'verdict: mlx5_1:1 is idle' "$tmp/out" || fail "the idle port is not named"
grep -q 'mlx5_0:1 is idle' "$tmp/out" && fail "a busy port is called idle"

fresh
"$railyard" traffic --dir "$tree" -- true >"$tmp/out"
grep -q 'verdict: none of 2 ports carried anything' "$tmp/out" || fail "silence is not seen"

# counters that are reset, and a device that comes and goes
fresh
"$railyard" traffic --dir "$tree" -- bash -c "port $tree/mlx5_0/ports/1 100 0; sleep 0.3
port $tree/mlx5_9/ports/2 50 0; sleep 0.3; rm -r $tree/mlx5_9" >"$tmp/out"
grep -q '^mlx5_0:1 .* 400 B ' "$tmp/out" || fail "a reset counter is wrong"
grep -q '^mlx5_9:2 .* 200 B ' "$tmp/out" || fail "a device that left is forgotten"

# a folder for each PE, given to the command by traffic itself
"$railyard" traffic -- bash -c 'for pe in 0 1; do
    port "$RAILYARD_EMU_SYSFS/pe$pe/emu0/ports/1" 100 100
    port "$RAILYARD_EMU_SYSFS/pe$pe/emu0/ports/2" 100 100
done; echo "$RAILYARD_EMU_SYSFS"; sleep 0.2' >"$tmp/out"
[ "$(grep -c '^pe[01]/emu0:[12] .*25.0%' "$tmp/out")" -eq 4 ] || fail "PEs' folders are not read"
[ ! -e "$(head -n 1 "$tmp/out")" ] || fail "the folder for the emulated NIC was left behind"

# that one PE moves more than another is no uneven use of ports; that one of its ports does is
even() {
    "$railyard" traffic -- bash -c 'n='"$1"'; for pe in 0 1; do
        port "$RAILYARD_EMU_SYSFS/pe$pe/emu0/ports/1" $((1000 + 2000 * pe)) 0
        port "$RAILYARD_EMU_SYSFS/pe$pe/emu0/ports/2" $((n * (1 + 2 * pe))) 0
    done; sleep 0.2' >"$tmp/out"
    grep -q "verdict: all 4 ports carry traffic, the shares of each PE differ by at most $2%" \
        "$tmp/out" || fail "shares of $1 in 1000 are not said to be off by $2 %"
}
even 1000 0.0
even 500 33.3

# exit codes and streams
code=0
"$railyard" traffic --dir "$tree" -- bash -c 'exit 7' >/dev/null || code=$?
[ "$code" -eq 7 ] || fail "the command's exit 7 became $code"
code=0
"$railyard" traffic --dir "$tree" -- bash -c 'kill -TERM $$' >/dev/null || code=$?
[ "$code" -eq 143 ] || fail "the command's signal became $code"
code=0
"$railyard" traffic --dir "$tree" -- /no/such/command >/dev/null 2>"$tmp/err" || code=$?
[ "$code" -eq 127 ] || fail "a command that is not there gave $code"
"$railyard" traffic --dir "$tree" --json - -- echo noise >"$tmp/out" 2>"$tmp/err"
[ "$(head -c 1 "$tmp/out")" = '{' ] || fail "JSON on stdout is not alone"
grep -q noise "$tmp/err" || fail "the command's output is lost"

fresh
(sleep 0.2; port "$tree/mlx5_0/ports/1" 501000 5000) &
"$railyard" traffic --watch --dir "$tree" --interval 100ms --count 5 >"$tmp/out"
wait
grep -q '^mlx5_0:1 .*2.00 MB' "$tmp/out" || fail "--watch missed the bytes"
[ "$(grep -c '^port ' "$tmp/out")" -eq 6 ] || fail "--watch did not print five tables and a sum"

# the emulated NIC: a map that names one port of two leaves the other idle, without it both carry
# the same
job=(ep --pes 4 --nodes 2 --iters 30 --tokens 64 --hidden 1024)
RAILYARD_GPU_NIC_MAP=0:emu0:1,1:emu0:1 "$railyard" traffic -- "$railyard" "${job[@]}" \
    >"$tmp/out" 2>"$tmp/err" || fail "the job with a map failed"
for pe in 0 1 2 3; do
    grep -q "verdict: pe$pe/emu0:2 is idle" "$tmp/out" ||
        fail "the idle port of PE $pe is not named"
    grep -q "verdict: pe$pe/emu0:1 is idle" "$tmp/out" &&
        fail "the busy port of PE $pe is called idle"
done
"$railyard" traffic --json "$tmp/json" -- "$railyard" "${job[@]}" >"$tmp/out" 2>"$tmp/err" ||
    fail "the job without a map failed"
grep -q 'verdict: all 8 ports carry traffic' "$tmp/out" || fail "a port is idle without a map"
awk -F'[:,]' '/spread_percent/ { ok = $2 <= 5 } END { exit !ok }' "$tmp/json" ||
    fail "shares differ by more than 5 %"
code=0
RAILYARD_GPU_NIC_MAP=0:emu7:1 timeout 30 "$railyard" "${job[@]}" >"$tmp/out" 2>"$tmp/err" || code=$?
[ "$code" -eq 2 ] || fail "a map that names no rail gave $code"
grep -q "'0:emu7:1' in RAILYARD_GPU_NIC_MAP is no rail of pe" "$tmp/err" ||
    fail "no word on the map"

DEEP_EP_DEVICE_TO_HCA_MAPPING=0:mlx5_0:1 timeout 30 "$railyard" "${job[@]}" >"$tmp/out" \
    2>"$tmp/err" || fail "a map of real NICs stops a job on emulated ones"

for words in "" "--watch -- true" "--interval 0 -- true" "--interval x -- true" \
    "--count x --watch" \
    "--watch --dir $tmp/none --count 1" "--frob"; do
    read -ra list <<<"$words"
    code=0
    "$railyard" traffic "${list[@]}" >"$tmp/out" 2>"$tmp/err" || code=$?
    if [ "$code" -ne 2 ] || [ "$(wc -l <"$tmp/err")" -ne 1 ]; then
        fail "'$words' gave $code"
    fi
done
