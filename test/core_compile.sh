#!/usr/bin/env bash
# core_compile.sh gcc|clang|nvcc: every header of src/core in one translation unit, and every RY_FN
# function in it really compiled (its address is taken, so that none is dropped as unused). With
# nvcc that is device code for sm_90.
set -euo pipefail
root=${RY_TEST_SOURCE:?}
compiler=${1:?"usage: core_compile.sh gcc|clang|nvcc"}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

tool=$compiler
[ "$compiler" = nvcc ] && tool=${RY_TEST_NVCC:-nvcc}
command -v "$tool" >/dev/null || {
    echo "no $compiler here"
    exit 77
}

# write_unit FOLDER: the translation unit on stdout, RY_USE in front of what takes the addresses
write_unit() {
    local header
    for header in "$1"/*.h; do printf '#include "core/%s"\n' "$(basename "$header")"; done
    printf 'RY_USE void ry_use_all(const void **out)\n{\n'
    cat "$1"/*.h | tr '\n' ' ' |
        grep -oE '\bRY_FN\b[A-Za-z0-9_ *]*[ *]ry_[a-z0-9_]+ *\(' |
        sed -E 's/ *\($//; s/.*[ *](ry_[a-z0-9_]+)$/\1/' | sort -u |
        awk '{ printf "    out[%d] = (const void *)(size_t)&%s;\n", NR - 1, $1 }'
    printf '    out[0] = 0;\n}\n'
}

# compiles FOLDER_ABOVE_CORE NAME
compiles() {
    write_unit "$1/core" >"$tmp/$2.body"
    case $compiler in
    gcc | clang)
        {
            printf '#include <stddef.h>\n#define RY_USE\nvoid ry_use_all(const void **out);\n'
            cat "$tmp/$2.body"
        } >"$tmp/$2.c"
        "$tool" -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -ffp-contract=off \
            -I "$1" -I "$root/include" -c "$tmp/$2.c" -o "$tmp/$2.o"
        ;;
    nvcc)
        {
            printf '#include <stddef.h>\n#define RY_USE extern "C" __global__\n'
            cat "$tmp/$2.body"
        } >"$tmp/$2.cu"
        "$tool" -arch=sm_90 -std=c++17 -O1 -fmad=false -Werror all-warnings \
            -Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers \
            -I "$1" -I "$root/include" -c "$tmp/$2.cu" -o "$tmp/$2.o"
        ;;
    *)
        echo "core_compile: '$compiler' is no compiler it knows: gcc, clang or nvcc"
        exit 2
        ;;
    esac
}

if ! compgen -G "$root/src/core/*.h" >/dev/null; then
    echo "src/core has no headers"
    exit 1
fi
mkdir -p "$tmp/planted/core"
cp "$root"/src/core/*.h "$tmp/planted/core/"
printf '#include "core/base.h"\nRY_FN int ry_planted(int x)\n{\n    return y;\n}\n' \
    >"$tmp/planted/core/zz_planted.h"
if compiles "$tmp/planted" planted 2>/dev/null; then
    echo "a planted header that is no C was accepted: this test cannot fail"
    exit 1
fi
compiles "$root/src" core
headers=$(grep -c '^#include "core/' "$tmp/core.body")
functions=$(grep -c '&ry_' "$tmp/core.body") || {
    echo "no RY_FN function was found in src/core: this test has nothing to compile"
    exit 1
}
echo "$headers headers, $functions functions compiled by $compiler"
