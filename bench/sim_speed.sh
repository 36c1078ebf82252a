#!/usr/bin/env bash
# Simulated schedules a second on one core: `bench/sim_speed.sh [RUNS]`. A schedule is four PEs with
# up to two rails, 200 operations of at most 64 bytes, the faults of a swarm, and in some of them
# dispatch and combine.
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
runs=${1:-5000}
limit=280
quiet "$bin" sim --seed 1 --runs "$runs" --swarm --json "$work/j" && {
    claim "schedules a second" "$(awk '/runs a second/ {print $(NF - 3)}' "$work/err")" '>=' 500
    claim "operations of a schedule" "$(value "$work/j" 'j["operations"] // j["runs"]')" '>=' 200
    claim "part with dispatch and combine" \
        "$(value "$work/j" 'round(j["ep_runs"] / j["runs"], 3)')" '>=' 0.1
    claim "violations" "$(value "$work/j" 'j["violations"]')" '==' 0
}
done_with_claims
