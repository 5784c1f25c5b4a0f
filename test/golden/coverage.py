#!/usr/bin/env python3
"""Does a golden case use every lane operation and every opcode of the CPU device?

  coverage.py --tool build/test/golden_coverage

Writes the modules of all families to a temporary folder and gives them to the tool (its source says
how it judges). `coverage_exceptions.txt` excuses names, each with a reason.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="golden_coverage, as built")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", str(HERE / "record.py"), "--dump-ptx", folder],
                       check=True)
        files = sorted(str(p) for p in pathlib.Path(folder).glob("*.ptx"))
        return subprocess.run([arguments.tool, "--exceptions",
                               str(HERE / "coverage_exceptions.txt"), *files],
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
