"""Runs the built tool as a user would. OPS_DEBUG_BUILD names the build tree (CTest sets it)."""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("OPS_DEBUG_SHARED", ROOT.parent / "shared"))
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "test/support"))


@dataclasses.dataclass
class Run:
    code: int
    stdout: str
    stderr: str
    report: dict | None


def find_nvcc() -> str | None:
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda", str(BUILD / "toolkit")):
        if home and (pathlib.Path(home) / "bin/nvcc").exists():
            return str(pathlib.Path(home) / "bin/nvcc")
    return shutil.which("nvcc")


@pytest.fixture(scope="session")
def nvcc() -> str:
    path = find_nvcc()
    if path is None:
        pytest.skip("no nvcc on this machine")
    return path


@pytest.fixture(scope="session")
def built(nvcc, tmp_path_factory):
    """Compiles a CUDA source once per session: built(source, *flags) -> path of the program."""
    folder = tmp_path_factory.mktemp("programs")
    done: dict[tuple, pathlib.Path] = {}

    def build(source: pathlib.Path, *flags: str) -> pathlib.Path:
        key = (source, flags)
        if key not in done:
            program = folder / f"{source.stem}_{len(done)}"
            subprocess.run([nvcc, "-O2", "-std=c++17", "-lineinfo", "-gencode", "arch=compute_90,code=compute_90", *flags,
                            "-o", str(program), str(source)], check=True, capture_output=True, text=True, timeout=300)
            done[key] = program
        return done[key]

    return build


@pytest.fixture
def tool(tmp_path):
    """tool("run", "--check", "memory", "--", program): adds the emulator and a JSON report."""

    def run(*arguments, json_report=True, device="emulator", environment=None, timeout=300) -> Run:
        command, *rest = [str(argument) for argument in arguments]
        report_path = tmp_path / "report.json"
        report_path.unlink(missing_ok=True)
        options = []
        if command in ("run", "check-memory", "check-sync", "check-precision"):
            options += ["--device", device]
        if json_report:
            options += ["--format", "json", "--output", str(report_path)]
        result = subprocess.run([str(BUILD / "ops-debug"), command, *options, *rest], capture_output=True, text=True,
                                timeout=timeout, env={**os.environ, **(environment or {})})
        report = json.loads(report_path.read_text()) if report_path.exists() else None
        return Run(result.returncode, result.stdout, result.stderr, report)

    return run


@pytest.fixture(scope="session")
def shared_kernels() -> pathlib.Path:
    folder = SHARED / "kernels"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    return folder
