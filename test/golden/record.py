#!/usr/bin/env python3
"""Runs golden cases on a GPU and writes what it computed.

  record.py --out DIR [--family F]...    needs a GPU (H200); writes DIR/<family>.xz
  record.py --assemble [--family F]...   needs no GPU: does ptxas accept every kernel?
  record.py --dump-ptx DIR               needs no GPU: writes the modules (golden_coverage)
"""

import argparse
import datetime
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from case import families, key_of, load_family, module_text, modules
from driver import Driver
from runner import run_cases
from store import pack


def record(driver, family, folder):
    provenance = driver.description()
    provenance["date"] = datetime.date.today().isoformat()
    results, refused = [], []
    started = time.monotonic()
    for case, output, reason in run_cases(driver, load_family(family)):
        if output is None:
            refused.append((case, reason))
        else:
            results.append((case, output))
    data = pack(provenance, results)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{family}.xz").write_bytes(data)
    print(f"{family}: {len(results)} cases, {len(data)} bytes, "
          f"{time.monotonic() - started:.1f} s, {len(refused)} refused", flush=True)
    for case, reason in refused:
        print(f"  refused: {case.name}: {case.instruction}\n    {reason}", flush=True)
    return not refused


def assemble(ptxas, text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "module.ptx"
        path.write_text(text, encoding="utf-8")
        target = text.split(".target ")[1].split()[0].rstrip(",")
        done = subprocess.run([ptxas, f"-arch={target}", "-O0", "-o", "/dev/null", str(path)],
                              capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr


def check_assembly(ptxas, members):
    """Cases that ptxas refuses, with its message."""
    message = assemble(ptxas, module_text(key_of(members[0]), members))
    if not message:
        return []
    if len(members) == 1:
        return [(members[0], message)]
    half = len(members) // 2
    return check_assembly(ptxas, members[:half]) + check_assembly(ptxas, members[half:])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", choices=families(), help="default: all")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the data")
    parser.add_argument("--driver", help="libcuda.so.1 to use (default: the system's)")
    parser.add_argument("--assemble", action="store_true", help="only run ptxas over the cases")
    parser.add_argument("--dump-ptx", type=pathlib.Path, help="only write the modules there")
    arguments = parser.parse_args()
    chosen = arguments.family or families()
    good = True
    if arguments.dump_ptx:
        for family in chosen:
            for number, (text, _) in enumerate(modules(load_family(family))):
                (arguments.dump_ptx / f"{family}.{number}.ptx").write_text(text, encoding="utf-8")
        return 0
    if arguments.assemble:
        ptxas = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
        for family in chosen:
            bad = []
            cases = load_family(family)
            for _, members in modules(cases):
                bad += check_assembly(ptxas, members)
            print(f"{family}: {len(cases)} cases, {len(bad)} refused by ptxas", flush=True)
            for case, message in bad:
                lines = [m for m in message.splitlines() if "error" in m or "fatal" in m]
                print(f"  {case.name}: {case.instruction}\n    {lines[0] if lines else message}")
            good = good and not bad
        return 0 if good else 1
    if arguments.out is None:
        parser.error("--out is needed")
    driver = Driver(arguments.driver)
    for family in chosen:
        good = record(driver, family, arguments.out) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
