#!/usr/bin/env bash
# 20,000 schedules without a violation, or as many as the time allows on a busy machine: at least
# 1,000. RY_SIM_RUNS, RY_SIM_SECONDS and RY_SIM_SEED ask for more; RY_SIM_FAMILY and RY_SIM_BATCH
# for others (lossy.sh).
set -euo pipefail
bin=${RY_TEST_BIN:?}
runs=${RY_SIM_RUNS:-20000}
seconds=${RY_SIM_SECONDS:-120}
seed=${RY_SIM_SEED:-1}
family=${RY_SIM_FAMILY:---swarm}
batch=${RY_SIM_BATCH:-1000}
first=$batch
done=0
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT

while [ "$done" -lt "$runs" ]; do
    if [ "$SECONDS" -ge "$seconds" ] && [ "$done" -ge "$first" ]; then
        break
    fi
    if ! "$bin" sim --seed "$((seed + done))" --runs "$batch" "$family" >"$tmp" 2>/dev/null; then
        cat "$tmp"
        exit 1
    fi
    done=$((done + batch))
done
echo "$done schedules in $SECONDS s, 0 violations"
