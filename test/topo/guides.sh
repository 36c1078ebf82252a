#!/usr/bin/env bash
# Each command in the two guides says what the guide shows. The comment before a block names what
# it runs on: a record, a planted fault, or this machine ("run"; "run-map" with a map that idles a
# port).
set -euo pipefail
source=${RY_TEST_SOURCE:?}
plant=${RY_TEST_BUILD:?}/test/test_fault
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/bin"
ln -s "${RY_TEST_BIN:?}" "$tmp/bin/railyard"
export PATH=$tmp/bin:$PATH
count=0
seen=" "

fail() {
    echo "$guide: $*"
    exit 1
}

# check KIND NAME COMMAND: the expected lines are in $tmp/want
check() {
    local command=$3 map=""
    rm -rf "$tmp/record" "$tmp/here"
    mkdir "$tmp/here"
    case $1 in
    fault)
        "$plant" "$source/test/topo/faults/$2.fault" --write "$tmp/record"
        [ ! -e "$tmp/record/facts/log" ] || cp "$tmp/record/facts/log" "$tmp/here/run.log"
        seen+="$2 "
        ;;
    record) cp -r "$source/test/records/$2" "$tmp/record" ;;
    run) ;;
    run-map) map=0:emu0:1 ;;
    *) fail "a block for '$1'" ;;
    esac
    if [ -e "$tmp/record" ]; then # the first words are "railyard COMMAND"
        command=$(sed -E "s,^(railyard [a-z]+),\1 --root $tmp/record," <<<"$command")
    fi
    (cd "$tmp/here" && RAILYARD_GPU_NIC_MAP=$map timeout 60 bash -c "$command") \
        >"$tmp/out" 2>"$tmp/err" || true
    # every shown line is printed, in the order shown
    awk 'NR == FNR { want[++n] = $0; next } at < n && $0 == want[at + 1] { at++ }
        END { if (at < n) { print "not printed: " want[at + 1]; exit 1 } }' \
        "$tmp/want" "$tmp/out" ||
        { cat "$tmp/out" "$tmp/err"; fail "'$3' prints something else"; }
    count=$((count + 1))
}

for guide in "$source"/doc/guide-*.md; do
    kind="" name="" inside=0 command=""
    while IFS= read -r line; do
        if [[ $line =~ ^'<!-- '([a-z-]+)' '?([a-z0-9-]*)' -->'$ ]]; then
            kind=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
        elif [ "$line" = '```' ] && [ "$inside" -eq 0 ]; then
            inside=1 command=""
            : >"$tmp/want"
            [ -n "$kind" ] || fail "a block that names no record"
        elif [ "$line" = '```' ]; then
            [ -s "$tmp/want" ] || fail "'$command' shows nothing"
            check "$kind" "$name" "$command"
            inside=0 kind=""
        elif [ "$inside" -eq 1 ] && [ -z "$command" ]; then
            [ "${line:0:2}" = '$ ' ] || fail "a block without a command"
            command=${line:2}
        elif [ "$inside" -eq 1 ]; then
            echo "$line" >>"$tmp/want"
        fi
    done <"$guide"
done

# every fault that doctor knows is in a guide
for file in "$source"/test/topo/faults/*.fault; do
    fault=$(basename "$file" .fault)
    [[ $seen = *" $fault "* ]] || { echo "no guide shows the fault $fault"; exit 1; }
done
echo "$count commands say what the guides show"
