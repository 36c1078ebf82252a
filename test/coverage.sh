#!/usr/bin/env bash
# coverage.sh [--list]: line and branch coverage of core/ and the agent (which files: coverage.py),
# by clang's source-based coverage: unit and ep tests, schedules and reports, and a campaign of
# RY_SIM_RUNS (1000) simulated runs. --list names every line and branch that nothing met. Mutants
# are off: what a broken rule runs is no coverage. Exit 1 below 95 % of lines or 85 % of branches.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=build-coverage
runs=${RY_SIM_RUNS:-1000}
list=${1:-}
if [ -n "$list" ] && [ "$list" != --list ]; then
    echo "coverage.sh: '$list' is no flag: the only one is --list" >&2
    exit 2
fi

major=$(clang -dumpversion 2>/dev/null | cut -d. -f1) || major=
find_tool() {
    command -v "$1-$major" || command -v "$1" || {
        echo "no $1 here: install clang and llvm" >&2
        return 77
    }
}
[ -n "$major" ] || { echo "no clang here"; exit 77; }
profdata=$(find_tool llvm-profdata)
LLVM_COV=$(find_tool llvm-cov)
command -v python3 >/dev/null || { echo "no python3 here"; exit 77; }
export LLVM_COV

mkdir -p "$tree"
{ cmake --preset coverage && nice cmake --build --preset coverage; } >"$tree/build.log" 2>&1 || {
    tail -n 40 "$tree/build.log" >&2
    echo "coverage.sh: the build failed, the end of $tree/build.log is above" >&2
    exit 2
}
rm -rf "$tree/profiles"
mkdir "$tree/profiles"
export RY_TEST_MUTANTS=off LLVM_PROFILE_FILE=$PWD/$tree/profiles/%m.profraw

# Programs only: scripts start processes that are killed, and judge time.
rc=0
ctest --test-dir "$tree" -L '^(unit|ep|sim)$' -LE '^long$' -R '^(test_|fuzz_|moe_)' --timeout 170 \
    --output-on-failure </dev/null >"$tree/tests.log" 2>&1 || rc=$?
if [ "$rc" -ne 0 ]; then
    tail -n 40 "$tree/tests.log" >&2
    echo "coverage.sh: a test failed, the end of $tree/tests.log is above" >&2
    exit 1
fi
"$tree/bin/railyard-sim" --seed 1 --runs "$runs" --swarm >"$tree/campaign.log" 2>&1 || {
    tail -n 40 "$tree/campaign.log" >&2
    echo "coverage.sh: the campaign found a violation, it is above" >&2
    exit 1
}
"$profdata" merge -sparse -o "$tree/merged.profdata" "$tree"/profiles/*.profraw
python3 -B test/coverage.py "$tree" . "$tree/merged.profdata" ${list:+"$list"}
