#!/usr/bin/env python3
"""ptxas accepts the print of every PTX file that it accepts, and makes the same machine code of both."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def find_ptxas(cuda_home):
    candidates = [cuda_home, os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    for home in filter(None, candidates):
        ptxas = pathlib.Path(home) / "bin" / "ptxas"
        if ptxas.exists():
            return str(ptxas)
    return shutil.which("ptxas")


def loaded_sections(cubin):
    """Name -> content of the ELF sections that a GPU loads: code and constants, but not the PTX line table."""
    section_offset, = struct.unpack_from("<Q", cubin, 0x28)
    count, names_index = struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", cubin, section_offset + 64 * i) for i in range(count)]
    names = headers[names_index][4]
    sections = {}
    for name, kind, flags, _, offset, size in headers:
        if flags & 2:  # SHF_ALLOC
            end = cubin.index(b"\0", names + name)
            content = b"" if kind == 8 else cubin[offset:offset + size]  # SHT_NOBITS has no content
            sections[cubin[names + name:end]] = (size, content)
    return sections


def assemble(ptxas, folder, text):
    """What ptxas makes of PTX text (see loaded_sections), or None and what ptxas said."""
    target = re.search(rb"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE)
    (folder / "module.ptx").write_bytes(text)
    # The same file names on both sides: they end up in the cubin. -O0 is the fastest, and a -G build needs it.
    run = subprocess.run([ptxas, "-O0", "-arch", target.group(1).decode(), "module.ptx", "-o", "module.cubin"],
                         cwd=folder, capture_output=True, text=True)
    if run.returncode != 0:
        return None, run.stdout + run.stderr
    return loaded_sections((folder / "module.cubin").read_bytes()), ""


def check(ptxas, print_ptx, path):
    """'accepted', 'rejected' (before and so not our matter), or an error message."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        before, _ = assemble(ptxas, folder, path.read_bytes())
        if before is None:
            return "rejected"
        printed = subprocess.run([print_ptx, path], capture_output=True)
        if printed.returncode != 0:
            return printed.stderr.decode()
        after, message = assemble(ptxas, folder, printed.stdout)
        if after is None:
            return f"ptxas rejects the print of {path.name}: {message}"
        if not any(name.startswith(b".text.") for name in before):
            return f"no code in the cubin of {path.name}"
        if before != after:
            changed = [name.decode() for name in before if after.get(name) != before[name]]
            return f"ptxas makes other code of the print of {path.name}: {', '.join(changed)}"
        return "accepted"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-ptx", required=True)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--archive", required=True, type=pathlib.Path)
    parser.add_argument("--cuda-home", default="")
    options = parser.parse_args()
    ptxas = find_ptxas(options.cuda_home)
    if ptxas is None:
        print("skipped: no ptxas (set CUDA_HOME)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as unpacked:
        files = sorted(options.data.glob("*.ptx"))
        if options.archive.exists():
            subprocess.run(["tar", "-xf", options.archive, "-C", unpacked], check=True)
            files += sorted(pathlib.Path(unpacked).rglob("*.ptx"))
        else:
            print(f"only test/ptx/data: no {options.archive}")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda path: check(ptxas, options.print_ptx, path), files))
    accepted = results.count("accepted")
    failures = [result for result in results if result not in ("accepted", "rejected")]
    print(f"{len(files)} files, {accepted} accepted before and after, {results.count('rejected')} rejected before")
    print(*failures, sep="\n")
    return 1 if failures or accepted < 3 else 0


if __name__ == "__main__":
    sys.exit(main())
