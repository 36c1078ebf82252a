#!/usr/bin/env bash
# Every shell script passes shellcheck and may be executed.
set -euo pipefail
cd "${RY_TEST_SOURCE:?}"
command -v shellcheck >/dev/null || {
    echo "no shellcheck here"
    exit 77
}
if printf '#!/bin/bash\nrm %s1\n' "$" | shellcheck - >/dev/null; then
    echo "shellcheck accepted a planted bad script: this test cannot fail"
    exit 1
fi
mapfile -t scripts < <(printf '%s\n' run .ci/run &&
    find test bench examples model -name '*.sh' 2>/dev/null)
rc=0
shellcheck "${scripts[@]}" || rc=1
for script in "${scripts[@]}"; do
    if head -n 1 "$script" | grep -q '^#!' && [ ! -x "$script" ]; then
        echo "$script has a #! line and cannot be executed: chmod +x it"
        rc=1
    fi
done
echo "${#scripts[@]} scripts"
exit "$rc"
