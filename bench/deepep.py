#!/usr/bin/env python3
"""Railyard's dispatch and combine beside DeepEP's, on two GPUs over NVLink, in one run.

usage: bench/deepep.py FOLDER [REPLAYS]

FOLDER is a checkout of DeepEP V1 with its extension built in it (python3 setup.py build_ext
--inplace, with NVSHMEM; nothing of it is part of this project). build-gpu must be built
(./run bench-gpu builds it). Both are timed the same way, by turns, twice:

  events    a graph of 16 dispatches and combines with an event around each; median of the slower PE
  in a row  the same graph without events inside: a dispatch and its combine
  kernel    the kernels' own durations, by PyTorch's profiler; median of the slower PE

The high-throughput part takes DeepEP's figures from its own tests/test_intranode.py (best of its
tuning, 24 SMs, events around each call). A ratio is railyard's time by DeepEP's of the same turn,
the worse of the two turns. Exit 1 where one is above its bound, 77 without two GPUs.
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
TOKENS, HIDDEN, TOPK, EXPERTS, PES, ROUNDS = 128, 7168, 8, 288, 2, 16
BOUNDS = {"dispatch": 0.8, "combine": 0.8, "in a row": 0.8}


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def kernel_times(prof, names):
    """{name: {device: [us]}} of all kernels whose name holds one of `names`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        prof.export_chrome_trace(f.name)
        events = json.loads(Path(f.name).read_text())["traceEvents"]
    found = {name: {} for name in names}
    for e in events:
        for name in names:
            if e.get("cat") == "kernel" and re.search(names[name], e["name"]):
                found[name].setdefault(e["args"]["device"], []).append(e["dur"])
    return found


