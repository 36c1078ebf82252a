#!/bin/sh
# pair.sh: runs in the guest, or in both of two; ib_write_bw moves data from b to a on each rail.
guests=$(tr ' ' '\n' < /proc/cmdline | sed -n 's/^ry\.guests=//p')

server() { ib_write_bw -d "rxe_a$1" -x 1 -s 65536 -n 300 -p "1851$1"; }
client() { # the server may not be there yet
    n=0
    until ib_write_bw -d "rxe_b$1" -x 1 -s 65536 -n 300 -p "1851$1" "10.0.$1.1"; do
        n=$((n + 1))
        [ $n -lt 10 ] || exit 1
        sleep 1
    done
}

for rail in 0 1; do
    if [ "$guests" = 1 ]; then
        server $rail > /tmp/server 2>&1 &
        client $rail
        wait $! || { cat /tmp/server; exit 1; }
    elif [ "$NODE" = 0 ]; then
        server $rail || exit 1
    else
        client $rail
    fi
done
