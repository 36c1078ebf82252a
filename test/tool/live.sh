#!/usr/bin/env bash
# status, fault, drain and undrain on a running job, which ends well.
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/lib.sh"
"$R" ep --pes 4 --tokens 16 --hidden 256 --duration 9s --json "$work/ep.json" \
    >"$work/ep.out" 2>"$work/ep.err" </dev/null &
job_pid=$!
job=
for _ in $(seq 100); do
    job=$(sed -n 's/^railyard: job \([0-9a-f]*\): .*/\1/p' "$work/ep.err")
    [ -n "$job" ] && "$R" status --job "$job" --json - 2>/dev/null | grep -q '"pe": 3' && break
    sleep 0.1
done
run "status" 0 "$R" status --job "$job" --json "$work/s.json" &&
    json status "$work/s.json" 'len(j["pes"]) == 4' 'all(len(p["rails"]) == 2 for p in j["pes"])' \
        'all(s["peer"] != p["pe"] and len(s["bytes"]) == 2 for p in j["pes"] for s in p["sent"])' \
        'all(sum(x["use"] == "active" for x in p["paths"]) == 6 for p in j["pes"])'
grep -q "^job $job: 4 of 4 PEs on this machine" "$work/out" || failed "no head of the table"
run "metrics" 0 "$R" status --job "$job" --metrics
[ "$(tail -n 1 "$work/out")" = "# EOF" ] || failed "metrics have no end"
[ "$(grep -c '^railyard_rail_up{' "$work/out")" -eq 8 ] || failed "not 8 rails in the metrics"

run "drain" 0 "$R" drain --job "$job" pe0/rail1
away='not any(x["use"] == "active" and x["rail"] == 1 for x in j["pes"][0]["paths"])'
towards='not any(x["use"] == "active" and x["peer"] == 0 and x["peer_rail"] == 1
                 for p in j["pes"][1:] for x in p["paths"])'
sleep 1.5
run "status, drained" 0 "$R" status --job "$job" --json - &&
    json status "$work/out" "$away" "$towards" \
        'j["pes"][0]["rails"][1]["state"] == "drained"'
run "metrics, later" 0 "$R" status --job "$job" --metrics
grep -q '^railyard_pair_sent_bytes_total{job="[0-9a-f]*",pe="0",peer="2",rail="1"} [1-9]' \
    "$work/out" || failed "no bytes of the pair pe0, pe2 in the metrics"
run "a port that is not there" 2 "$R" fault --job "$job" 'port-down@0:pe3/rail9'
run "undrain" 0 "$R" undrain --job "$job" pe0/rail1
run "fault" 0 "$R" fault --job "$job" 'port-down@0:pe2/rail0:for=200ms'
run "a PE is killed" 0 "$R" fault --job "$job" 'kill@0:pe3'
run "no such rail" 2 "$R" drain --job "$job" pe0/rail5
run "no such PE" 2 "$R" drain --job "$job" pe7/rail0
wait "$job_pid" || failed "the job ended with $?"
cat "$work/ep.err"
json ep "$work/ep.json" 'j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0' \
    'j["masked"] > 0' \
    '[(f["kind"], f["pe"], f["rail"]) for f in j["faults"]] == [("port-down", 2, 0)]' \
    'j["faults"][0]["detect_us"] >= 0'
done_testing
