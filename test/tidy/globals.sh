#!/usr/bin/env bash
# No global state in the library: a context is an object, so no object file may hold writable data
# that all threads share. Thread-local and constant data are fine. Exceptions: globals.txt.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${RY_TEST_BUILD:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# writable FILE: names in .data and .bss; constant data with pointers (.data.rel.ro) does not count
writable() {
    objdump -t "$1" | awk '
        { section = ""; for (i = 2; i < NF; i++) if ($i ~ /^(\.data|\.bss|\*COM\*)/) section = $i }
        section ~ /^(\.data|\.bss|\.data\.rel\.local|\.data\.rel|\*COM\*)$/ && $NF != section {
            print $NF
        }' | sed 's/\.[0-9]*$//' | sort -u
}

cat >"$tmp/a.c" <<'EOF'
static int count;
static int start = 5;
static const char *const names[] = {"a", "b"};
static _Thread_local int mine;
int ry_f(void) { return ++count + ++start + ++mine + names[count & 1][0]; }
EOF
gcc -O1 -fPIC -c "$tmp/a.c" -o "$tmp/a.o"
if [ "$(writable "$tmp/a.o" | xargs)" != "count start" ]; then
    echo "planted globals 'count start' were seen as '$(writable "$tmp/a.o" | xargs)'"
    exit 1
fi

# what nvcc makes for its own registration is no choice of ours
found=$(writable "$build/lib/librailyard.a" | awk '!/__(cuda|nv|device_stub)/' |
    grep -vxF -f <(sed 's/[ #].*//' "$here/globals.txt") || true)
if [ -n "$found" ]; then
    echo "writable data shared by the whole process; put it into the context, or name it with its"
    echo "reason in test/tidy/globals.txt:"
    echo "$found"
    exit 1
fi
