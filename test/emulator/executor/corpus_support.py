"""Runs corpus_support over the PTX files of an archive. Exit code 77 (skipped) without the archive."""

import argparse
import pathlib
import subprocess
import sys
import tarfile
import tempfile

# What the README names as unsupported.
EXCUSED = ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--archive", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    if not arguments.archive.exists():
        print(f"skipped: no {arguments.archive}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(arguments.archive) as archive:
            # Pythons before 3.11.4 know no filters.
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder, **safely)
        files = sorted(map(str, pathlib.Path(folder).rglob("*.ptx")))
        excuses = [word for prefix in EXCUSED for word in ("--allow", prefix)]
        return subprocess.run([arguments.tool, *excuses, *files], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
