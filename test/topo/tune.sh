#!/usr/bin/env bash
# tune sweeps in the time it is given, prints what was best, and ep takes it for that shape only.
set -euo pipefail
railyard=${RY_TEST_BIN:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export RAILYARD_TUNE_FILE=$tmp/folder/tune.json
fail() { echo "tune: $*"; cat "$tmp/out" "$tmp/err"; exit 1; }
shape=(--pes 2 --nodes 2 --tokens 16 --hidden 256)

timeout 100 "$railyard" tune "${shape[@]}" --iters 3 --time 20s --json "$tmp/json" >"$tmp/out" \
    2>"$tmp/err" || fail "the sweep failed"
[ "$(grep -cE '^channels [1248], chunk (16|64|256)K ' "$tmp/out")" -ge 1 ] || fail "no table"
grep -qE '^\[tuning\] best dispatch \(bf16\): channels [1248], chunk (16|64|256)K: [0-9.]+ us' \
    "$tmp/out" || fail "no best dispatch"
grep -q '^\[tuning\] best combine: ' "$tmp/out" || fail "no best combine"
channels=$(awk -F'[ ,]+' '/best of both/ { print $6 }' "$tmp/out")
grep -q "\"channels\": $channels," "$RAILYARD_TUNE_FILE" || fail "the file has something else"
[ ! -s "$tmp/err" ] || fail "words on stderr without a terminal"

job=("$railyard" ep --iters 2)
timeout 60 "${job[@]}" "${shape[@]}" >"$tmp/out" 2>"$tmp/err" || fail "ep failed"
[ "$(grep -c "^tuned for this shape: channels $channels, " "$tmp/out")" -eq 1 ] ||
    fail "ep did not take what was tuned"
timeout 60 "${job[@]}" --pes 2 --nodes 2 --tokens 17 --hidden 256 >"$tmp/out" 2>"$tmp/err"
grep -q '^tuned' "$tmp/out" && fail "another shape took it too"
timeout 60 "${job[@]}" "${shape[@]}" --channels 1 >"$tmp/out" 2>"$tmp/err"
grep -q '^tuned' "$tmp/out" && fail "a flag was overruled"

# a second sweep replaces its entry, another shape adds one
timeout 100 "$railyard" tune "${shape[@]}" --iters 1 --time 8s >"$tmp/out" 2>"$tmp/err" ||
    fail "the second sweep failed"
timeout 100 "$railyard" tune --pes 2 --nodes 2 --tokens 8 --hidden 256 --iters 1 --time 5s \
    >"$tmp/out" 2>"$tmp/err" || fail "the third sweep failed"
[ "$(grep -c '"shape"' "$RAILYARD_TUNE_FILE")" -eq 2 ] || fail "not two entries"

# bounded: with no time there is an answer at once
code=0
start=$SECONDS
timeout 60 "$railyard" tune "${shape[@]}" --time 1ms >"$tmp/out" 2>"$tmp/err" || code=$?
[ "$code" -eq 2 ] || fail "no time gave $code"
[ $((SECONDS - start)) -le 20 ] || fail "no time took $((SECONDS - start)) s"
grep -q 'no run ended within 1ms' "$tmp/err" || fail "no word on the time"

refused() {
    local code=0
    timeout 60 "$railyard" "$@" >"$tmp/out" 2>"$tmp/err" || code=$?
    [ "$code" -eq 2 ] || fail "'$*' gave $code"
    [ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "not one line of error: $*"
}
for words in "--mode x" "--dtype fp16" "--pes 0" "--tokens x" "--time 0" "--time x" "--iters 0" \
    "extra" "--experts 2 --topk 4" "--routing /no/such"; do
    read -ra list <<<"$words"
    refused tune "${list[@]}"
done
for text in '' '{' '[]' '{"entries": 3}' '{"entries": [' 'noise'; do
    printf '%s' "$text" >"$RAILYARD_TUNE_FILE"
    refused ep --iters 1 "${shape[@]}"
    grep -q 'no file of railyard tune' "$tmp/err" || fail "no word on a file that is '$text'"
done
printf '{"entries": [7, {}, {"machine": 1}, {"channels": "x"}]}' >"$RAILYARD_TUNE_FILE"
timeout 60 "${job[@]}" "${shape[@]}" >"$tmp/out" 2>"$tmp/err" || fail "odd entries stop ep"
