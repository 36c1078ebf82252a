"""coverage.py TREE SOURCE PROFDATA [--list]: line and branch coverage of core/ and the agent.

A function of a header has a copy in every program that includes it, and the simulator compiles the
host once more: a line or a branch counts as met when it was met in any copy. llvm-cov's own totals
take the best copy instead, and of two programs that have a function of one name it reads one only,
so each program is read by itself here and the copies are joined by their place in the source.

What a mutant would do (RY_MUT) is not the product's code and is left out; so are assertions.
Exit: 0, 1 below the bounds, 2 llvm-cov failed.
"""

import collections
import json
import os
import re
import subprocess
import sys

LINES, BRANCHES = 95.0, 85.0

# The code that is measured: all of core/, and the agent's files of host/.
ROOMS = ("src/core/",)
AGENT = ("agent", "slot")

MUTANT = re.compile(r"(?<!!)\bRY_MUT\b")
LEFT_OUT = re.compile(r"\b(RY_MUT|assert)\b")


def measured(name):
    if name.startswith(ROOMS):
        return True
    base = os.path.basename(name)
    return os.path.dirname(name) == "src/host" and re.split(r"[._]", base)[0] in AGENT


class Source:
    """Text of a file by (line, column), both from 1."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        self.begin = [0]
        for line in self.text.splitlines(keepends=True):
            self.begin.append(self.begin[-1] + len(line))

    def at(self, line, column):
        return self.begin[line - 1] + column - 1

    def cut(self, span):
        return self.text[self.at(span[0], span[1]):self.at(span[2], span[3])]

    def condition_before(self, line, column):
        """The condition under which what begins here runs, as far as it stands just before."""
        before = self.text[max(0, self.at(line, column) - 600):self.at(line, column)].rstrip()
        stop, depth, outside = len(before), 0, 0
        if before.endswith(")"):
            depth, stop = 1, len(before) - 1
        elif before.endswith("{") and before[:-1].rstrip().endswith(")"):
            before = before[:-1].rstrip()
            depth, stop = 1, len(before) - 1
        elif before.endswith("&&"):
            outside = -1
        else:
            return ""
        for i in range(stop - 1, -1, -1):
            depth += (before[i] == ")") - (before[i] == "(")
            if before[i] == "(" and depth == outside:
                return before[i + 1:stop]
        return ""


def of_mutant(source, line, column):
    condition = source.condition_before(line, column)
    return bool(MUTANT.search(condition)) and "||" not in condition


class Cover:
    def __init__(self, root):
        self.root = root
        self.sources = {}
        self.lines = collections.defaultdict(dict)  # file -> line -> count
        self.branches = collections.defaultdict(dict)  # file -> place -> [true, false]
        self.skipped = collections.defaultdict(set)  # file -> blank, comment, other #if
        self.dead = collections.defaultdict(set)  # file -> spans that only a mutant enters

    def source(self, name):
        if name not in self.sources:
            self.sources[name] = Source(os.path.join(self.root, name))
        return self.sources[name]

    def name(self, path):
        return os.path.relpath(path, self.root)

    def add_function(self, f):
        names = [self.name(n) for n in f["filenames"]]
        if not any(measured(n) for n in names):
            return
        parent = {r[6]: (r[5], tuple(r[:4])) for r in f["regions"] if r[7] == 1}

        def place(fid, span):
            """Root file, the span there, and all spans on the way down from it."""
            way = [span]
            while fid in parent:
                fid, outer = parent[fid]
                way.append(outer)
            return names[fid], way[-1], tuple(way)

        for r in f["regions"]:
            root, outer, _ = place(r[5], tuple(r[:4]))
            if r[7] == 0 and r[4] == 0 and measured(root):
                if of_mutant(self.source(root), outer[0], outer[1]):
                    self.dead[root].add(outer)
        for b in f["branches"]:
            root, outer, way = place(b[6], tuple(b[:4]))
            if not measured(root) or LEFT_OUT.search(self.source(root).cut(outer)):
                continue
            met = self.branches[root].setdefault(way, [0, 0])
            met[0] += b[4]
            met[1] += b[5]

    def add_file(self, f):
        """Lines of a file from its segments, as llvm-cov counts them."""
        name = self.name(f["filename"])
        if not measured(name):
            return
        lines, segments = self.lines[name], f["segments"]
        starts = collections.defaultdict(list)
        for s in segments:
            starts[s[0]].append(s)
        wrapped, last = None, segments[-1][0] if segments else 0
        for n in range(segments[0][0] if segments else 1, last + 1):
            here = starts.get(n, [])
            entries = [s for s in here if s[3] and s[4] and not s[5]]
            mapped = (wrapped is not None and wrapped[3]) or bool(entries)
            if here and not here[0][3] and here[0][4]:
                mapped = False
            if mapped:
                count = max([s[2] for s in entries], default=0)
                if wrapped is not None and wrapped[3]:
                    count = max(count, wrapped[2])
                lines[n] = lines.get(n, 0) + count
            elif (here and not here[0][3] and here[0][4]) or \
                    (wrapped is not None and not wrapped[3] and wrapped[4]):
                self.skipped[name].add(n)
            if here:
                wrapped = here[-1]

    def finish(self):
        for name, branches in self.branches.items():  # right of RY_MUT(...) &&
            source = self.source(name)
            for way in [w for w, c in branches.items() if c == [0, 0]]:
                if of_mutant(source, way[-1][0], way[-1][1]):
                    del branches[way]
        # a copy that no code calls has its whole body as one region, also what is no code
        for name, lines in self.skipped.items():
            for n in lines:
                if self.lines[name].get(n) == 0:
                    del self.lines[name][n]
        for name, spans in self.dead.items():
            # dead in one copy and alive in another is alive
            for a in spans:
                for n in range(a[0], a[2] + 1):
                    if self.lines[name].get(n) == 0:
                        del self.lines[name][n]
                for way in [w for w, c in self.branches[name].items() if c == [0, 0]]:
                    if a[:2] <= way[-1][:2] and way[-1][2:] <= a[2:]:
                        del self.branches[name][way]


def programs(tree):
    """What ctest runs, and the simulator: a tree may hold programs of an earlier time besides."""
    done = subprocess.run(["ctest", "--test-dir", tree, "--show-only=json-v1"],
                          capture_output=True, check=True)
    found = {os.path.join(tree, "bin", "railyard-sim")}
    for test in json.loads(done.stdout)["tests"]:
        full = test.get("command", [""])[0]
        if os.path.dirname(full) in (os.path.join(tree, "test"), os.path.join(tree, "fuzz")):
            found.add(full)
    return sorted(found)


def read(cover, program, profdata):
    command = [os.environ.get("LLVM_COV", "llvm-cov"), "export", "--format=text",
               "--instr-profile=" + profdata, program]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        print(f"coverage: {program}: {done.stderr.decode()}", file=sys.stderr)
        sys.exit(2)
    data = json.loads(done.stdout)["data"][0]
    for f in data["functions"]:
        cover.add_function(f)
    for f in data["files"]:
        cover.add_file(f)


def share(met, of):
    return 100.0 * met / of if of else 100.0


def missing(cover):
    for name in sorted(cover.lines):
        source = cover.source(name)
        text = source.text.splitlines()
        for n, count in sorted(cover.lines[name].items()):
            if count == 0:
                print(f"{name}:{n}: never run: {text[n - 1].strip()}")
        for way, (true, false) in sorted(cover.branches[name].items(), key=lambda b: b[0][-1]):
            if true and false:
                continue
            what = "never asked" if not true and not false else \
                "never true" if not true else "never false"
            print(f"{name}:{way[-1][0]}: {what}: {' '.join(source.cut(way[-1]).split())}")


def main():
    tree, root, profdata = (os.path.abspath(a) for a in sys.argv[1:4])
    cover = Cover(root)
    for program in programs(tree):
        read(cover, program, profdata)
    cover.finish()
    if "--list" in sys.argv[4:]:
        missing(cover)
    total = [0, 0, 0, 0]
    print(f"{'file':32}{'lines':>7}{'run':>7}{'%':>7}{'branches':>10}{'met':>7}{'%':>7}")
    for name in sorted(cover.lines):
        counts = cover.lines[name].values()
        ways = [n for met in cover.branches[name].values() for n in met]
        row = [len(counts), sum(c > 0 for c in counts), len(ways), sum(n > 0 for n in ways)]
        total = [a + b for a, b in zip(total, row)]
        print(f"{name:32}{row[0]:7}{row[1]:7}{share(row[1], row[0]):7.1f}"
              f"{row[2]:10}{row[3]:7}{share(row[3], row[2]):7.1f}")
    lines, branches = share(total[1], total[0]), share(total[3], total[2])
    print(f"{'total':32}{total[0]:7}{total[1]:7}{lines:7.1f}{total[2]:10}{total[3]:7}"
          f"{branches:7.1f}")
    if lines < LINES or branches < BRANCHES:
        print(f"below {LINES:.0f} % of lines or {BRANCHES:.0f} % of branches")
        sys.exit(1)


if __name__ == "__main__":
    main()
