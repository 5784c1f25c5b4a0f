"""Faults from operator libraries and their right twins (programs/cases.cu)."""
import cases
import pytest


@pytest.fixture(scope="session")
def program(built):
    return built(cases.SOURCE, "-cudart", "shared")


@pytest.mark.parametrize("name", cases.EXPECTED)
def test_fault_is_found_and_the_program_goes_on(tool, program, name):
    run = tool("run", "--check", "memory", "--", program, name, "wrong")
    assert run.report is not None, run.stderr
    assert cases.problems(run.report, name) == []
    assert run.code == 86
    assert run.stdout == "no error\n"


@pytest.mark.parametrize("name", cases.EXPECTED)
def test_right_twin_is_silent(tool, program, name):
    run = tool("run", "--check", "memory", "--", program, name, "right")
    assert run.report is not None, run.stderr
    assert run.report["findings"] == []
    assert (run.code, run.stdout) == (0, "no error\n")
