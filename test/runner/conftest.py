"""Runs build/ops-debug-runner, by itself or on the CPU device."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))


class Runner:
    def __init__(self, environment):
        self.environment = environment

    def __call__(self, *arguments, **variables):
        """The finished process; `variables` are added to its environment, None removes one."""
        environment = dict(self.environment)
        for name, value in variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = str(value)
        return subprocess.run(
            [str(BUILD / "ops-debug-runner"), *map(str, arguments)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def runner():
    """The runner on this machine as it is, most likely without a driver."""
    return Runner(os.environ)


@pytest.fixture
def emulated():
    """The runner on the CPU device."""
    assert (BUILD / "emulator" / "libcuda.so.1").exists(), "the emulator is not built"
    return Runner({**os.environ, "LD_LIBRARY_PATH": str(BUILD / "emulator"), "OPS_DEBUG_EMULATOR": "1"})


@pytest.fixture
def source(tmp_path):
    """Writes a .cu file and returns its path."""

    def write(text, name="kernel.cu"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
