#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that tidy.py can fail: plants one violation at a time in a clean tree and looks for it."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import tidy  # noqa: E402

HEAD = tidy.LICENCE + "\n"
CLEAN = {
    "include/railyard/status.h": HEAD + "#include <stdint.h>\n",
    "src/core/queue.h": HEAD + '#include "wqe.h"\n#include <railyard/status.h>\n',
    "src/core/wqe.h": HEAD,
    "src/nic/nic.h": HEAD + '#include "core/queue.h"\n',
    "src/nic/emu/emu.h": HEAD + '#include "nic/nic.h"\n',
    "src/nic/verbs/verbs.h": HEAD,
    "src/host/context.h": HEAD + '#include "nic/emu/emu.h"\n#include <stdio.h>\n',
    "src/ep/layout.h": HEAD + '#include "host/context.h"\n',
    "src/cuda/kernel.cu": HEAD + '#include "core/queue.h"\n',
    "src/sim/sim.h": HEAD,
    "src/tool/main.c": HEAD + "#include <railyard/status.h>\n",
    "src/tool/sim.c": HEAD + "#include <railyard/status.h>\n",
    "test/test_queue.c": HEAD + '#include "core/queue.h"\n',
    "doc/house.md": "# House\n",
}


def function(lines, before=""):
    """A C function whose body, braces included, has that many lines."""
    return before + "int ry_f(void)\n{\n" + "    ry_g();\n" * (lines - 2) + "}\n"


# (what is wrong, file, its text, the rule that must speak or None where nothing may be found)
PLANTED = [
    ("column 101", "src/host/a.c", HEAD + "/" * 101 + "\n", "columns"),
    ("column 100", "src/host/a.c", HEAD + "/" * 100 + "\n", None),
    ("wide letters count once", "src/host/a.c", HEAD + "\u00e9" * 100 + "\n", None),
    ("column 101 in a script", "test/a.sh", "#" * 101 + "\n", "columns"),
    ("tab", "src/host/a.c", HEAD + "\tint ry_a;\n", "tab"),
    ("blank at the end", "src/host/a.c", HEAD + "int ry_a; \n", "trailing"),
    ("no last newline", "src/host/a.c", HEAD + "int ry_a;", "newline"),
    ("function of 71 lines", "src/host/a.c", HEAD + function(71), "function length"),
    ("function of 70 lines", "src/host/a.c", HEAD + function(70), None),
    ("long with a reason", "src/host/a.c", HEAD + function(90, "/* long: one table */\n"), None),
    ("long, reason without text", "src/host/a.c", HEAD + function(90, "/* long: */\n"),
     "function length"),
    ("reason of another function", "src/host/a.c",
     HEAD + function(90, "/* long: one table */\n") + function(90), "function length"),
    ("long, brace on the same line", "src/host/a.c",
     HEAD + function(90).replace(")\n{", ") {", 1), "function length"),
    ("long after extern C", "include/railyard/a.h", HEAD + 'extern "C" {\n' + function(90) + "}\n",
     "function length"),
    ("801 lines", "src/host/a.c", HEAD + "\n" * 800, "file length"),
    ("800 lines", "src/host/a.c", HEAD + "\n" * 799, None),
    ("no licence", "src/host/a.c", "int ry_a;\n", "licence"),
    ("licence on the second line", "src/cuda/a.cu", "\n" + HEAD, "licence"),
    ("empty file", "src/core/a.h", "", "licence"),
    ("core includes nic", "src/core/a.h", HEAD + '#include "nic/nic.h"\n', "arrow"),
    ("core includes libc", "src/core/a.h", HEAD + "#include <string.h>\n", "arrow"),
    ("nic includes host", "src/nic/a.c", HEAD + '#include "host/context.h"\n', "arrow"),
    ("one backend includes another", "src/nic/emu/a.c", HEAD + '#include "nic/verbs/verbs.h"\n',
     "arrow"),
    ("host includes ep", "src/host/a.c", HEAD + '#include "ep/layout.h"\n', "arrow"),
    ("host includes ep by dots", "src/host/a.c", HEAD + '#include "../ep/layout.h"\n', "arrow"),
    ("host includes ep by angles", "src/host/a.c", HEAD + "#  include <ep/layout.h>\n", "arrow"),
    ("ep includes host", "src/ep/a.c", HEAD + '#include "host/context.h"\n', None),
    ("cuda includes host", "src/cuda/a.cu", HEAD + '#include "host/context.h"\n', "arrow"),
    ("sim includes the emulated NIC", "src/sim/a.c", HEAD + '#include "nic/emu/emu.h"\n', None),
    ("sim includes host", "src/sim/a.c", HEAD + '#include "host/context.h"\n', None),
    ("sim includes cuda", "src/sim/a.c", HEAD + '#include "cuda/kernel.cu"\n', "arrow"),
    ("tool includes host", "src/tool/a.c", HEAD + '#include "host/context.h"\n', "arrow"),
    ("tool includes sim", "src/tool/a.c", HEAD + '#include "sim/sim.h"\n', "arrow"),
    ("tool/sim.c includes core", "src/tool/sim.c", HEAD + '#include "core/queue.h"\n', "arrow"),
    ("example includes core", "examples/a.c", HEAD + '#include "core/queue.h"\n', "arrow"),
    ("public header includes core", "include/railyard/a.h", HEAD + '#include "core/wqe.h"\n',
     "arrow"),
    ("no such header", "src/host/a.c", HEAD + '#include "host/none.h"\n', "include"),
    ("unfinished note", "src/host/a.c", HEAD + "/* TO" + "DO: later */\n", "unfinished"),
    ("unfinished note in a document", "doc/a.md", "FIX" + "ME\n", "unfinished"),
    ("machine path", "doc/a.md", "see /home/" + "someone/tree\n", "place"),
    ("machine path in a script", "test/a.sh", "cd /work/" + "main\n", "place"),
    ("relative folder named work", "test/a.sh", "cd build/work/main\n", None),
    ("host", "doc/a.md", "from packages.somewhere.org/x\n", "host"),
    ("host with a scheme", "test/a.sh", "curl https://some.where.io\n", "host"),
    ("namespace of SVG", "src/tool/a.c", HEAD + '/* "http://www.w3.org/2000/svg" */\n', None),
    ("member called io", "src/host/a.c", HEAD + "int ry_a = s.io(1) + s.network;\n", None),
]


def findings_with(path, text):
    with tempfile.TemporaryDirectory() as root:
        for name, content in {**CLEAN, **({path: text} if path else {})}.items():
            os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
            with open(os.path.join(root, name), "w", encoding="utf-8") as handle:
                handle.write(content)
        return tidy.check_tree(root)


def main():
    wrong = [f"clean tree: found {line}" for line in findings_with(None, None)]
    for what, path, text, rule in PLANTED:
        found = findings_with(path, text)
        if rule is None:
            wrong += [f"{what}: nothing is wrong, found {line}" for line in found]
        elif not any(line.startswith(path + ":") and f": {rule}: " in line for line in found):
            wrong.append(f"{what}: '{rule}' was not found in {path}, only {found}")
    for line in wrong:
        print(line)
    print(f"tidy selftest: {len(PLANTED) + 1} trees, {len(wrong)} wrong answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
