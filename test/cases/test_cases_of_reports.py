"""Faults of public reports: the faulty program is found at its lines, the fixed one and every trap are silent."""
import concurrent.futures

import case_table
import conftest
import case_misses
import pytest

CASES = {case.name: case for case in case_table.read_cases()}
ENGINES = ("auto", "ptx")


@pytest.fixture(scope="module", params=ENGINES)
def seen(request, nvcc, programs):
    """(runner, case and variant -> problems and whether it is unproven), all programs run side by side."""
    case_table.compile_all(nvcc, programs, "emulator")
    runner = case_table.Runner(conftest.BUILD / "ops-debug", programs, "emulator", request.param)
    wanted = [(case, variant) for case in CASES.values() for variant in ("wrong", "right") if variant == "right" or not case.is_trap]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda pair: runner.run(pair[0], pair[1] == "wrong"), wanted))
    return runner, {(case.name, variant): result for (case, variant), result in zip(wanted, results)}


def test_every_case_is_found_and_every_right_program_silent(seen):
    runner, results = seen
    rows = [(case, *results.get((name, "wrong"), ([], False)), *results[name, "right"]) for name, case in CASES.items()]
    print(case_table.format_table(rows, runner.mode))
    listed = case_misses.TABLES[runner.mode]
    assert {key: problems for key, (problems, _) in results.items() if problems and key not in listed} == {}
    assert [key for key in listed if key not in results or not results[key][0]] == [], "listed, but decided: take them out"


def test_what_is_left_unproven_is_known(seen):
    runner, results = seen
    unproven = {key for key, (_, unproven) in results.items() if unproven and key not in case_misses.TABLES[runner.mode]}
    assert unproven == (set() if runner.exact else case_misses.UNPROVEN_ON_THE_DEVICE.keys())
