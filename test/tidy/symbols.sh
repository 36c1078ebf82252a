#!/usr/bin/env bash
# Every name with linkage begins with ry_, in the static library and in what the shared one exports.
set -euo pipefail
build=${RY_TEST_BUILD:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# strangers NM_FLAG FILE: defined names that are not ours. The version node of the linker map and
# what nvcc makes for its own registration are no choice of ours.
strangers() {
    nm "$1" --defined-only -P "$2" 2>/dev/null |
        awk '$1 !~ /:$/ && NF > 1 && $2 ~ /[A-Z]/ && $1 !~ /^(ry_|RAILYARD_0)/ { print $1 }' |
        awk '!/^(__cuda|__fatbin|_Z.*(ry_|__nv|__cuda)|__sti____cuda|fatbinData)/' |
        awk '!/^DW\.ref\.__gxx/' | sort -u
}

printf 'int ry_good(void) { return 1; }\nint stray(void) { return 2; }\n' >"$tmp/a.c"
gcc -c -fPIC "$tmp/a.c" -o "$tmp/a.o"
gcc -shared "$tmp/a.o" -o "$tmp/a.so"
if [ "$(strangers -g "$tmp/a.o")" != stray ] || ! strangers -D "$tmp/a.so" | grep -qx stray; then
    echo "the planted name 'stray' was not found: this test cannot fail"
    exit 1
fi

rc=0
for pair in "-g lib/librailyard.a" "-D lib/librailyard.so"; do
    read -r flag file <<<"$pair"
    [ -f "$build/$file" ] || {
        echo "$build/$file is missing: build first"
        exit 1
    }
    found=$(strangers "$flag" "$build/$file")
    if [ -n "$found" ]; then
        echo "$file defines names that do not begin with ry_: make them static or rename them:"
        echo "$found"
        rc=1
    fi
done
# used by programs, so it must be there
nm -D --defined-only "$build/lib/librailyard.so" | grep -q ' T ry_version@@RAILYARD_0' || {
    echo "librailyard.so does not export ry_version@@RAILYARD_0: see cmake/railyard.map and RY_API"
    rc=1
}
exit "$rc"
