#!/usr/bin/env python3
"""Runs clang-tidy over the C++ sources that changed (all with --all), within a time budget.

clang-tidy costs as much as a compilation per file, so the test command lints what changed and stops when its budget is
spent; the nightly script lints everything without a budget.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

import project_files


# The project is compiled by g++. Where clang rejects what g++ accepts (constexpr parts of libstdc++), it finds less, and
# that is no finding.
NO_FINDING = "clang-diagnostic-error"
FINDING = re.compile(r"^\S+:\d+:\d+: (?:error|warning): .*\[([^\]]+)\]$", re.MULTILINE)


def findings_of(output):
    """Names of the checks that complain in clang-tidy's output."""
    names = {match.split(",")[0] for match in FINDING.findall(output)}
    return names - {NO_FINDING}


def lint(path, build):
    """(ok, output) of clang-tidy for one file."""
    run = subprocess.run(
        ["clang-tidy", "--quiet", "-p", build, path], cwd=project_files.ROOT, capture_output=True, text=True
    )
    if run.returncode == 0 or (NO_FINDING in run.stdout and not findings_of(run.stdout)):
        return True, ""
    return False, run.stdout or run.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true", help="every source file")
    parser.add_argument("--budget", type=float, default=0, help="seconds; 0 = no limit")
    parser.add_argument("--build", default=str(project_files.ROOT / "build"), help="folder of compile_commands.json")
    parser.add_argument("files", nargs="*", help="lint these instead")
    options = parser.parse_args()

    with open(os.path.join(options.build, "compile_commands.json"), encoding="utf-8") as file:
        compiled = {os.path.relpath(entry["file"], project_files.ROOT) for entry in json.load(file)}
    choose = project_files.source_files if options.all else project_files.changed_files
    chosen = options.files or choose((".cc",))
    files = [path for path in chosen if path in compiled]

    deadline = time.monotonic() + options.budget if options.budget else float("inf")
    failed = done = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = {}
        remaining = iter(files)
        while True:
            while len(jobs) < os.cpu_count() and time.monotonic() < deadline:
                path = next(remaining, None)
                if path is None:
                    break
                jobs[pool.submit(lint, path, options.build)] = path
            if not jobs:
                break
            finished, _ = concurrent.futures.wait(jobs, return_when=concurrent.futures.FIRST_COMPLETED)
            for job in finished:
                jobs.pop(job)
                ok, output = job.result()
                done += 1
                if not ok:
                    failed += 1
                    print(output)
    print(f"clang-tidy: {done} of {len(files)} changed files linted, {failed} with findings")
    if done < len(files):
        print(f"the time budget of {options.budget:.0f} s ended before the rest; scripts/nightly.sh lints all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
