#!/usr/bin/env python3
"""Fails if a C++ file is not formatted as .clang-format says. `--fix` formats instead."""

import subprocess
import sys

import project_files

# Written by scripts/generate_*.py: their layout belongs to the generator.
GENERATED_MARKS = ("generated", ".inc")


def main():
    files = [
        path
        for path in project_files.source_files(project_files.CPP_SUFFIXES)
        if not any(mark in path for mark in GENERATED_MARKS)
    ]
    mode = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run", "-Werror"]
    run = subprocess.run(["clang-format", *mode, *files], cwd=project_files.ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        print(run.stderr[-8000:])
        print("Not formatted as .clang-format says. To repair: scripts/check_format.py --fix")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
