#!/usr/bin/env python3
"""Instruments every PTX file of the corpus and lets ptxas compile what comes out.

    instrument_corpus.py --tool INSTRUMENT_FILE --corpus CORPUS.tar.xz [--ptxas PTXAS] [--largest-kib N] [--checks LIST]

Files above N KiB are instrumented but not compiled (the nightly run compiles all). A file that ptxas does not accept as
it is counts as skipped. Exit code 77 if the corpus or ptxas is missing.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor

SKIPPED = 77


def accepted(ptxas: str, path: pathlib.Path, target: str) -> str | None:
    result = subprocess.run([ptxas, f"-arch={target}", "-c", str(path), "-o", os.devnull], capture_output=True, text=True)
    return None if result.returncode == 0 else result.stdout + result.stderr


def check(path: pathlib.Path, tool: str, ptxas: str, largest_bytes: int, checks: str) -> tuple[str, str]:
    rewritten = path.with_suffix(".checked")
    result = subprocess.run([tool, f"--checks={checks}", str(path), str(rewritten)], capture_output=True, text=True)
    if result.returncode != 0:
        return "failed", f"{path.name}: {result.stderr}"
    if path.stat().st_size > largest_bytes:
        return "instrumented", path.name
    target = re.search(r"^\.target\s+(\w+)", path.read_text(), re.MULTILINE).group(1)
    error = accepted(ptxas, rewritten, target)
    if error is None:
        return "compiled", path.name
    if accepted(ptxas, path, target) is not None:
        return "skipped", f"{path.name}: ptxas does not accept the original"
    return "failed", f"{path.name}: {error[:1000]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--corpus", required=True, type=pathlib.Path)
    parser.add_argument("--ptxas", help="default: the one on PATH")
    parser.add_argument("--largest-kib", type=int, default=1 << 20)
    parser.add_argument("--checks", default="memory", help="what the rewritten code checks: memory,race,sync,init,precision,trace,index")
    arguments = parser.parse_args()
    ptxas = shutil.which(arguments.ptxas or "ptxas")
    if ptxas is None or not arguments.corpus.exists():
        print("corpus or ptxas is missing", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(arguments.corpus) as archive:
            archive.extractall(folder)
        files = sorted(pathlib.Path(folder).rglob("*.ptx"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            outcomes = list(pool.map(lambda path: check(path, arguments.tool, ptxas, arguments.largest_kib * 1024, arguments.checks),
                                     files))
    counts = {}
    for kind, text in outcomes:
        counts[kind] = counts.get(kind, 0) + 1
        if kind in ("failed", "skipped"):
            print(text)
    print(f"{len(files)} files: {counts}")
    return 0 if len(files) == 88 and "failed" not in counts else 1


if __name__ == "__main__":
    sys.exit(main())
