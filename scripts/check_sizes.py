#!/usr/bin/env python3
"""Fails if a source file has more than 800 lines: it then holds more than one idea and should be split."""

import sys

import project_files

LIMIT = 800
# Generated tables and test data may be long.
EXEMPT_MARKS = ("generated", "golden")


def too_long(root=project_files.ROOT):
    for path in project_files.source_files(project_files.CODE_SUFFIXES, root):
        if any(mark in path for mark in EXEMPT_MARKS):
            continue
        with open(root / path, encoding="utf-8", errors="replace") as file:
            lines = sum(1 for _ in file)
        if lines > LIMIT:
            yield f"{path}: {lines} lines; split it by idea (limit {LIMIT})"


def main():
    problems = list(too_long())
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
