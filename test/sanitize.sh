#!/usr/bin/env bash
# sanitize.sh asan|tsan: builds the preset and runs its test programs and fuzz seeds, PEs as
# threads. Scripts are left out: they judge shares, switches and time limits, and an instrumented
# program takes ten times as long. RY_TEST_SANITIZE_ALL=1 runs them too.
set -euo pipefail
preset=${1:?"usage: sanitize.sh asan|tsan"}
cd "${RY_TEST_SOURCE:?}"
tree=build-$preset
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

mkdir -p "$tree"
{ cmake --preset "$preset" && nice cmake --build --preset "$preset"; } >"$tree/build.log" 2>&1 || {
    tail -n 40 "$tree/build.log"
    echo "the $preset build failed, the end of $tree/build.log is above"
    exit 1
}

# ThreadSanitizer of older compilers cannot live with many bits of address randomisation.
plain=()
if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    plain=(setarch "$(uname -m)" -R)
fi
programs=(-R '^(test_|fuzz_|moe_)')
if [ -n "${RY_TEST_SANITIZE_ALL:-}" ]; then programs=(); fi
rc=0
"${plain[@]}" ctest --test-dir "$tree" -L '^(unit|ep)$' -LE '^long$' "${programs[@]}" \
    --output-on-failure --output-junit results.xml </dev/null || rc=$?
awk -f test/results.awk "$tree/results.xml" | cut -f 1 | sort | uniq -c | xargs echo "$preset:"
exit "$rc"
