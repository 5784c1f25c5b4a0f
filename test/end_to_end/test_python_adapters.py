"""Memory pools that live in Python, with stand-ins for CuPy and RMM, and the sitecustomize that installs the adapters."""
import os
import subprocess
import sys

import conftest
import pytest

FOLDER = conftest.ROOT / "test/end_to_end/programs/fake_frameworks"
PYTHON_FOLDER = conftest.BUILD / "python"


@pytest.fixture
def check(tool):
    def run(*arguments, options=()):
        return tool("run", "--check", "memory", *options, "--", sys.executable, FOLDER / "program.py", *arguments)
    return run


def line_of(text):
    lines = (FOLDER / "program.py").read_text().splitlines()
    return next(i for i, line in enumerate(lines, start=1) if text in line)


@pytest.mark.parametrize("framework", ["cupy", "rmm"])
def test_right_use_of_a_pool_is_silent(check, framework):
    run = check(framework, "right")
    assert run.report["findings"] == []
    assert run.stdout.endswith("done\n")
    assert run.code == 0


def test_one_element_past_a_block_of_cupys_pool(check):
    run = check("cupy", "overflow")
    assert run.code == 86
    (finding,) = run.report["findings"]
    assert finding["kind"] == "oob-global"
    assert finding["allocation"]["size_bytes"] == 400
    tensor = finding["allocation"]["tensor"]
    assert tensor["framework"] == "CuPy"
    frames = [(frame["function"], frame["line"]) for frame in tensor["allocation_stack"]]
    assert ("cupy_case.<locals>.make", line_of("return pool.malloc(4 * count)")) in frames
    assert not any(frame["file"].startswith(str(PYTHON_FOLDER)) for frame in tensor["allocation_stack"])


def test_a_freed_block_of_cupys_pool(check):
    (finding,) = check("cupy", "freed").report["findings"]
    assert finding["kind"] == "use-after-free"
    assert finding["count"] == 100
    frames = [frame["line"] for frame in finding["allocation"]["tensor"]["free_stack"]]
    assert line_of("address = block.ptr") + 1 in frames


def test_every_thread_reports_its_blocks(check):
    (finding,) = check("cupy", "thread").report["findings"]
    assert finding["count"] == 1
    assert finding["allocation"]["size_bytes"] == 280


def test_one_element_past_a_block_of_rmms_pool(check):
    run = check("rmm", "overflow")
    assert run.stdout == "True 65536\ndone\n"  # the program sees the resource that it set
    (finding,) = run.report["findings"]
    assert finding["allocation"]["tensor"]["framework"] == "RMM"
    assert finding["allocation"]["size_bytes"] == 400


def run_python(code, *folders, **environment):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (PYTHON_FOLDER, *folders))), **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_the_users_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.from_user = __name__, __file__\n")
    run = run_python("import sitecustomize; print(*from_user, sitecustomize.__file__)", tmp_path)
    own = str(tmp_path / "sitecustomize.py")
    assert run.stdout == f"sitecustomize {own} {own}\n"
    assert run.stderr == ""


def test_an_error_in_the_users_sitecustomize_is_what_it_was(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    code = "print('program')"
    with_ours = run_python(code, tmp_path)
    without = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(tmp_path)},
                             capture_output=True, text=True, timeout=60)
    assert with_ours.stdout == without.stdout == "program\n"
    assert "ValueError: mine" in without.stderr
    assert with_ours.stderr == without.stderr


def test_without_a_session_nothing_is_added(tmp_path):
    code = "import sys; print([m for m in sys.modules if m.startswith('ops_debug')], len(sys.meta_path))"
    with_ours = run_python(code)
    without = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ""}, capture_output=True,
                             text=True, timeout=60)
    assert with_ours.stdout == without.stdout


def test_the_import_hook_leaves_no_trace_in_the_module(tmp_path):
    code = ("import cupy; print(type(cupy.__loader__).__name__, cupy.__spec__.loader is cupy.__loader__,"
            " cupy.__loader__.get_data is not None)")
    (tmp_path / "cupy.py").write_text("value = 1\n")
    run = run_python(code, tmp_path, OPS_DEBUG_RING="none")
    assert run.stdout == "SourceFileLoader True True\n"
    assert run.stderr == ""
