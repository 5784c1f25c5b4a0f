#!/usr/bin/env python3
"""Runs golden cases on the CPU device and compares with what the H200 computed.

  compare.py --driver build/emulator/libcuda.so.1 --family F...

Every case counts: one without recorded data, one that changed since it was recorded, and one that
the CPU device cannot run are failures as much as a wrong bit.
"""

import argparse
import pathlib
import sys
import time

import numpy as np

from case import families, load_family
from driver import Driver
from runner import run_cases
from store import DATA, Recorded

HINT = "record on an H200: python3 test/golden/record.py --family {} --out test/golden/data"


class Tally:
    def __init__(self):
        self.cases = self.elements = self.bad_cases = self.bad_elements = 0


def report(case, expected, got, bad, shown):
    print(f"MISMATCH {case.name}: {case.instruction}   [{case.rule}]")
    print(f"  {int(bad.sum())} of {len(bad)} elements")
    digits = expected.dtype.itemsize * 2 + 2
    for index in np.flatnonzero(bad)[:shown]:
        print(f"  [{index}] {case.describe(int(index))}: expected {int(expected[index]):#0{digits}x}"
              f" got {int(got[index]):#0{digits}x}")


def compare_family(driver, family, arguments, tally):
    recorded = Recorded.of_family(family, arguments.data)
    if recorded is None:
        print(f"FAILED family {family}: no recorded data. " + HINT.format(family))
        tally.bad_cases += 1
        return
    cases = load_family(family)
    if arguments.only:
        cases = [c for c in cases if arguments.only in c.name or arguments.only in c.instruction]
    current = []
    for case in cases:
        tally.cases += 1
        digest = recorded.digest(case)
        if digest == case.digest():
            current.append(case)
            continue
        tally.bad_cases += 1
        what = "was never recorded" if digest is None else "changed since it was recorded"
        print(f"STALE {case.name}: {case.instruction}: {what}. " + HINT.format(family))
    if not arguments.only:
        for name in sorted(recorded.names() - {c.name for c in cases}):
            tally.bad_cases += 1
            print(f"STALE {name}: recorded, but no such case exists. " + HINT.format(family))
    for case, got, reason in run_cases(driver, current):
        if got is None:
            tally.bad_cases += 1
            print(f"FAILED {case.name}: {case.instruction}: {reason}")
            continue
        expected = recorded.output(case)
        tally.elements += len(expected)
        bad = case.rule.mismatches(expected, got)
        if bad.any():
            tally.bad_cases += 1
            tally.bad_elements += int(bad.sum())
            report(case, expected, got, bad, arguments.shown)
    p = recorded.provenance
    print(f"{family}: recorded on {p['device']} (driver {p['driver']}, CUDA {p['cuda']}, "
          f"{p['date']})")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", choices=families(), help="default: all")
    parser.add_argument("--driver", required=True, help="libcuda.so.1 of the CPU device")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--only", help="cases whose name or instruction contains this")
    parser.add_argument("--shown", type=int, default=4, help="elements shown per case")
    arguments = parser.parse_args()
    driver = Driver(arguments.driver)
    tally = Tally()
    started = time.monotonic()
    for family in arguments.family or families():
        compare_family(driver, family, arguments, tally)
    print(f"{tally.cases} cases, {tally.elements} values, {tally.bad_cases} cases disagree "
          f"({tally.bad_elements} values), {time.monotonic() - started:.1f} s")
    return 1 if tally.bad_cases else 0


if __name__ == "__main__":
    sys.exit(main())
