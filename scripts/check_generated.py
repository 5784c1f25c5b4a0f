#!/usr/bin/env python3
"""Fails if a checked-in generated file is not what its generator writes now: runs every scripts/generate_*.py with
--check. Generators that need a CUDA toolkit find it in CUDA_HOME, which this script sets from --cuda-home."""

import os
import subprocess
import sys

import project_files


def main():
    environment = dict(os.environ)
    for argument in sys.argv[1:]:
        if argument.startswith("--cuda-home="):
            environment["CUDA_HOME"] = argument.removeprefix("--cuda-home=")
    generators = sorted((project_files.ROOT / "scripts").glob("generate_*.py"))
    failed = 0
    for generator in generators:
        run = subprocess.run(
            [sys.executable, str(generator), "--check"],
            cwd=project_files.ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            failed += 1
            print(f"{generator.name} --check failed:\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
            print(f"To repair: python3 scripts/{generator.name}")
        else:
            print(f"{generator.name}: current")
    if not generators:
        print("no scripts/generate_*.py found")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
