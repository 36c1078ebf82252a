#!/bin/bash
# Under mpirun, through PMIx.
# shellcheck disable=SC1091,SC2154,SC2016
. "$(dirname "$0")/lib.sh"
command -v mpirun >/dev/null || { echo "skipped: no mpirun: install openmpi-bin"; exit 77; }
"$R" info >/dev/null || exit 1
# The PMIx library keeps a few bytes, and was built without sanitizers: that is not for us to judge.
echo 'leak:libpmix' >"$work/leaks"
export LSAN_OPTIONS=suppressions=$work/leaks:print_suppressions=0
export TSAN_OPTIONS=${TSAN_OPTIONS-}:ignore_noninstrumented_modules=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=(mpirun --oversubscribe -n)

if ! "${mpi[@]}" 2 true >/dev/null 2>&1; then
    echo "skipped: mpirun does not run here"
    exit 77
fi
if "${mpi[@]}" 2 "$J" all 2>&1 | grep -q 'built without PMIx'; then
    echo "skipped: this build has no PMIx"
    exit 77
fi
check "three PEs" 0 "${mpi[@]}" 3 "$J" all
says 3 'node 0 of 1, local . of 3, near 3$'
check "two logical nodes" 0 env RAILYARD_NODES=2 "${mpi[@]}" 4 "$J" all
says 2 'node 1 of 2, local . of 2, near 4$'
check "a PE that dies while starting" 0 sh -c '"$@" && exit 1; exit 0' _ \
    "${mpi[@]}" 3 "$J" die-starting 1
says 2 'RY_ERR_LAUNCH after less than 5 s'
finish
