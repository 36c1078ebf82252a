#!/usr/bin/env python3
"""Reads JSON of `railyard ep`, `perf` or `status` and holds it against what is promised.

usage: check_json.py KIND FILE [EXPRESSION...]: each expression, over j, must be true.
"""
import json
import sys

PHASE = {"us_p50": float, "us_p99": float, "gbps": float, "rail_gbps": float, "local_gbps": float}
FAULT = {"kind": str, "pe": int, "rail": int, "at_us": float, "detect_us": float,
         "switch_us": float, "failback_us": float, "replayed": int}
KEYS = {
    "ep": {"ok": bool, "tokens_checked": int, "lost": int, "duplicated": int, "corrupted": int,
           "masked": int, "dispatch": PHASE, "combine": PHASE,
           "rails": [{"pe": int, "name": str, "bytes": int}],
           "pairs": [{"pe": int, "peer": int, "bytes": [int]}], "pair_balance": float,
           "faults": [FAULT]},
    "perf": {"ok": bool, "rows": [{"bytes": int, "iters": int, "us_p50": float, "us_p99": float,
                                   "gbps": float, "memcpy_gbps": float, "rail_gbps": [float],
                                   "wrong": int}],
             "faults": [FAULT]},
    "status": {"job": str, "pes": [{"pe": int, "node": int,
                                    "rails": [{"rail": int, "name": str, "state": str,
                                               "tx_bytes": int, "rx_bytes": int}],
                                    "sent": [{"peer": int, "bytes": [int]}],
                                    "paths": [{"peer": int, "channel": int, "rail": int,
                                               "peer_rail": int, "state": str, "use": str,
                                               "epoch": int, "moves": int, "replayed": int}]}]},
}


def hold(where, form, value):
    if isinstance(form, dict):
        if not isinstance(value, dict):
            sys.exit(f"{where} is no object")
        for key, inner in form.items():
            if key not in value:
                sys.exit(f"{where} has no key {key}")
            hold(f"{where}.{key}", inner, value[key])
    elif isinstance(form, list):
        for i, item in enumerate(value):
            hold(f"{where}[{i}]", form[0], item)
    elif type(value) is not form:
        sys.exit(f"{where} is {value!r}, not of type {form.__name__}")


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        j = json.load(file)
    hold(sys.argv[1], KEYS[sys.argv[1]], j)
    for expression in sys.argv[3:]:
        if not eval(expression, {"j": j}):
            sys.exit(f"not true: {expression}\n{json.dumps(j)[:3000]}")


main()
