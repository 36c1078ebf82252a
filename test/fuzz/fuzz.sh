#!/usr/bin/env bash
# fuzz.sh TARGET...: builds the preset fuzz and shares RY_TEST_FUZZ_SECONDS (60; 180 with the long
# checks) between the targets. What libFuzzer finds stays in build-fuzz/found.
set -euo pipefail
cd "${RY_TEST_SOURCE:?}"
command -v clang >/dev/null || {
    echo "no clang here"
    exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/probe.c" <<'EOF'
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len > 2 && data[0] == 'r' && data[1] == 'y' && data[2] == '!')
        __builtin_trap();
    return 0;
}
EOF
clang -g -fsanitize=fuzzer "$tmp/probe.c" -o "$tmp/probe" 2>/dev/null || {
    echo "clang has no libFuzzer here: the package libclang-rt-*-dev is missing"
    exit 77
}
if (cd "$tmp" && ./probe -seed=1 -max_total_time=20 >/dev/null 2>&1); then
    echo "libFuzzer did not find a planted crash within 20 s: this test cannot fail"
    exit 1
fi

mkdir -p build-fuzz/found
make_targets() { cmake --preset fuzz && nice cmake --build --preset fuzz --target "$@"; }
make_targets "$@" >build-fuzz/build.log 2>&1 || {
    tail -n 40 build-fuzz/build.log
    echo "the fuzz build failed, the end of build-fuzz/build.log is above"
    exit 1
}
total=${RY_TEST_FUZZ_SECONDS:-$([ -n "${RY_TEST_LONG:-}" ] && echo 180 || echo 60)}
each=$((total / $# > 0 ? total / $# : 1))
bad=0
for target in "$@"; do
    mkdir -p "build-fuzz/corpus/$target"
    if build-fuzz/fuzz/"$target" -max_total_time="$each" -timeout=5 -rss_limit_mb=1024 \
        -max_len=65536 -artifact_prefix="build-fuzz/found/$target-" -print_final_stats=1 \
        "build-fuzz/corpus/$target" "test/fuzz/seeds/$target" >"build-fuzz/$target.log" 2>&1; then
        echo "$target: $(grep -o 'number_of_executed_units: *[0-9]*' "build-fuzz/$target.log")"
    else
        tail -n 40 "build-fuzz/$target.log"
        echo "$target failed: the input is in build-fuzz/found"
        bad=$((bad + 1))
    fi
done
[ "$bad" -eq 0 ]
