"""The matrix of micro-kernels on the emulator: no miss and no false alarm but what matrix_misses.py lists."""
import os
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import evaluate  # noqa: E402
import generate  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OPS_DEBUG_BUILD", ROOT / "build"))


@pytest.fixture(scope="session")
def matrix(tmp_path_factory):
    """Sources, programs and expectations; the programs stay in the build tree, since they take half a minute to compile."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(nvcc).exists():
        pytest.skip("no nvcc on this machine")
    folder = BUILD / "test/matrix_programs"
    expectations = generate.generate(folder)
    evaluate.compile_all(nvcc, folder, "emulator")
    return folder, expectations


def test_there_are_several_hundred_of_both_verdicts(matrix):
    _, expectations = matrix
    assert sum(e.wrong for e in expectations) > 300
    assert sum(not e.wrong for e in expectations) > 300


@pytest.mark.parametrize("engine", ["auto", "ptx"])
def test_no_miss_and_no_false_alarm(matrix, engine):
    folder, expectations = matrix
    run = evaluate.Matrix(BUILD / "ops-debug", folder, "emulator", engine)
    verdicts = run.run_all(expectations)
    mode = f"emulator-{'exact' if run.exact else 'ptx'}"
    print(evaluate.format_table(verdicts, mode))
    assert evaluate.surprises(verdicts, mode) == []
