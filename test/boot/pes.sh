#!/bin/bash
# pes.sh PES PORT HOSTS COMMAND...: starts PES processes with torchrun's variables; the exit code is
# that of the last one that failed.
n=$1 port=$2 hosts=$3 pids=() rc=0
shift 3
for ((i = 0; i < n; i++)); do
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$port RANK=$i WORLD_SIZE=$n LOCAL_RANK=$i \
        RAILYARD_HOST_ID=host$((i * hosts / n)) "$@" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || rc=$?
done
exit "$rc"
