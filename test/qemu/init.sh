#!/bin/sh
# init of the guest. guest.sh draws the network it makes. Runs /app/command and gives its exit
# status to the host as the last line of the third serial port, its output through the second, and
# what it left in /out as a tar after "rc=". The first port is the console.
PATH=/app:/sbin:/bin
export PATH
busybox mount -t proc proc /proc
busybox --install -s /bin # finds its own path in /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2> /dev/null
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts

say() { echo "guest: $*" > /dev/console; }

power_off() { # qemu ends with 2 * 16 + 1 = 33 when the guest came this far
    sync
    printf '\020' | dd of=/dev/port bs=1 seek=244 conv=notrunc 2> /dev/null
    poweroff -f
}

finish() { # rc
    stty -F /dev/ttyS2 raw 2> /dev/null
    echo "rc=$1" > /dev/ttyS2
    (cd /out && tar -cf - .) > /dev/ttyS2 2> /dev/null
    power_off
}

arg() { # the value of ry.$1 on the kernel's command line
    tr ' ' '\n' < /proc/cmdline | sed -n "s/^ry\.$1=//p"
}

while read -r m; do
    insmod "/modules/$m.ko" 2> /tmp/insmod.log || say "module $m: $(cat /tmp/insmod.log)"
done < /modules/order

/sbin/ip link set lo up
guests=$(arg guests)
node=$(arg node)

# Several addresses of one subnet in one namespace: without these the kernel would answer for, or
# route through, the wrong one.
for f in accept_local:1 rp_filter:0 arp_ignore:1 arp_announce:2; do
    for where in all default; do
        echo "${f#*:}" > "/proc/sys/net/ipv4/conf/$where/${f%:*}"
    done
done
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6

port() { # name address: the rxe device of a port whose netdev exists
    /sbin/ip link set "$1" mtu 4500
    /sbin/ip addr add "$2/24" dev "$1"
    /sbin/ip link set "$1" up
    /sbin/rdma link add "rxe_$1" type rxe netdev "$1" || say "no rxe on $1"
}

if [ "$guests" = 2 ]; then
    if [ "$node" = 0 ]; then me=a last=1; else me=b last=2; fi
    for rail in 0 1; do
        mac=52:54:00:00:0$rail:0$last
        for d in /sys/class/net/*; do
            [ "$(cat "$d/address")" = "$mac" ] && /sbin/ip link set "${d##*/}" name "$me$rail"
        done
        port "$me$rail" "10.0.$rail.$last"
    done
else
    for rail in 0 1; do
        # no filtering of the bridge's own: it forwards and nothing else
        /sbin/ip link add "sw$rail" type bridge stp_state 0 forward_delay 0 mcast_snooping 0
        /sbin/ip link set "sw$rail" mtu 4500 up
        for me in a b; do
            /sbin/ip link add "$me$rail" type veth peer name "sw$me$rail"
            /sbin/ip link set "sw$me$rail" mtu 4500 master "sw$rail" up
        done
        port "a$rail" "10.0.$rail.1"
        port "b$rail" "10.0.$rail.2"
    done
fi

# A port is ready when its device says so and holds the RoCEv2 GID of its address.
devices() { # names of the devices, in one line
    for d in /sys/class/infiniband/rxe_*; do
        [ -e "$d" ] && printf '%s ' "${d##*/}"
    done
}
count() { devices | wc -w; }
ready() {
    for d in /sys/class/infiniband/rxe_*; do
        grep -q ACTIVE "$d/ports/1/state" || return 1
        grep -hq '0000:0000:0000:0000:0000:ffff' "$d"/ports/1/gids/* 2> /dev/null || return 1
    done
    [ "$(count)" -ge "$1" ]
}
if [ "$guests" = 2 ]; then want=2; else want=4; fi
i=0
until ready $want; do
    i=$((i + 1))
    if [ $i -gt 100 ]; then
        say "only $(count) of $want ports ready after 10 s"
        finish 125
    fi
    usleep 100000
done
# shellcheck disable=SC3045 # busybox has it
ulimit -l unlimited
export HOME=/ NODE="${node:-0}"
say "ready after $(cut -d' ' -f1 /proc/uptime) s: $(devices)"

stty -F /dev/ttyS1 raw 2> /dev/null
cd /app || finish 125
timeout "$(arg seconds)" sh /app/command < /dev/null > /dev/ttyS1 2>&1
rc=$?
say "command ended with $rc after $(cut -d' ' -f1 /proc/uptime) s"
finish $rc
