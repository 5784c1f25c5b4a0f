#!/usr/bin/env python3
"""Fails if a folder includes what it may not: folders follow processes and address spaces, and this is what keeps them
apart. The two tables below are the rule; nothing else states it in code."""

import re
import sys

import project_files

# Folder -> folders of ours that it may include besides itself. The longest matching entry counts.
ALLOWED = {
    "proto": [],
    "ptx": [],
    "shadow/abi": [],
    "shadow": ["ptx"],
    "interposer": ["proto", "ptx", "shadow"],
    "emulator": ["ptx", "shadow/abi"],
    "runner": ["proto", "ptx"],
    "replayer": ["proto", "shadow/abi"],
    "analysis": ["proto", "ptx", "shadow/abi"],
    "launcher": ["proto"],
    "examples": [],
}

# Folders whose code is loaded into the user's process -> headers of libraries that cannot or must not be there: their
# static archives are not position independent, and the process may hold another version of them.
FORBIDDEN_IN_TARGET = {
    folder: ["absl/", "google/protobuf/", ".pb.h", "zstd.h", "lz4.h", "elfutils/", "nlohmann/"]
    for folder in ("ptx", "shadow", "interposer", "emulator")
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def _longest(table, path):
    matches = [folder for folder in table if path == folder or path.startswith(folder + "/")]
    return max(matches, key=len) if matches else None


def problems_of(path, text):
    """Yields one message per include of `text`, the contents of `path`, that breaks the rule."""
    folder = _longest(ALLOWED, path)
    if folder is None:  # tests and scripts may include anything of ours
        return
    own = folder.split("/")[0]
    forbidden = FORBIDDEN_IN_TARGET.get(own, [])
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(2)
        for library in forbidden:
            if header.startswith(library) or header.endswith(library):
                yield f"{path}:{number}: {header} must not be used in code that runs inside the target process"
        target = _longest(ALLOWED, header)
        if target is None or header.startswith(folder + "/"):
            continue
        if own == target.split("/")[0] and folder == own:  # a folder may use its own subfolders
            continue
        if not any(header.startswith(allowed + "/") for allowed in ALLOWED[folder]):
            may = ", ".join(ALLOWED[folder]) or "nothing of ours"
            yield f"{path}:{number}: {folder}/ may not include {header} (it may include: {may})"


def main():
    problems = []
    for path in project_files.source_files((".cc", ".h", ".cu", ".cuh")):
        text = (project_files.ROOT / path).read_text(encoding="utf-8", errors="replace")
        problems += problems_of(path, text)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
