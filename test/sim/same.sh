#!/usr/bin/env bash
# The same arguments give the same standard output, byte for byte; a failing run prints a plan that
# fails again in the same way, and a shorter one.
set -euo pipefail
bin=${RY_TEST_BIN:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$bin" sim --seed 7 --runs 30 --swarm --json "$tmp/a.json" >"$tmp/a" 2>/dev/null
env -i PATH="$PATH" LC_ALL=C TZ=Asia/Tokyo "$bin" sim --seed 7 --runs 30 --swarm \
    --json "$tmp/b.json" >"$tmp/b" 2>/dev/null
cmp "$tmp/a" "$tmp/b"
cmp "$tmp/a.json" "$tmp/b.json"
"$bin" sim --seed 8 --runs 30 --swarm >"$tmp/c" 2>/dev/null
if cmp -s "$tmp/a" "$tmp/c"; then
    echo "two seeds gave the same output: the seed is not used"
    exit 1
fi

# runs with losses: the same twice, and a printed plan fails again
"$bin" sim --seed 9 --runs 1 --lossy --trace >"$tmp/l1" 2>/dev/null
"$bin" sim --seed 9 --runs 1 --lossy --trace >"$tmp/l2" 2>/dev/null
cmp "$tmp/l1" "$tmp/l2"
rc=0
"$bin" sim --runs 2000 --lossy --mutant mask-alone >"$tmp/m" 2>/dev/null || rc=$?
[ "$rc" -eq 1 ] || { echo "mask-alone gave exit status $rc, not 1"; exit 1; }
grep -q '^again: railyard sim --seed [0-9]* --runs 1 --lossy --mutant mask-alone$' "$tmp/m"
lossy=$(sed -n "s/^again: railyard sim --mutant mask-alone --plan '\(.*\)'$/\1/p" "$tmp/m")
rc=0
"$bin" sim --mutant mask-alone --no-shrink --plan "$lossy" >"$tmp/p" 2>/dev/null || rc=$?
[ "$rc" -eq 1 ] || { echo "the printed plan with a loss does not fail again"; exit 1; }

# a broken rule: both runs fail alike, and the printed plan repeats the shortened failure
for i in 1 2; do
    rc=0
    "$bin" sim --runs 2000 --swarm --mutant opcode-unchecked >"$tmp/f$i" 2>/dev/null || rc=$?
    [ "$rc" -eq 1 ] || { echo "the mutant gave exit status $rc, not 1"; exit 1; }
done
cmp "$tmp/f1" "$tmp/f2"
plan=$(sed -n "s/^again: railyard sim --mutant opcode-unchecked --plan '\(.*\)'$/\1/p" "$tmp/f1")
[ -n "$plan" ] || { echo "no plan was printed"; cat "$tmp/f1"; exit 1; }
rc=0
"$bin" sim --mutant opcode-unchecked --no-shrink --plan "$plan" >"$tmp/p" 2>/dev/null || rc=$?
[ "$rc" -eq 1 ] || { echo "the printed plan does not fail again"; exit 1; }
grep -qF "$(sed -n '/^shortened/{n;p}' "$tmp/f1")" "$tmp/p"
"$bin" sim --plan "$plan" >/dev/null 2>&1 || { echo "the plan fails without the mutant"; exit 1; }
