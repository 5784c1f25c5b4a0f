"""How the whole-kernel programs are compiled: one nvcc command per program, for the emulator or for a GPU.

    python3 programs.py --into FOLDER [--nvcc NVCC] [--for emulator|gpu] [NAME...]
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
# Instructions of one architecture only (wgmma) need its own target.
ARCHITECTURES = {"gemm_wgmma": "90a"}


def names():
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


def find_nvcc():
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and (pathlib.Path(home) / "bin/nvcc").exists():
            return str(pathlib.Path(home) / "bin/nvcc")
    return shutil.which("nvcc")


def command(nvcc, name, into, device):
    """The emulator takes PTX and replaces the shared run-time library; a GPU takes machine code and the static one."""
    architecture = ARCHITECTURES.get(name, "90")
    code = f"sm_{architecture}" if device == "gpu" else f"compute_{architecture}"
    return [
        nvcc, "-O2", "-std=c++17", "-lineinfo", "-cudart", "static" if device == "gpu" else "shared",
        "-gencode", f"arch=compute_{architecture},code={code}", "-o", str(into / name), str(FOLDER / f"{name}.cu"),
    ]


def build(chosen, nvcc, into, device):
    """Compiles all `chosen` programs side by side; returns the compilers' messages of those that failed, by name."""
    into.mkdir(parents=True, exist_ok=True)

    def one(name):
        run = subprocess.run(command(nvcc, name, into, device), capture_output=True, text=True)
        return name, run.returncode, run.stdout + run.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(one, chosen))
    return {name: text for name, code, text in results if code != 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--nvcc", default=find_nvcc())
    parser.add_argument("--for", dest="device", choices=("emulator", "gpu"), default="emulator")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.nvcc is None:
        sys.exit("programs.py: no nvcc: set CUDA_HOME to a CUDA toolkit")
    failed = build(arguments.names or names(), arguments.nvcc, arguments.into, arguments.device)
    for name, text in failed.items():
        print(f"{name} does not compile:\n{text}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
