#!/usr/bin/env bash
# Every man page passes mandoc's lint, and its name and section match its file.
set -euo pipefail
cd "${RY_TEST_SOURCE:?}"
command -v mandoc >/dev/null || {
    echo "no mandoc here"
    exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

lint() { mandoc -T lint -W warning "$@"; }
printf '.TH X 1\n.SH NAME\nx\n.IP\n.nosuchmacro\n.fi\n' >"$tmp/x.1"
if lint "$tmp/x.1" >/dev/null 2>&1; then
    echo "mandoc accepted a planted bad page: this test cannot fail"
    exit 1
fi

rc=0
count=0
build=${RY_TEST_BUILD:?}
for page in doc/man/*.[1357] "$build"/man/man3/railyard_*.3; do
    count=$((count + 1))
    lint "$page" || rc=1
    base=$(basename "$page")
    title=$(awk '$1 == ".TH" { gsub(/"/, ""); print $2 "." $3; exit }' "$page")
    if [ "${title,,}" != "${base,,}" ]; then
        echo "$page: its .TH line says '$title': name and section must match the file"
        rc=1
    fi
done
# the pages made of headers know every function that the library exports
nm -D --defined-only "$build/lib/librailyard.so" |
    awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' |
    while read -r function; do
        grep -qx "\.so man3/railyard_[a-z_]*\.3" "$build/man/man3/$function.3" 2>/dev/null ||
            echo "$function"
    done >"$tmp/without"
if [ -s "$tmp/without" ]; then
    echo "exported and in no public header that a manual page is made of: $(xargs <"$tmp/without")"
    rc=1
fi
grep -q '^\\fBconst char \*ry_version(void);\\fR$' "$build/man/man3/railyard_status.3" || {
    echo "railyard_status.3 does not declare ry_version"
    rc=1
}
echo "$count man pages"
[ "$count" -gt 0 ] && exit "$rc"
