"""run --capture-launch and replay: one launch is saved with its memory and run again by itself."""
import pytest

import conftest

MATMUL = conftest.ROOT / "examples/matmul_kernel.cu"
RACE = conftest.ROOT / "examples/reduce_sum.cu"


@pytest.fixture(autouse=True)
def needs_nvcc(nvcc):
    """The runner compiles the kernel files."""


def capture(tool, file, source, *flags, run_flags=()):
    runner = conftest.BUILD / "ops-debug-runner"
    return tool("run", "--check", "memory", "--capture-launch", file, *run_flags, "--", runner, "--kernel", source, *flags)


def test_an_access_out_of_bounds_is_found_again_at_its_line(tool, tmp_path):
    file = tmp_path / "launch.capture"
    run = capture(tool, file, MATMUL, "--input-shape", "96x96")
    again = tool("replay", file)
    assert (run.code, again.code) == (86, 86), again.stderr
    places = [[(finding["kind"], finding["line"], finding["count"]) for finding in each.report["findings"]] for each in (run, again)]
    assert places[0] == places[1] != []


def test_a_race_is_found_that_the_first_run_did_not_look_for(tool, tmp_path):
    file = tmp_path / "launch.capture"
    run = capture(tool, file, RACE, "--block-size", "256")
    assert run.code == 0, run.stderr
    again = tool("replay", file, "--check", "race")
    assert again.code == 86, again.stderr
    assert [finding["kind"] for finding in again.report["findings"]] == ["race-shared"]


def test_a_right_launch_is_silent(tool, tmp_path):
    file = tmp_path / "launch.capture"
    assert capture(tool, file, conftest.ROOT / "examples/reduce_sum_fixed.cu", "--block-size", "256").code == 0
    again = tool("replay", file)
    assert (again.code, again.report["findings"]) == (0, [])
    assert again.report["coverage"]["checked_launches"] == 1
    assert [path.name for path in tmp_path.iterdir() if "capture" in path.name] == [file.name]


def test_an_old_file_is_replaced(tool, tmp_path):
    file = tmp_path / "launch.capture"
    file.write_text("old")
    capture(tool, file, RACE, "--block-size", "256")
    assert tool("replay", file, "--check", "race").code == 86


def test_what_cannot_be_saved_is_said(tool, tmp_path):
    file = tmp_path / "launch.capture"
    run = capture(tool, file, RACE, "--block-size", "256", run_flags=("--replay-memory", "1K"))
    assert not file.exists()
    assert any("could not be saved" in remark["text"] for remark in run.report["remarks"]), run.report["remarks"]


def test_damaged_and_missing_files(tool, tmp_path):
    file = tmp_path / "launch.capture"
    capture(tool, file, RACE, "--block-size", "256")
    file.write_bytes(file.read_bytes()[:1000])
    damaged, missing = tool("replay", file), tool("replay", tmp_path / "none")
    assert damaged.code == 3 and "damaged" in damaged.stderr
    assert missing.code == 2 and "cannot read" in missing.stderr


def test_memory_checking_must_be_among_the_checks(tool, tmp_path):
    run = tool("run", "--check", "race", "--capture-launch", tmp_path / "x", "--", "true")
    assert run.code == 2 and "--check memory" in run.stderr
