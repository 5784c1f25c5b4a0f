"""check-sync and its relatives as a user runs them: one kernel file with a race, its right twin, and the ways to ask."""
import shutil

import pytest

import conftest

FAULTY = conftest.ROOT / "examples/reduce_sum.cu"
RIGHT = conftest.ROOT / "examples/reduce_sum_fixed.cu"
FLAGS = ("--block-size", "256")


@pytest.fixture(autouse=True)
def needs_nvcc(nvcc):
    """The runner compiles the kernel files."""


def line_of(source, text):
    return next(number for number, line in enumerate(source.read_text().splitlines(), 1) if text in line)


WRITE, READ = line_of(FAULTY, "partial[warp] = sum"), line_of(FAULTY, "? partial[threadIdx.x]")


def lines(finding):
    return sorted(access["line"] for access in finding["accesses"])


def test_both_sides_of_the_race_are_named(tool):
    run = tool("check-sync", "--kernel", FAULTY, *FLAGS)
    assert run.code == 86, run.stderr
    assert [finding["kind"] for finding in run.report["findings"]] == ["race-shared"]
    finding = run.report["findings"][0]
    assert lines(finding) == sorted([WRITE, READ])
    assert finding["kernel"].startswith("reduce_sum(")
    assert {access["access"] for access in finding["accesses"]} == {"load", "store"}
    assert finding["cause"] == "block-barrier"
    assert finding["launch"]["number"] == 1
    assert run.report["unproven"] == []
    assert run.report["coverage"]["checks"] == ["race", "sync", "init"]
    assert run.report["coverage"]["engines"] == {"emulator": {"kernels": 1}}


def test_the_remedy_stands_between_the_read_and_the_next_iterations_write(tool):
    advice = tool("check-sync", "--kernel", FAULTY, *FLAGS).report["findings"][0]["advice"]
    assert advice.startswith("add __syncthreads() behind line "), advice
    assert f"before line {WRITE} of the next iteration" in advice


def test_the_right_twin_is_silent(tool):
    run = tool("check-sync", "--kernel", RIGHT, *FLAGS)
    assert (run.code, run.report["findings"], run.report["unproven"]) == (0, [], [])
    assert run.report["coverage"]["checked_launches"] == 1


@pytest.mark.parametrize("source, code", [(FAULTY, 86), (RIGHT, 0)])
def test_all_checks_in_one_run(tool, source, code):
    run = tool("check-sync", "--check", "all", "--kernel", source, *FLAGS)
    assert run.code == code, run.stderr
    assert [finding["kind"] for finding in run.report["findings"]] == ["race-shared"] * (code == 86)
    assert run.report["coverage"]["checks"] == ["memory", "race", "sync", "init", "precision"]


@pytest.mark.parametrize("source, code", [(FAULTY, 86), (RIGHT, 0)])
def test_the_instrumented_kernel_finds_the_same(tool, source, code):
    run = tool("check-sync", "--engine", "ptx", "--kernel", source, *FLAGS)
    assert run.code == code, run.stderr
    assert run.report["coverage"]["engines"] == {"ptx": {"kernels": 1}}
    assert [lines(finding) for finding in run.report["findings"]] == [sorted([WRITE, READ])] * (code == 86)


def test_a_check_that_is_not_asked_for_finds_nothing(tool):
    for flags in (["--check", "sync,init"], ["--check", "memory"], ["--check", "none"]):
        run = tool("check-sync", *flags, "--kernel", FAULTY, *FLAGS)
        assert (run.code, run.report["findings"]) == (0, []), flags


def test_a_race_is_found_under_every_schedule(tool):
    for seed in ("1", "2"):
        run = tool("check-sync", "--replay", seed, "--kernel", FAULTY, *FLAGS)
        assert run.code == 86
        assert lines(run.report["findings"][0]) == sorted([WRITE, READ])


def test_the_log_gives_the_same_report(tool, tmp_path):
    log = tmp_path / "run.odlog"
    live = tool("check-sync", "--log", log, "--kernel", FAULTY, *FLAGS).report
    assert tool("report", log).report == live


def test_a_suppression_hides_the_race_by_the_line_of_either_side(tool, tmp_path):
    for line in (WRITE, READ):
        entry = tmp_path / "known.yaml"
        entry.write_text(f"- {{kind: race-shared, file: '*/reduce_sum.cu', line: {line}, reason: known}}\n")
        run = tool("check-sync", "--suppressions", entry, "--kernel", FAULTY, *FLAGS)
        assert (run.code, run.report["findings"]) == (0, [])
        assert len(run.report["suppressed"]) == 1


def test_a_program_is_run_as_well_as_a_kernel_file(tool, built, tmp_path):
    source = tmp_path / "program.cu"
    shutil.copy(FAULTY, source)
    with source.open("a") as program:
        program.write("""
int main() {
  float *input, *sums;
  cudaMalloc(&input, 8 * 512 * sizeof(float));
  cudaMemset(input, 0, 8 * 512 * sizeof(float));
  cudaMalloc(&sums, 8 * sizeof(float));
  reduce_sum<<<2, 64>>>(input, sums, 8, 512);
  return cudaDeviceSynchronize();
}
""")
    program = built(source, "-cudart", "shared")
    for command in (("check-sync",), ("run", "--check-sync"), ("run", "--check", "race,init")):
        run = tool(*command, "--", program)
        assert run.code == 86, run.stderr
        assert [finding["kind"] for finding in run.report["findings"]] == ["race-shared"]
