#!/bin/sh
# pull KIND on|off PORT: breaks, or mends, the link of one port of the guest (a0 a1 b0 b1).
#   link     the port itself is set down            (its owner sees it)
#   switch   the switch's end of its cable is set down (the port loses carrier)
#   bridge   its whole switch is set down           (nobody sees it)
#   mute     the switch drops all that goes to the port   (nobody sees it)
#   blocked  the switch port stops forwarding       (nobody sees it)
#   loss:P   the switch drops P percent of what goes to the port
#   delay:MS:JITTER  the switch delays what goes to the port, in order
#   reorder:MS:JITTER  the same, and packets overtake each other
# exit: 0 done, 2 bad use
usage() {
    echo "pull: $1: say pull KIND on|off PORT; KIND is link, switch, bridge, mute, blocked," \
        "loss:P, delay:MS:JITTER or reorder:MS:JITTER" >&2
    exit 2
}
[ $# = 3 ] || usage "takes three words"
kind=$1 way=$2 port=$3
case $port in a0 | a1 | b0 | b1) ;; *) usage "no port '$port'" ;; esac
case $way in on | off) ;; *) usage "'$way' is neither on nor off" ;; esac
rail=${port#?}
if [ "$way" = on ]; then state=down; else state=up; fi

dev=sw$port
shape() { # what netem does
    if [ "$way" = off ]; then
        /sbin/tc qdisc del dev "$dev" root
        return
    fi
    /sbin/tc qdisc add dev "$dev" root netem limit 10000 "$@"
}

case $kind in
    link) /sbin/ip link set "$port" $state ;;
    switch) /sbin/ip link set "sw$port" $state ;;
    bridge) /sbin/ip link set "sw$rail" $state ;;
    mute) shape loss 100% ;;
    blocked)
        if [ "$way" = on ]; then s=0; else s=3; fi
        /sbin/bridge link set dev "sw$port" state $s
        ;;
    loss:*) shape loss "${kind#loss:}%" ;;
    delay:* | reorder:*)
        how=${kind#*:}
        # With a rate netem sends each packet after the one before it, whatever its own delay is.
        case $kind in delay:*) order="rate 10gbit" ;; *) order= ;; esac
        # shellcheck disable=SC2086 # two words
        shape delay "${how%%:*}ms" "${how#*:}ms" $order
        ;;
    *) usage "no kind '$kind'" ;;
esac
