#!/bin/sh
# on_node.sh COMMAND...: under `railyard run --nodes 2`, gives each PE the devices of its node (the
# guest has those of both), and timers for an emulated CPU that others use too, unless
# DEFAULT_TIMERS is set.
if [ "$RAILYARD_PE" -lt $(((RAILYARD_PES + 1) / 2)) ]; then
    RAILYARD_HCA=rxe_a0,rxe_a1
else
    RAILYARD_HCA=rxe_b0,rxe_b1
fi
[ -z "$ONE_RAIL" ] || RAILYARD_HCA=${RAILYARD_HCA%,*}
# one rail each, on separate subnets
[ -z "$CROSS" ] || case $RAILYARD_HCA in *a*) RAILYARD_HCA=rxe_a0 ;; *) RAILYARD_HCA=rxe_b1 ;; esac
RAILYARD_NIC=verbs
export RAILYARD_HCA RAILYARD_NIC
if [ -z "$DEFAULT_TIMERS" ]; then
    export RAILYARD_RETRY_TIME="${RAILYARD_RETRY_TIME:-67ms}"
    export RAILYARD_PATH_TIMEOUT="${RAILYARD_PATH_TIMEOUT:-2s}"
fi
exec "$@"
