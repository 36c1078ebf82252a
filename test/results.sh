#!/usr/bin/env bash
# The counting behind ./run check: real ctest output with every outcome, read by results.awk.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.22)
project(outcomes NONE)
enable_testing()
add_test(NAME good COMMAND true)
add_test(NAME good_talks COMMAND sh -c "echo '<skipped message=\"SKIP_RETURN_CODE=77\"/>'")
add_test(NAME skips COMMAND sh -c "echo first; echo 'no <nvcc> & no luck'; echo; exit 77")
add_test(NAME skips_silently COMMAND sh -c "exit 77")
add_test(NAME bad COMMAND sh -c "echo broke; exit 1")
add_test(NAME hangs COMMAND sleep 20)
add_test(NAME missing COMMAND /nonexistent/program)
set_tests_properties(skips skips_silently PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(hangs PROPERTIES TIMEOUT 1)
EOF
cmake -S "$tmp" -B "$tmp/b" -G Ninja >/dev/null
ctest --test-dir "$tmp/b" --output-junit results.xml >/dev/null 2>&1 || true
awk -f "${RY_TEST_SOURCE:?}/test/results.awk" "$tmp/b/results.xml" |
    sed 's/\t/ /; s/^fail missing.*/fail missing/' \
    >"$tmp/got"
cat >"$tmp/want" <<'EOF'
pass good
pass good_talks
skip skips: no <nvcc> & no luck
skip skips_silently
fail bad: broke
fail hangs
fail missing
EOF
diff "$tmp/want" "$tmp/got"
