#!/bin/bash
# A PE that is stopped, not ended: its peers wait for as long as they may, and then go on without it
# or end and name it. Nobody waits for ever, whatever the stopped one does when it goes on.
# shellcheck disable=SC1091,SC2154,SC2016
. "$(dirname "$0")/lib.sh"

# The same few tokens for all, so that the exchange begins at once.
routing=$work/routing.jsonl
{
    echo '{"type": "meta", "top_k": 2}'
    for i in 0 1 2 3 4 5; do
        echo '{"type":"route","topk_ids":['"$i,$((i + 2))"'],"topk_weights":[0.5,0.5]}'
    done
} >"$routing"

# PE 2 is stopped for $1 seconds after two of its six.
pe='if [ "$RAILYARD_PE" = 2 ]; then
    (sleep 2; kill -STOP $$; sleep $1; kill -CONT $$) >/dev/null 2>&1 &
fi
exec "$0" ep --hidden 256 --tokens 8 --experts 8 --routing "$2" --duration 6s'
job() { # NAME EXIT NODES SECONDS
    check "$1" "$2" "$R" run -n 4 --nodes "$3" --keep-going sh -c "$pe" "$R" "$4" "$routing"
}
names_pe2() {
    grep -qE "$1" "$work/out" && return
    echo "FAIL no line says '$1'"
    sed 's/^/    /' "$work/out"
    failures=$((failures + 1))
}

export RAILYARD_START_TIMEOUT=5s RAILYARD_TIMEOUT=4s
job "stopped for less than RAILYARD_TIMEOUT" 0 2 1
says 0 'not answered|lost:'

export RAILYARD_TIMEOUT=1s
job "it shares memory: stopped for longer" 3 1 9
names_pe2 'pe 2 has not answered for [1-4]\.[0-9] s: is it stopped\?'

# Whoever meets it in the exchange masks it; whoever meets it elsewhere ends, and is masked.
job "it shares no memory: the others go on" 3 4 5
names_pe2 'pe 2 is lost|pe 2 has not answered'
names_pe2 'pe [0-3] is lost'
names_pe2 ' rows checked: 0 lost, 0 duplicated, 0 corrupted'
finish
