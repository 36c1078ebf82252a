#!/bin/bash
# torchrun's variables: PE 0 is the meeting point; hosts are told apart by RAILYARD_HOST_ID here, so
# that datagrams between "hosts" go by UDP and descriptors do not go at all.
# shellcheck disable=SC1091,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

pes=$(dirname "$0")/pes.sh
# A number of ports nobody else is likely to use: ours begin at one that depends on our process.
port=$((20000 + $$ % 20000))

check "one host" 0 "$pes" 4 $port 1 "$J" all
says 4 'node 0 of 1, local . of 4, near 4$'
check "two hosts" 0 "$pes" 4 $((port + 20)) 2 "$J" all
says 2 'node 1 of 2, local . of 2, near 2$'
check "a PE that dies while starting" 3 "$pes" 3 $((port + 40)) 1 "$J" die-starting 1
says 2 'RY_ERR_LAUNCH after less than 5 s: .*pe 1 lost its connection while starting'
check "a PE that dies later" 137 "$pes" 3 $((port + 60)) 1 "$J" die-late 1
says 2 'goes on: .*pe (1 lost its connection|0, the meeting point, has ended)'
check "the meeting point dies later" 0 "$pes" 3 $((port + 80)) 1 sh -c "'$J' die-late 0; rc=\$?; \
    [ \$RANK = 0 ] || exit \$rc"
says 2 'goes on: .*pe 0, the meeting point, has ended'

export RAILYARD_SECRET=sesame
check "a wrong secret" 2 "$pes" 2 $((port + 100)) 1 sh -c "[ \$RANK = 0 ] || \
    export RAILYARD_SECRET=x; exec timeout 3 '$J' all"
says 1 '^boot_job: RY_ERR_AUTH: wrong job secret'
unset RAILYARD_SECRET

check "two processes with one number" 0 "$pes" 2 $((port + 120)) 1 sh -c "export RANK=0; \
    timeout 3 '$J' all; true"
says 1 '^boot_job: RY_ERR_EXISTS: pe 0 is there already: two processes have the same number'
check "a rank beyond the size" 2 "$pes" 2 $((port + 140)) 1 sh -c "RANK=7 exec '$J' all"
says 2 "^boot_job: RY_ERR_CONFIG: RANK: '7' is no number from 0 to 1$"
python3 -c "import socket, time
s = socket.socket()
s.bind(('127.0.0.1', $((port + 160))))
s.listen(9)
time.sleep(30)" &
holder=$!
sleep 0.5
check "a port that is taken is passed over" 0 "$pes" 2 $((port + 160)) 1 "$J" all
kill $holder
says 2 'near 2$'
finish
