#!/usr/bin/env bash
# RAILYARD_HCA chooses emulated ports as it chooses real ones: which, in which order, with which
# rate and on which NIC; topo, env and doctor read it alike.
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/lib.sh"
small=(--pes 2 --tokens 16 --hidden 256 --iters 5 --nic emu)
good='j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0'

# names RAILS SELECTION NAME...: the rails of each PE
names() {
    local rails=$1 hca=$2 want
    shift 2
    want=$(printf ',"%s"' "$@")
    want="[${want:1}]"
    for as in processes threads; do
        RAILYARD_HCA=$hca run "$hca of $rails, $as" 0 "$R" ep "${small[@]}" --rails "$rails" \
            --pes-as $as --json - && json ep "$work/out" "$good" \
            "all([r['name'] for r in j['rails'] if r['pe'] == p] == $want for p in range(2))" \
            'all(r["bytes"] > 0 for r in j["rails"])'
    done
}
names 2 emu0:2 emu0:2
names 2 emu0:2,emu0:1 emu0:2 emu0:1
names 4 emu1,emu0:2 emu1:1 emu1:2 emu0:2
names 4 ^emu0:1 emu0:2 emu1:1 emu1:2
names 4 'emu*:2' emu0:2 emu1:2
names 4 'emu*,^emu1:1' emu0:1 emu0:2 emu1:2
names 2 '' emu0:1 emu0:2

# rates are the ports', wherever a selection puts them; a cap is the NIC's
RAILYARD_HCA=emu0:2,emu0:1 run "rates stay with their ports" 0 "$R" ep "${small[@]}" --tokens 128 \
    --hidden 1024 --iters 20 --link-rate 100MB/s,200MB/s --json - &&
    json ep "$work/out" "$good" 'all(1.9 < a["bytes"] / b["bytes"] < 2.1
        for a, b in zip(j["rails"][::2], j["rails"][1::2]))'
rate='j["rows"][0]["gbps"]'
for hca in emu0 emu0:1,emu1:1; do
    RAILYARD_NIC_CAP=50MB/s RAILYARD_HCA=$hca run "cap, $hca" 0 "$R" perf put --nic emu --rails 4 \
        --size 1M --iters 20 --warmup 2 --json - || continue
    case $hca in
    emu0) json perf "$work/out" "0.04 < $rate < 0.055" ;;
    *) json perf "$work/out" "0.08 < $rate < 0.11" ;;
    esac
done

# what a job takes counts the ports that are chosen
for case in '=4' 'emu0:2=1' 'emu1,emu0:1=3'; do
    RAILYARD_RAILS=4 RAILYARD_NIC=emu RAILYARD_HCA=${case%=*} run "plan, ${case%=*}" 0 "$R" info \
        --plan 8 || continue
    grep -q "^  ${case#*=} rails" "$work/out" || failed "not ${case#*=} rails in the plan"
done

# a list that was made for another library says nothing of emulated ports
NVSHMEM_HCA_LIST=mlx5_0:1 run "another library's list" 0 "$R" ep "${small[@]}" --json - &&
    json ep "$work/out" "$good" 'len(j["rails"]) == 4'

# topo, env and doctor on a record whose user has chosen
record=$work/record
cp -r "${RY_TEST_SOURCE:?}/test/records/hgx-h100" "$record"
echo 'RAILYARD_HCA=mlx5_*,^mlx5_1' >"$record/facts/env"
run "topo" 0 "$R" topo --root "$record" --json "$work/topo.json"
grep -q 'mlx5_1:1 .*left out by RAILYARD_HCA' "$work/out" || failed "topo does not say what is out"
grep -E '^  GPU[0-9]+  rail' "$work/out" | grep -q 'rail[0-9]* mlx5_1:' && failed "topo uses mlx5_1"
for target in railyard nvshmem deepep nccl; do
    run "env --for $target" 0 "$R" env --for $target --root "$record"
    grep -q 'mlx5_1:' "$work/out" && failed "env --for $target uses mlx5_1"
    grep -q 'mlx5_0:1' "$work/out" || failed "env --for $target does not use mlx5_0"
done
"$R" env --root "$record" | grep -qFx "export RAILYARD_HCA='mlx5_*,^mlx5_1'" ||
    failed "env does not keep RAILYARD_HCA"
map=$("$R" env --root "$record" | sed -n 's/^export RAILYARD_GPU_NIC_MAP=//p')
for rail in ${map//,/ }; do
    grep -q "^  GPU${rail%%:*}  rail[0-9]* ${rail#*:} " <("$R" topo --root "$record") ||
        failed "env maps $rail, topo does not"
done
echo 'RAILYARD_HCA=mlx5_99' >"$record/facts/env"
for command in topo env doctor; do
    run "$command, a port that is not there" 2 "$R" $command --root "$record"
    grep -qFx "railyard $command: 'mlx5_99' in RAILYARD_HCA is not a port of this machine" \
        "$work/err" || failed "$command does not name the port"
done
done_testing
