#!/usr/bin/env bash
# python.sh SCRIPT ARG...: a tidy script, skipped where there is no python3.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
command -v python3 >/dev/null || {
    echo "no python3 here"
    exit 77
}
script=$1
shift
exec python3 -B "$here/$script" "$@"
