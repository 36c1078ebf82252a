#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the house: what doc/house.md says and a machine can check in the text of the tree.

usage: tidy.py [ROOT]     exit 0 clean, 1 findings (a line each: file:line: rule: what, what to do)
"""
import os
import re
import sys

COLUMNS = 100
FUNCTION_LINES = 70
FILE_LINES = 800

C_FILES = (".c", ".h", ".cu", ".cuh")
CODE_FILES = C_FILES + (".py", ".sh", ".cmake", ".pml", ".awk", ".json", ".map")
CODE_NAMES = ("run", "CMakeLists.txt", ".clang-format")
TEXT_FILES = CODE_FILES + (".md", ".in", ".txt", ".yml", ".1", ".3", ".5", ".7")
LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */"

# Who may include whom, by folder; include/railyard is open to all. The longest folder counts.
ARROWS = {
    "include/railyard": [],
    "src/core": ["src/core"],
    "src/nic": ["src/core", "src/nic"],
    "src/nic/emu": ["src/core", "src/nic", "src/nic/emu"],
    "src/nic/verbs": ["src/core", "src/nic", "src/nic/verbs"],
    "src/nic/mlx5": ["src/core", "src/nic", "src/nic/mlx5"],
    "src/host": ["src/core", "src/nic", "src/nic/emu", "src/nic/verbs", "src/nic/mlx5", "src/host"],
    "src/ep": ["src/core", "src/nic", "src/host", "src/ep"],
    "src/cuda": ["src/core", "src/cuda"],
    "src/cuda/host": ["src/core", "src/host", "src/ep", "src/cuda", "src/cuda/host"],
    "src/sim": ["src/core", "src/nic", "src/nic/emu", "src/host", "src/ep", "src/sim"],
    "src/tool": ["src/tool"],
    "examples": ["examples"],
    "bench": ["bench"],
    "bench/cuda": ["src/core", "src/cuda", "bench/cuda", None],
}
# Single files with one arrow more.
ARROWS_OF_FILES = {}
# core/ knows no libc: only what the language itself brings.
CORE_SYSTEM_HEADERS = ("stdint.h", "stddef.h", "stdbool.h", "limits.h")

# Words are put together here so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|X" + "XX)" + r"\b")
PLACES = re.compile(r"(?<![\w.$}])/(?:work|root|home|Users|mnt)/[\w.]")
# Any host that is not on this list is one too many: packages come from the system's own manager.
HOSTS = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:io|org|com|net|dev|ai)\b(?![\w(-])", re.IGNORECASE)
HOSTS_ALLOWED = ("www.apache.org", "www.w3.org", "example.com", "example.org")
# The one table of download sites of what others make.
HOSTS_TABLE = "src/tool/plan/plan_versions.c"
PLACES_EXEMPT = ("test/tidy/tidy.py", "test/tidy/selftest.py")


class Findings:
    def __init__(self):
        self.lines = []

    def add(self, path, line, rule, text):
        self.lines.append(f"{path}:{line}: {rule}: {text}")


def tree(root):
    """Relative paths of the files that belong to the project, sorted."""
    found = []
    for folder, folders, names in os.walk(root):
        at_top = os.path.samefile(folder, root)
        folders[:] = [
            f for f in folders
            if not (at_top and f.startswith("build")) and f != "__pycache__"
            and (not f.startswith(".") or f == ".ci")
        ]
        for name in names:
            found.append(os.path.relpath(os.path.join(folder, name), root))
    return sorted(found)


def is_code(path):
    return path.endswith(CODE_FILES) or os.path.basename(path) in CODE_NAMES


def check_text(path, lines, out):
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            out.add(path, number, "unfinished", "a note of unfinished work: finish or drop it")
        if path in PLACES_EXEMPT:
            continue
        if PLACES.search(line):
            out.add(path, number, "place",
                    f"names a place on one machine ('{PLACES.search(line).group(0)}...'): use a "
                    "relative path, a variable or mktemp")
        for host in HOSTS.findall(line):
            if host.lower() not in HOSTS_ALLOWED and path != HOSTS_TABLE:
                out.add(path, number, "host", f"names the host {host}: the project does without")


def check_code(path, lines, out):
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            out.add(path, number, "columns", f"{len(line)}, at most {COLUMNS}: break the line")
        if "\t" in line:
            out.add(path, number, "tab", "a tab: indent by 4 spaces")
        if line != line.rstrip():
            out.add(path, number, "trailing", "blanks at the end of the line: remove them")
    if len(lines) > FILE_LINES:
        out.add(path, len(lines), "file length",
                f"{len(lines)} lines, at most {FILE_LINES}: one idea a file, split it")


def has_reason(lines, opening):
    """True if the text just above the function that opens at that index holds /* long: why */."""
    i = opening
    while i >= 0 and lines[i].strip():
        if re.search(r"/\* long: (?!\*/)\S", lines[i]):
            return True
        if i < opening and re.match(r"[}#]", lines[i]):
            return False
        i -= 1
    return False


def check_functions(path, lines, out):
    opening = None
    for i, line in enumerate(lines):
        if opening is None:
            alone = line == "{" and i > 0 and lines[i - 1].rstrip().endswith(")")
            attached = re.match(r"(?!extern )[A-Za-z_].*\)\s*\{$", line)
            if alone or attached:
                opening = i
        elif line.startswith("}"):
            length = i - opening + 1
            if length > FUNCTION_LINES and not has_reason(lines, opening):
                out.add(path, opening + 1, "function length",
                        f"{length} lines, at most {FUNCTION_LINES}: split it, or say why in "
                        "/* long: reason */ on the line before it")
            opening = None


def room_of(path):
    fitting = [room for room in ARROWS if path.startswith(room + "/")]
    return max(fitting, key=len) if fitting else None


def check_includes(path, lines, files, out):
    room = room_of(path)
    allowed = None
    if room is not None:
        allowed = ARROWS[room] + ARROWS_OF_FILES.get(path, [])
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        beside = [os.path.dirname(path)] if quoted else []
        bases = beside + ["src", "include", "test"]
        tried = [os.path.normpath(os.path.join(base, name)) for base in bases]
        target = next((t for t in tried if t in files), None)
        if target is None:
            core_header = path.startswith("src/core/") and path.endswith(".h")
            if quoted:
                out.add(path, number, "include", f'"{name}" is no file here: quote our own headers')
            elif core_header and name not in CORE_SYSTEM_HEADERS:
                out.add(path, number, "arrow", f"<{name}> in core/, which knows no libc")
            continue
        if allowed is None or target.startswith("include/railyard/"):
            continue
        if room_of(target) not in allowed:
            out.add(path, number, "arrow",
                    f"{room} may not include {target}: see the arrows in doc/house.md")


def check_tree(root):
    out = Findings()
    files = tree(root)
    names = set(files)
    for path in files:
        if not (path.endswith(TEXT_FILES) or os.path.basename(path) in CODE_NAMES):
            continue
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as handle:
            lines = handle.read().split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        elif lines:
            out.add(path, len(lines), "newline", "no newline at the end of the file: add one")
        check_text(path, lines, out)
        if is_code(path):
            check_code(path, lines, out)
        if path.endswith(C_FILES):
            if not lines or lines[0] != LICENCE:
                out.add(path, 1, "licence", f"the first line must be {LICENCE}")
            check_functions(path, lines, out)
            check_includes(path, lines, names, out)
    return out.lines


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    if not os.path.isdir(os.path.join(root, "src")):
        print(f"tidy: {root} has no src folder: give the root of the tree")
        return 1
    findings = check_tree(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings in {len(tree(root))} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
