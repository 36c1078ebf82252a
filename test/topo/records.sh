#!/usr/bin/env bash
# shellcheck disable=SC2016 # hostile text is not meant to expand
# Every command on every record, from its folder and from an archive; capture and replay; and
# records that are damaged or hostile.
set -euo pipefail
railyard=${RY_TEST_BIN:?}
records=${RY_TEST_SOURCE:?}/test/records
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "records: $*"; exit 1; }

# expect CODE WORD...: runs the command, whose exit must be CODE; output in $tmp/out and $tmp/err
expect() {
    local want=$1 code=0
    shift
    timeout 20 "$railyard" "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
    [ "$code" -eq "$want" ] || { cat "$tmp/out" "$tmp/err"; fail "'$*' gave $code, not $want"; }
}

one_line_error() {
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || { cat "$tmp/err"; fail "not one line of error: $*"; }
    grep -q "^railyard $1: " "$tmp/err" || { cat "$tmp/err"; fail "not railyard's own error: $*"; }
}

declare -A failures=([b200-bare]=5 [b200-ready]=0 [bond]=0 [four-port-pxb]=0 [hgx-h100]=0 [laptop]=0
    [two-equal]=0 [two-port-pix]=0 [two-port-pxb]=0 [virtual-functions]=0)
for record in "$records"/*/; do
    name=$(basename "$record")
    [ -s "$record/source.txt" ] || fail "$name does not say where it is from"
    tar -C "$records" -czf "$tmp/$name.tar.gz" "$name"
    for root in "$record" "$tmp/$name.tar.gz"; do
        expect 0 topo --root "$root" --json "$tmp/topo.json" --svg "$tmp/topo.svg"
        expect $((failures[$name] > 0)) doctor --root "$root" --json "$tmp/doctor.json"
        cp "$tmp/out" "$tmp/doctor.$([ -d "$root" ] && echo folder || echo archive)"
        [ "$(grep -c '^FAIL' "$tmp/out" || true)" -eq "${failures[$name]}" ] ||
            { cat "$tmp/out"; fail "$name: not ${failures[$name]} failures"; }
        for target in railyard nvshmem deepep nccl; do
            expect 0 env --for "$target" --root "$root"
            bash -n "$tmp/out" || fail "env --for $target of $name is no shell code"
        done
        expect 0 plan --root "$root" --json "$tmp/plan.json"
    done
    cmp "$tmp/doctor.folder" "$tmp/doctor.archive" || fail "$name: folder and archive differ"
    grep -q '</svg>' "$tmp/topo.svg" || fail "$name: no picture"
done

# what topo prints for the HGX machine is nvidia-smi's matrix
want=$records/hgx-h100/expect/nvidia-smi-topo.txt
"$railyard" topo --root "$records/hgx-h100" | head -n "$(wc -l <"$want")" | tr -d ' ' >"$tmp/matrix"
tr -d ' ' <"$want" | diff - "$tmp/matrix" || fail "the printed matrix is not nvidia-smi's"

# the settings that env prints are to the doctor's liking
for target in railyard nvshmem deepep nccl; do
    for name in hgx-h100 b200-ready four-port-pxb two-port-pix bond; do
        cp -r "$records/$name" "$tmp/set"
        "$railyard" env --for "$target" --root "$tmp/set" | sed -n 's/^export //p' |
            tr -d \' >"$tmp/set/facts/env"
        expect 0 doctor --root "$tmp/set"
        if [ "$target" = deepep ] && grep -q '^WARN' "$tmp/out"; then
            cat "$tmp/out"
            fail "doctor warns of what env --for $target prints on $name"
        fi
        rm -rf "$tmp/set"
    done
done

# a captured record gives the same verdicts as what it was captured from
expect 1 doctor --root "$records/b200-bare" --capture "$tmp/copy.tar.gz"
cp "$tmp/out" "$tmp/first"
expect 1 doctor --root "$tmp/copy.tar.gz"
cmp "$tmp/first" "$tmp/out" || fail "the captured record gives other verdicts"
"$railyard" doctor --root "$records/b200-bare" --capture "$tmp/again.tar.gz" >/dev/null || true
cmp "$tmp/copy.tar.gz" "$tmp/again.tar.gz" || fail "two captures of one record differ"

# this machine: fast, honest, and nothing of it leaks
start=$(date +%s%N)
code=0
timeout 10 "$railyard" doctor --capture "$tmp/live.tar.gz" >"$tmp/live" || code=$?
[ "$code" -le 1 ] || fail "doctor on this machine gave $code"
[ $((($(date +%s%N) - start) / 1000000)) -lt 3000 ] || fail "doctor took too long here"
mkdir "$tmp/live.d"
tar -C "$tmp/live.d" -xzf "$tmp/live.tar.gz"
for secret in $(cat /sys/class/net/*/address 2>/dev/null | grep -v '^00:00:00:00' || true); do
    grep -rq "$secret" "$tmp/live.d" && fail "the capture holds the address $secret"
