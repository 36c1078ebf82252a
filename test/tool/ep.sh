#!/usr/bin/env bash
# railyard ep: every mode, type, handler and shape ends well, and says so in the promised form.
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/lib.sh"
small=(--pes 4 --tokens 24 --hidden 256 --experts 12 --topk 3 --iters 6)
good='j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == j["masked"] == 0'
rows='j["tokens_checked"] > 0 and j["iterations"] == 6 and j["error"] is None'

for mode in ll ht; do
    for dtype in bf16 fp8; do
        run "$mode $dtype" 0 "$R" ep "${small[@]}" --mode $mode --dtype $dtype --json - &&
            json ep "$work/out" "$good" "$rows" 'len(j["rails"]) == 8' \
                'all(r["bytes"] > 0 for r in j["rails"])' \
                'j["dispatch"]["gbps"] > 0' 'j["combine"]["us_p99"] >= j["combine"]["us_p50"]'
    done
done
for handler in gpu cpu cpu_host_memory; do
    run "handler $handler" 0 "$R" ep "${small[@]}" --handler $handler --json - &&
        json ep "$work/out" "$good" "$rows"
done
run "threads, 4 nodes" 0 "$R" ep "${small[@]}" --nodes 4 --pes-as threads --json - &&
    json ep "$work/out" "$good" "$rows" 'j["nodes"] == 4' \
        'j["dispatch"]["local_gbps"] < j["dispatch"]["rail_gbps"]'
run "rails that differ" 0 "$R" ep "${small[@]}" --rails 4,2 --mode ht --json - &&
    json ep "$work/out" "$good" "$rows" 'len(j["rails"]) == 12' \
        '{r["name"] for r in j["rails"]} == {"emu0:1", "emu0:2", "emu1:1", "emu1:2"}'
run "60 experts on 8 PEs" 0 "$R" ep --pes 8 --tokens 8 --hidden 128 --experts 60 --topk 4 \
    --iters 6 --json - && json ep "$work/out" "$good" "$rows"
run "one token" 0 "$R" ep "${small[@]}" --tokens 1 --json - && json ep "$work/out" "$good" "$rows"

# what each pair of PEs sends is spread over the rails, by their rates too, and a rail that is
# missing shows
export RAILYARD_PATH_TIMEOUT=10s # a busy machine must not look like a silent path
pairs=(--pes 4 --tokens 128 --hidden 1024 --experts 16 --topk 4 --iters 40)
spread='j["ok"] and 0 <= j["pair_balance"] <= 0.05'
parts='all(0.95 * b["bytes"][0] < b["bytes"][1] * BY < 1.05 * b["bytes"][0] for b in j["pairs"]
           if sum(b["bytes"]) > 1 << 20)'
for mode in ll ht; do
    run "$mode, bytes of each pair" 0 "$R" ep "${pairs[@]}" --nodes 4 --mode $mode --json - &&
        json ep "$work/out" "$spread" "${parts/BY/1}" 'len(j["pairs"]) == 12' \
            'all(sum(b["bytes"][k] for b in j["pairs"] if b["pe"] == p) <=
                 [r["bytes"] for r in j["rails"] if r["pe"] == p][k] * 1.01
                 for p in range(4) for k in range(2))'
done
run "bytes of each pair, rails of two rates" 0 "$R" ep "${pairs[@]}" --link-rate 300MB/s,150MB/s \
    --json - && json ep "$work/out" "$spread" "${parts/BY/2}"
run "bytes of each pair, rails that differ" 0 "$R" ep "${pairs[@]}" --rails 4,2 --json - &&
    json ep "$work/out" "$spread" 'any(len(b["bytes"]) == 4 for b in j["pairs"])'
run "bytes of each pair, a rail gone" 0 "$R" ep "${pairs[@]}" --fault 'port-down@iter2:pe1/rail0' \
    --json - && json ep "$work/out" 'j["ok"] and j["pair_balance"] > 0.5'
unset RAILYARD_PATH_TIMEOUT

# a recording whose tokens all go to one expert, and some to none
{
    echo '{"type":"meta","top_k":2}'
    for _ in 0 1 2 3 4 5 6; do
        echo '{"type":"route","topk_ids":[3,-1],"topk_weights":[0.75,0.0]}'
    done
    echo '{"type":"route","topk_ids":[-1,-1],"topk_weights":[0.0,0.0]}'
} >"$work/one.jsonl"
for mode in ll ht; do
    run "$mode, all tokens to one expert" 0 "$R" ep --pes 4 --tokens 8 --hidden 64 --experts 8 \
        --iters 6 --routing "$work/one.jsonl" --mode $mode --json - &&
        json ep "$work/out" "$good" "$rows"
done

# text, files, a run by time
run "text" 0 "$R" ep "${small[@]}" --duration 500ms --json "$work/ep.json" --svg "$work/ep.svg" && {
    json ep "$work/ep.json" "$good" 'j["step"]["us_worst"] >= j["step"]["us_p99"] > 0' \
        'all(p["rss_last_bytes"] >= p["rss_half_bytes"] * 0.9 > 0 and p["descriptors_last"] > 0
             and p["threads_last"] > 0 for p in j["step"]["pes"])'
    python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$work/ep.svg" ||
        failed "the picture is no XML"
    grep -q '^dispatch ' "$work/out" || failed "no line of dispatch"
    grep -q ' 0 lost, 0 duplicated, 0 corrupted' "$work/out" || failed "no line of the check"
    grep -q '^step ' "$work/out" || failed "no line of steps"
    [ "$(tail -n 1 "$work/out")" = ok ] || failed "the last line is not ok"
}
grep -qE '^railyard: job [0-9a-f]{16}: 4 pes on 2 nodes$' "$work/err" || failed "no job id"

# a PE dies: the others finish, and only its share is missing
for mode in ll ht; do
    for when in iter20 op150; do
        run "$mode, a PE is killed at $when" 0 "$R" ep "${small[@]}" --iters 60 --mode $mode \
            --fault "kill@$when:pe2" --json - &&
            json ep "$work/out" 'j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0' \
                'j["masked"] > 0 and j["iterations"] == 60'
    done
done

for mode in ll ht; do
    run "$mode, a killed PE is replaced" 0 "$R" ep "${small[@]}" --duration 4s --mode $mode \
        --fault 'kill@iter20:pe2:return=300ms' --json - &&
        json ep "$work/out" 'j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0' \
            'j["masked"] > 0 and j["replaced_pes"] == 1 and j["lost_pes"] == 0'
    run "$mode, a killed node is replaced" 0 "$R" ep "${small[@]}" --duration 4s --mode $mode \
        --fault 'kill@iter20:pe2:return=100ms;kill@iter20:pe3:return=400ms' --json - &&
        json ep "$work/out" 'j["ok"] and j["lost"] == j["duplicated"] == j["corrupted"] == 0' \
            'j["masked"] > 0 and j["replaced_pes"] == 2 and j["lost_pes"] == 0'
done

# a job that is started by railyard run: PE 0 prints what all did
run "under a launcher" 0 "$R" run -n 3 "$R" ep --tokens 8 --hidden 64 --experts 6 --topk 2 \
    --iters 6 --json "$work/run.json" && json ep "$work/run.json" "$good" "$rows" 'j["pes"] == 3'
run "under a launcher, its flags" 2 "$R" run -n 2 "$R" ep --pes 2
done_testing