def deepep_graph(torch, call, marks):
    """A graph of ROUNDS pairs of calls and its events."""
    events = [[torch.cuda.Event(enable_timing=True, external=True) for _ in range(3)]
              for _ in range(ROUNDS)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(ROUNDS):
            if marks or i == 2:
                events[i][0].record()
            handle = call[0]()
            if marks:
                events[i][1].record()
            call[1](handle)
            if marks or i == ROUNDS - 1:
                events[i][2].record()
    return graph, events


def deepep_pe(rank, folder, replays, port, result):
    """One PE of DeepEP's low-latency calls."""
    sys.path[:0] = [folder, folder + "/tests"]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist
    import deep_ep
    from utils import init_dist  # DeepEP's

    _, _, group = init_dist(rank, PES)
    size = deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, PES, EXPERTS)
    buffer = deep_ep.Buffer(group, num_rdma_bytes=size, low_latency_mode=True,
                            num_qps_per_rank=EXPERTS // PES, explicitly_destroy=True)
    torch.manual_seed(rank)
    x = torch.randn((TOKENS, HIDDEN), dtype=torch.bfloat16, device="cuda") * 0.1
    scores = torch.randn((TOKENS, EXPERTS), dtype=torch.float32, device="cuda")
    ids = torch.topk(scores, TOPK, dim=-1)[1].to(deep_ep.topk_idx_t)
    weights = torch.rand((TOKENS, TOPK), dtype=torch.float32, device="cuda")
    y = torch.randn((EXPERTS // PES, PES * TOKENS, HIDDEN), dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(x)

    def dispatch():
        return buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=True)[2]

    def combine(handle):
        buffer.low_latency_combine(y, ids, weights, handle, out=out)

    for _ in range(10):
        combine(dispatch())
    torch.cuda.synchronize()
    graph, events = deepep_graph(torch, (dispatch, combine), True)
    row, row_events = deepep_graph(torch, (dispatch, combine), False)
    times = {"dispatch": [], "combine": [], "in a row": []}

    def replay(g):
        dist.barrier(group)
        torch.cuda.synchronize()
        g.replay()
        torch.cuda.synchronize()

    for r in range(replays + 2):
        replay(graph)
        for e in events[2:] if r >= 2 else ():
            times["dispatch"].append(e[0].elapsed_time(e[1]) * 1e3)
            times["combine"].append(e[1].elapsed_time(e[2]) * 1e3)
        replay(row)
        if r >= 2:
            us = row_events[2][0].elapsed_time(row_events[-1][2]) * 1e3
            times["in a row"].append(us / (ROUNDS - 2))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        for _ in range(5):
            replay(graph)
    kernels = kernel_times(prof, {"dispatch": "internode_ll::dispatch",
                                  "combine": "internode_ll::combine"})
    mine = {name: median([t for d in kernels[name].values() for t in d]) for name in kernels}
    both = [None] * PES
    dist.all_gather_object(both, (times, mine), group)
    if rank == 0:
        slower = {name: median([max(t) for t in zip(*(b[0][name] for b in both))])
                  for name in times}
        slower.update({"kernel " + name: max(b[1][name] for b in both) for name in mine})
        Path(result).write_text(json.dumps(slower))
    buffer.destroy()
    dist.barrier()
    dist.destroy_process_group()


def deepep_ll(folder, replays, turn):
    import torch

    with tempfile.TemporaryDirectory() as t:
        result = t + "/result.json"
        torch.multiprocessing.spawn(deepep_pe, nprocs=PES,
                                    args=(folder, replays, 8400 + turn, result))
        return json.loads(Path(result).read_text())


def table(text):
    """{(call, rows, SMs): p50} of a table of bench_gpu_ep."""
    found = {}
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("| ").split("|")]
        if len(cells) >= 5 and cells[0] in ("ll", "ht") and re.fullmatch(r"[\d.]+", cells[4]):
            found[cells[1], cells[2], int(cells[3])] = float(cells[4])
    return found


def railyard(build, *args):
    done = subprocess.run([build / "bench_gpu_ep", *args], capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        sys.exit(done.returncode)
    return table(done.stdout)


def railyard_kernels(build):
    """In a process of its own: prints the kernels' durations as JSON on the last line."""
    import torch

    torch.cuda.init()
    library = ctypes.CDLL(str(build / "libbench_gpu_beside.so"))
    argv = (ctypes.c_char_p * 4)(b"bench_gpu_ep", b"5", b"ll", None)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        library.main(3, argv)
    found = kernel_times(prof, {"dispatch": "ry_ll_dispatch", "combine": "ry_ll_combine"})
    print()
    print(json.dumps({"kernel " + name: max(median(t) for t in found[name].values())
                      for name in found}), flush=True)
    os._exit(0)  # two CUDA runtimes in one process do not always leave it in peace


def railyard_ll(build, replays):
    t = railyard(build, str(replays), "ll")
    us = {"dispatch": t["dispatch", "fp8 f32", 132], "combine": t["combine", "bf16", 132],
          "in a row": t["both, in a row", "", 132]}
    done = subprocess.run([sys.executable, __file__, "--kernels"], capture_output=True, text=True)
    if done.returncode == 0:
        us.update(json.loads(done.stdout.splitlines()[-1]))
    else:
        print(f"kernels: exit {done.returncode}", done.stdout, done.stderr, file=sys.stderr)
    return us


def deepep_ht(folder):
    env = dict(os.environ, PYTHONPATH=folder + ":" + os.environ.get("PYTHONPATH", ""))
    done = subprocess.run([sys.executable, folder + "/tests/test_intranode.py", "--num-processes",
                           str(PES)], capture_output=True, text=True, env=env)
    found = re.findall(r"Best (\w+)(?: \((\w+)\))?:.* t: ([\d.]+) us", done.stdout)
    if len(found) != 3:
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
    return {" ".join(w for w in f[:2] if w).lower(): float(f[2]) for f in found}


def show(what, mine, others, bound):
    ratio = max(m / o for m, o in zip(mine, others))
    holds = bound is None or ratio <= bound
    says = "" if bound is None else f" (at most {bound:.3f}: {'holds' if holds else 'MISSED'})"
    text = [" ".join(f"{t:.1f}" for t in times) for times in (mine, others)]
    print(f"{what}: railyard {text[0]} us, DeepEP {text[1]} us, ratio {ratio:.3f}{says}")
    return not holds


def main():
    build = TOP / "build-gpu"
    if sys.argv[1:] == ["--kernels"]:
        railyard_kernels(build)
        return 0
    if len(sys.argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    import torch

    if torch.cuda.device_count() < PES:
        print("skipped: two GPUs are needed")
        return 77
    folder, replays = str(Path(sys.argv[1]).resolve()), int((sys.argv + ["50"])[2])
    os.environ.update(NVSHMEM_REMOTE_TRANSPORT="none", NVSHMEM_DISABLE_NVLS="1",
                      NCCL_NVLS_ENABLE="0")
    mine, others, missed = [], [], 0
    for turn in range(2):
        mine.append(railyard_ll(build, replays))
        others.append(deepep_ll(folder, replays, turn))
    for what in ("dispatch", "combine", "in a row", "kernel dispatch", "kernel combine"):
        times = [[t[what] for t in side if what in t] for side in (mine, others)]
        if times[0] and times[1]:
            missed += show("ll " + what, *times,
                           BOUNDS.get(what.replace("kernel ", "")))
    t, d = railyard(build, str(replays), "ht"), deepep_ht(folder)
    for call, rows, name in (("dispatch", "fp8 f32", "dispatch fp8"),
                             ("dispatch", "bf16", "dispatch bf16"), ("combine", "bf16", "combine")):
        for sms, bound in ((24, 1 / 1.5), (12, 1 / 1.2)):
            if name in d:
                missed += show(f"ht {name}, {sms} SMs against 24", [t[call, rows, sms]], [d[name]],
                               bound)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