done
host=$(uname -n)
if [ ${#host} -gt 3 ]; then
    grep -rqw "$host" "$tmp/live.d" && fail "the capture holds the host's name"
fi
grep -rqi 'HostName\|serial\|uuid' "$tmp/live.d" && fail "the capture holds a name or serial number"
code=0
"$railyard" doctor --root "$tmp/live.d" >"$tmp/replay" || code=$?
cmp "$tmp/live" "$tmp/replay" || fail "this machine's record gives other verdicts"

# damaged and hostile archives
good=$tmp/hgx-h100.tar.gz
head -c 2000 "$good" >"$tmp/cut.tar.gz"
: >"$tmp/empty"
head -c 4096 /dev/urandom >"$tmp/noise"
mkdir "$tmp/evil"
ln -s /etc/passwd "$tmp/evil/topology.xml"
tar -C "$tmp/evil" -cf "$tmp/link.tar" topology.xml
cp "$records/laptop/topology.xml" "$tmp/evil/x"
tar -C "$tmp/evil" -Pcf "$tmp/up.tar" --transform 's,^x,../../topology.xml,' x
tar -C "$tmp/evil" -Pcf "$tmp/absolute.tar" --transform 's,^x,/etc/topology.xml,' x
rm "$tmp/evil/topology.xml"
truncate -s 200M "$tmp/evil/topology.xml"
tar -C "$tmp/evil" -czf "$tmp/bomb.tar.gz" topology.xml
echo '<topology>' >"$tmp/evil/topology.xml"
tar -C "$tmp/evil" -cf "$tmp/xml.tar" topology.xml
mkfifo "$tmp/evil/pipe"
tar -C "$tmp/evil" -cf "$tmp/pipe.tar" pipe
mkdir "$tmp/folder"
for file in cut.tar.gz empty noise link.tar up.tar absolute.tar bomb.tar.gz xml.tar \
    pipe.tar folder; do
    for command in topo doctor env plan; do
        expect 2 "$command" --root "$tmp/$file"
        one_line_error "$command" "$file"
        [ ! -s "$tmp/out" ] || fail "$command said something about $file"
    done
done
[ ! -e "$tmp/../topology.xml" ] || fail "a path led outside"

# what a record says cannot reach a shell or a terminal
cp -r "$records/hgx-h100" "$tmp/hostile"
mv "$tmp/hostile/sys/class/infiniband/mlx5_0" "$tmp/hostile/sys/class/infiniband/mlx5_0;\$(touch x)"
printf 'NVSHMEM_IB_GID_INDEX=3;$(touch x)\nNVSHMEM_REMOTE_TRANSPORT=\033[31m`id`\n' \
    >"$tmp/hostile/facts/env"
printf 'libnccl.so.2 /opt/a 1 env\nlibnccl.so.2 /opt/$(id) 2 env\n' >"$tmp/hostile/facts/libs"
for command in topo doctor env; do
    timeout 20 "$railyard" "$command" --root "$tmp/hostile" >"$tmp/out" 2>&1 || true
    grep -q "touch x)\|\`id\`\|\$(id)" "$tmp/out" && fail "shell code in $command"
    grep -q $'\033' "$tmp/out" && fail "terminal code in $command"
done

# a run is judged by what it prints, wherever that goes, and how it ends changes nothing
run_of() {
    expect 0 doctor --root "$records/hgx-h100" "$@"
}
line='avg_t=60.2 us, min_t=41.0 us, max_t=140.9 us'
run_of --only log-jitter -- sh -c "echo '$line' >&2"
grep -q '^WARN  log-jitter *times differ by 166 %' "$tmp/out" || fail "jitter of a run is not seen"
grep -qFx "$line" "$tmp/err" || fail "what the run printed is lost"
run_of --only log-latency -- sh -c 'echo step_time=900 us; exit 3'
grep -q '^WARN  log-latency' "$tmp/out" || fail "the latency of a run is not seen"
grep -q "^railyard doctor: 'sh' ended with exit code 3$" "$tmp/err" || fail "no word on its end"
run_of --only log-latency -- printf 'dispatch 80.0 90.0 1 1 1\ncombine 91.0 95.5 1 1 1\n'
grep -q '^OK    log-latency *mean times are at most 91 us' "$tmp/out" ||
    fail "ep's text is not read"
for form in text json; do
    flags=()
    [ $form = json ] && flags=(--json -)
    run_of --only log-jitter -- "$railyard" ep --pes 2 --tokens 4 --hidden 64 --iters 5 \
        ${flags[@]+"${flags[@]}"}
    grep -qE '^(OK|WARN) +log-jitter *times differ by' "$tmp/out" || fail "ep as $form is not read"
done
expect 2 doctor --log "$tmp/out" -- true
expect 2 doctor -- /no/such/command
grep -q "^railyard doctor: cannot run '/no/such/command': No such file" "$tmp/err" ||
    fail "a command that is not there is not named"

# flags and their errors
expect 0 doctor --list
ids=$(awk '{print $1}' "$tmp/out")
[ "$(wc -w <<<"$ids")" -ge 45 ] || fail "too few checks"
for id in $ids; do
    expect 0 doctor --explain "$id"
    [ "$(wc -c <"$tmp/out")" -gt 100 ] || fail "$id is not explained"
done
expect 0 doctor --only memlock --root "$records/hgx-h100"
[ "$(grep -c '^OK' "$tmp/out")" -eq 1 ] || fail "--only runs more than one check"
expect 0 doctor --root "$records/hgx-h100" --json -
[ "$(head -c 1 "$tmp/out")" = '{' ] || fail "JSON on stdout is not alone"
for words in "doctor --explain no-such" "doctor --handler fast" "doctor --pes 0" "doctor --pes x" \
    "doctor --tokens -1" "doctor --only" "doctor --frob" "doctor extra" "doctor --list=1" \
    "doctor --log /no/such" "topo extra" "topo --root /no/such" "topo --json" "env --for mpi" \
    "env --pes 0" "env extra" "plan --versions 1" "plan --prefix relative" "plan --phase x" \
    "plan --prefix /a;b" "plan extra"; do
    read -ra list <<<"$words"
    expect 2 "${list[@]}"
    one_line_error "${list[0]}" "$words"
done
expect 2 topo --root "$records/hgx-h100" --json /no/such/folder/file
for command in topo doctor env plan; do
    expect 0 "$command" --help
    grep -q '^usage: railyard' "$tmp/out" || fail "$command --help says nothing"
done
