#!/usr/bin/env bash
# How long the command takes to build from nothing on two cores, without CUDA: the promise is 45 s.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export CCACHE_DISABLE=1
cores=(taskset -c "0,1")
"${cores[@]}" true 2>/dev/null || cores=()

start=$(date +%s%N)
"${cores[@]}" cmake -S . -B "$tmp/b" -G Ninja -DRAILYARD_CUDA=OFF -DRAILYARD_TESTS=OFF >"$tmp/log"
"${cores[@]}" cmake --build "$tmp/b" -j 2 --target railyard >>"$tmp/log"
took=$((($(date +%s%N) - start) / 1000000))
printf 'configure and build of railyard: %d.%03d s, limit 45 s\n' $((took / 1000)) $((took % 1000))
[ "$took" -le 45000 ]
