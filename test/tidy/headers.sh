#!/usr/bin/env bash
# Every public header stands alone, twice included, as C11 and as C++17, under each compiler there
# is. First two planted bad headers must be refused.
set -euo pipefail
root=${RY_TEST_SOURCE:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only)

# compiles INCLUDE_DIR HEADER: 0 if every compiler takes it
compiles() {
    local rc=0 compiler
    printf '#include <%s>\n#include <%s>\nint ry_unused;\n' "$2" "$2" >"$tmp/alone.c"
    cp "$tmp/alone.c" "$tmp/alone.cpp"
    for compiler in gcc clang; do
        command -v "$compiler" >/dev/null || continue
        "$compiler" -std=c11 "${flags[@]}" -I "$1" "$tmp/alone.c" || rc=1
    done
    for compiler in g++ clang++; do
        command -v "$compiler" >/dev/null || continue
        echo 'int main() { return 0; }' >"$tmp/empty.cpp"
        # clang++ may be there without a C++ library; then it cannot judge
        "$compiler" -std=c++17 -fsyntax-only -include cstdint "$tmp/empty.cpp" 2>/dev/null ||
            continue
        "$compiler" -std=c++17 "${flags[@]}" -I "$1" "$tmp/alone.cpp" || rc=1
    done
    return "$rc"
}

mkdir -p "$tmp/planted/railyard"
echo 'static inline int ry_f(uint8_t x) { return x; }' >"$tmp/planted/railyard/leans.h"
echo 'struct ry_s { int class; };' >"$tmp/planted/railyard/c_only.h"
for planted in leans c_only; do
    if compiles "$tmp/planted" "railyard/$planted.h" 2>/dev/null; then
        echo "the planted bad header $planted.h was accepted: this test cannot fail"
        exit 1
    fi
done

count=0
bad=0
for header in "$root"/include/railyard/*.h; do
    count=$((count + 1))
    compiles "$root/include" "railyard/$(basename "$header")" || {
        echo "$header does not compile alone: include what it uses, and keep it C11 and C++17"
        bad=$((bad + 1))
    }
done
echo "$count public headers, $bad bad"
[ "$count" -gt 0 ] && [ "$bad" -eq 0 ]
