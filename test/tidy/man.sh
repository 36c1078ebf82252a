#!/usr/bin/env bash
# Every man page passes mandoc's lint, and its name and section match its file.
set -euo pipefail
cd "${RAILYARD_SOURCE:?}"
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
for page in doc/man/*.[1357]; do
    count=$((count + 1))
    lint "$page" || rc=1
    base=$(basename "$page")
    title=$(awk '$1 == ".TH" { gsub(/"/, ""); print $2 "." $3; exit }' "$page")
    if [ "${title,,}" != "${base,,}" ]; then
        echo "$page: its .TH line says '$title': name and section must match the file"
        rc=1
    fi
done
echo "$count man pages"
[ "$count" -gt 0 ] && exit "$rc"
