"""The built tool and the compiled cases. OPS_DEBUG_BUILD names the build tree (CTest sets it)."""
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
sys.path.insert(0, str(ROOT / "test/cases"))


@pytest.fixture(scope="session")
def nvcc() -> str:
    path = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(path).exists():
        pytest.skip("no nvcc on this machine")
    return path


@pytest.fixture(scope="session")
def programs() -> pathlib.Path:
    """Compiled programs stay in the build tree from one test file to the next."""
    folder = BUILD / "test/case_programs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def check(tmp_path):
    """check("all", program, ..., engine="ptx") -> (exit code, stdout, stderr, report) on the emulator."""

    def run(checks, *command, engine="auto", timeout=300):
        report = tmp_path / "report.json"
        report.unlink(missing_ok=True)
        result = subprocess.run([str(BUILD / "ops-debug"), "run", "--device", "emulator", "--engine", engine, "--check", checks, "--format", "json",
                                 "--output", str(report), "--", *map(str, command)], capture_output=True, text=True, timeout=timeout)
        return result.returncode, result.stdout, result.stderr, json.loads(report.read_text()) if report.exists() else None

    return run


@pytest.fixture(scope="session")
def shared_kernels() -> pathlib.Path:
    folder = SHARED / "kernels"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    return folder


def compile_program(nvcc: str, source: pathlib.Path, program: pathlib.Path) -> pathlib.Path:
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([nvcc, "-O2", "-std=c++17", "-lineinfo", "-Xcompiler", "-g", "-cudart", "shared", "-gencode", "arch=compute_90,code=compute_90", "-o",
                        str(program), str(source)], check=True, capture_output=True, text=True, timeout=300)
    return program
