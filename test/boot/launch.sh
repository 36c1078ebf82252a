#!/bin/bash
# railyard run: what PEs see of each other, how they end, and what they say.
# shellcheck disable=SC1091,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

check "a job of four on two nodes" 0 "$R" run -n 4 --nodes 2 "$J" all
says 1 '^pe 0 of 4, node 0 of 2, local 0 of 2, near 4$'
says 1 '^pe 3 of 4, node 1 of 2, local 1 of 2, near 4$'
says 4 '^pe '
says 1 '^railyard: job [0-9a-f]{16}: 4 pes on 2 nodes$'

check "more PEs than a socket holds datagrams" 0 "$R" run -n 14 "$J" all
says 14 'near 14$'

check "a PE killed while the others wait" 137 "$R" run -n 4 "$J" die-starting 2
says 1 '^railyard: pe 2 was killed by signal 9 \(Killed\) while starting: the job is stopped$'
says 3 'RY_ERR_LAUNCH after less than 5 s: .*pe 2 was killed by signal 9'

check "a PE killed before it joins" 137 "$R" run -n 3 "$J" die-before 1
says 1 '^railyard: pe 1 was killed by signal 9 \(Killed\) while starting'
says 2 '^boot_job: RY_ERR_LAUNCH: .*pe 1 was killed by signal 9'

check "a PE killed later, the others go on" 0 "$R" run -n 4 --keep-going "$J" die-late 2
says 3 'goes on: .*pe 2 was killed by signal 9'

check "a PE killed later ends the job" 137 "$R" run -n 3 "$J" die-late 1
says 1 '^railyard: pe 1 was killed by signal 9 \(Killed\): the job is stopped$'

check "a replacement" 0 "$R" run -n 4 --nodes 2 --restarts 1 "$J" replace 2
says 1 '^pe 2 incarnation 1, node 1 of 2$'
says 3 'incarnation 0'

check "a wrong secret" 2 "$R" run -n 2 "$J" wrong-secret 1
says 1 '^boot_job: RY_ERR_AUTH: wrong job secret'
says 1 '^railyard: a process that wanted to join was refused: wrong job secret'

check "an oversized message" 0 "$R" run -n 1 "$J" oversize
says 1 'RYB1.*a message of 268435456 bytes came, at most 1024 are taken'
says 1 '^railyard: a process that wanted to join was refused: a message of 268435456 bytes'

check "a PE's own exit code" 7 "$R" run -n 3 "$J" fail 1
check "any program" 0 "$R" run -n 3 -- sh -c 'echo "hello from $RAILYARD_PE"'
says 3 '^hello from [012]$'
check "any program's exit code" 5 "$R" run -n 2 --quiet sh -c 'exit $((RAILYARD_PE * 5))'
says 0 '^railyard: job '
echo word >"$work/in"
check "input goes to PE 0" 0 "$R" run -n 2 sh -c 'read x; echo "$RAILYARD_PE:$x"; true' <"$work/in"
says 1 '^0:word$'
says 1 '^1:$'

# The same with the real thing: contexts of the command itself.
check "PEs that contradict each other" 2 "$R" run -n 2 sh -c \
    'export RAILYARD_CHANNELS=$((RAILYARD_PE + 2)); exec "$0" ep --hidden 256 --iters 1' "$R"
says 2 'pe 0 has RAILYARD_CHANNELS=2 but pe 1 has RAILYARD_CHANNELS=3: give both the same$'
check "a context that never comes" 137 "$R" run -n 3 sh -c \
    '[ "$RAILYARD_PE" = 1 ] && kill -9 $$; exec "$0" ep --hidden 256 --iters 1' "$R"
says 2 '^railyard ep: pe 1 was killed by signal 9 \(Killed\) while starting$'

check "no such program" 2 "$R" run -n 2 ./no-such-program
says 1 "^railyard run: cannot start './no-such-program': No such file or directory$"
check "no program" 2 "$R" run -n 2
says 1 '^railyard run: no program is given'
check "no number" 2 "$R" run true
check "a bad number" 2 "$R" run -n 0 true
says 1 "^railyard run: -n: '0' is no number from 1 to 4096$"
check "more nodes than PEs" 2 "$R" run -n 2 --nodes 3 true
check "an unknown flag" 2 "$R" run -n 2 --what true
check "help" 0 "$R" run --help
finish
