#!/usr/bin/env bash
# 3,000 schedules that all lose a PE, half of them a second one, without a violation, or as many as
# the time allows on a busy machine: at least 500. RY_SIM_RUNS, RY_SIM_SECONDS and RY_SIM_SEED ask
# for more.
set -euo pipefail
RY_SIM_FAMILY=--lossy RY_SIM_RUNS=${RY_SIM_RUNS:-3000} RY_SIM_SECONDS=${RY_SIM_SECONDS:-60} \
    RY_SIM_BATCH=500 exec "$(dirname "$0")/campaign.sh"
