#!/usr/bin/env python3
"""The flags of one random run of `railyard ep`, one word a line; the seed alone decides. With
SECONDS: only a plan of faults for so long, one every few seconds, for 8 PEs with 2 rails. With
kills: PEs are killed too, and all of them come back.

usage: random_fault.py SEED [SECONDS | kills]
"""
import random
import sys

KINDS = ["port-down", "flap", "stall", "drop", "ack-drop", "delay", "ghost", "cqe-error",
         "qp-error", "nic-down", "slow", "gid-change"]


EVENTS_MAX = 250  # the library takes 256


def main():
    r = random.Random(int(sys.argv[1]))
    extra = sys.argv[2] if len(sys.argv) > 2 else "0"
    seconds = int(extra) if extra != "kills" else 0
    pes, rails = r.choice([2, 4, 6]), r.choice([2, 2, 3, 4])
    if extra == "kills":
        pes = r.choice([4, 6, 8])
    if seconds:
        pes, rails = 8, 2

    def ms(least, most):
        return f"{r.randint(least, most)}ms"

    def part():
        return f"p={r.choice([.001, .01, .1])}"

    def event():
        kind = r.choice(KINDS)
        when = r.choice([ms(0, 400), f"op{r.randint(1, 2000)}", f"iter{r.randint(0, 50)}"])
        if seconds:
            when = ms(500, 1000 * seconds - 1000)
        rail = f"rail{r.randrange(rails)}"
        target = r.choice([f"pe{r.randrange(pes)}/{rail}"] * 3 + [rail])
        keys = {
            "port-down": f"for={ms(20, 300)}",
            "flap": f"count={r.randint(2, 6)},period={ms(20, 120)}",
            "stall": f"for={ms(60, 300)}",
            "drop": f"{part()},for={ms(50, 300)}",
            "ack-drop": f"{part()},for={ms(50, 300)}",
            "delay": f"us={r.randint(10, 3000)},jitter={r.randint(0, 2000)},for={ms(50, 300)}",
            "ghost": f"us={r.randint(100, 20000)},for={ms(50, 300)}",
            "nic-down": f"for={ms(50, 400)}",
            "slow": f"factor={r.randint(2, 30)},for={ms(50, 300)}",
        }
        return f"{kind}@{when}:{target}" + (":" + keys[kind] if kind in keys else "")

    if seconds:
        print(";".join(event() for _ in range(min(EVENTS_MAX, seconds // 2))))
        return
    spec = ";".join(event() for _ in range(r.randint(1, 5)))
    if extra == "kills":
        dead = r.sample(range(pes), r.randint(1, pes // 2))
        together = r.choice([True, False])
        at = r.randint(1, 60)
        for pe in dead:
            at = at if together else r.randint(1, 60)
            spec += f";kill@iter{at}:pe{pe}:return={ms(50, 400)}"
    words = ["--pes", str(pes), "--rails", str(rails), "--mode", r.choice(["ll", "ht"]),
             "--dtype", r.choice(["bf16", "fp8"]),
             "--handler", r.choice(["gpu", "cpu", "cpu_host_memory"]),
             "--p2p", r.choice(["on", "off"]), "--nodes", "2", "--fault", spec]
    print("\n".join(words))


main()
