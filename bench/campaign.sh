#!/usr/bin/env bash
# Consecutive runs with random fault schedules; each is made of its seed alone, which is printed.
# usage: bench/campaign.sh [RUNS] [FIRST-SEED]     RAILYARD_BIN chooses a sanitized build
# shellcheck source=/dev/null disable=SC2154,SC2034
. "$(dirname "$0")/lib.sh"
runs=${1:-20}
first=${2:-1}
wrong=0
for ((seed = first; seed < first + runs; seed++)); do
    mapfile -t words < <(python3 - "$seed" <<'END'
import random, sys
r = random.Random(int(sys.argv[1]))
pes, rails = r.choice([2, 4, 6]), r.choice([2, 2, 3, 4])
ms = lambda a, b: f"{r.randint(a, b)}ms"
def event():
    kind = r.choice(["port-down", "flap", "stall", "drop", "ack-drop", "delay", "ghost", "cqe-error",
                     "qp-error", "nic-down", "slow", "gid-change"])
    when = r.choice([ms(0, 400), f"op{r.randint(1, 2000)}", f"iter{r.randint(0, 50)}"])
    target = r.choice([f"pe{r.randrange(pes)}/rail{r.randrange(rails)}"] * 3 +
                      [f"rail{r.randrange(rails)}"])
    keys = {"port-down": f"for={ms(20, 300)}", "flap": f"count={r.randint(2, 6)},period={ms(20, 120)}",
            "stall": f"for={ms(60, 300)}", "drop": f"p={r.choice([.001, .01, .1])},for={ms(50, 300)}",
            "ack-drop": f"p={r.choice([.001, .01, .1])},for={ms(50, 300)}",
            "delay": f"us={r.randint(10, 3000)},jitter={r.randint(0, 2000)},for={ms(50, 300)}",
            "ghost": f"us={r.randint(100, 20000)},for={ms(50, 300)}",
            "nic-down": f"for={ms(50, 400)}", "slow": f"factor={r.randint(2, 30)},for={ms(50, 300)}"}
    return f"{kind}@{when}:{target}" + (":" + keys[kind] if kind in keys else "")
spec = ";".join(event() for _ in range(r.randint(1, 5)))
print("\n".join(["--pes", str(pes), "--rails", str(rails), "--mode", r.choice(["ll", "ht"]), "--dtype",
                 r.choice(["bf16", "fp8"]), "--handler", r.choice(["gpu", "cpu", "cpu_host_memory"]),
                 "--p2p", r.choice(["on", "off"]), "--nodes", "2", "--fault", spec]))
END
)
    rc=0
    timeout 60 "$bin" ep --tokens 24 --hidden 256 --iters 60 --experts 24 --topk 4 --seed "$seed" \
        "${words[@]}" >"$work/out" 2>"$work/err" </dev/null || rc=$?
    [ "$rc" -eq 0 ] && continue
    wrong=$((wrong + 1))
    [ "$rc" -eq 124 ] && echo "seed $seed hangs" || echo "seed $seed: exit $rc"
    printf '  %s ep --tokens 24 --hidden 256 --iters 60 --experts 24 --topk 4 --seed %s' "$bin" "$seed"
    printf ' %q' "${words[@]}"
    echo
    grep -h 'lost,' "$work/out"
    tail -n 2 "$work/err"
done
claim "seeds $first to $((first + runs - 1)): runs that were wrong or hung" "$wrong" '==' 0
done_with_claims
