"""What a user chooses to have checked and reported: filters, suppressions, leaks; and how the report accounts for it."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/filters.cu"


@pytest.fixture(scope="module")
def program(built):
    return built(SOURCE, "-cudart", "shared", "-g")


def kernels(run):
    """By bare name: launches, checked launches, reasons."""
    return {
        kernel["name"].split("(")[0]: (
            kernel["launches"],
            kernel["checked_launches"],
            [(entry["reason"], entry["launches"]) for entry in kernel.get("not_checked", [])],
        )
        for kernel in run.report["coverage"]["by_kernel"]
    }


def test_all_is_checked_without_a_filter(tool, program):
    run = tool("run", "--", program)
    assert kernels(run) == {"scale": (6, 6, []), "overflow": (4, 4, [])}
    assert run.report["coverage"]["not_checked"] == []


@pytest.mark.parametrize("name", ["scale", "^_Z5scale", r"^scale\(float\*, int\)$"])
def test_kernel_name_leaves_other_kernels_alone(tool, program, name):
    run = tool("run", "--kernel-name", name, "--", program)
    assert run.code == 0  # the kernel with the fault was left out
    assert run.report["findings"] == []
    assert kernels(run) == {"scale": (6, 6, []), "overflow": (4, 0, [(f"left out by --kernel-name {name}", 4)])}


def test_skip_and_count_choose_launches_of_each_kernel(tool, program):
    run = tool("run", "--launch-skip", "1", "--launch-count", "2", "--", program)
    assert kernels(run) == {
        "scale": (6, 2, [("left out by --launch-count 2", 3), ("left out by --launch-skip 1", 1)]),
        "overflow": (4, 2, [("left out by --launch-count 2", 1), ("left out by --launch-skip 1", 1)]),
    }
    assert [finding["count"] for finding in run.report["findings"]] == [2, 2]  # load and store


def test_sample_checks_one_launch_in_n(tool, program):
    run = tool("run", "--sample", "1/4", "--", program)
    assert kernels(run) == {
        "scale": (6, 2, [("left out by --sample 1/4", 4)]),
        "overflow": (4, 1, [("left out by --sample 1/4", 3)]),
    }
    assert [finding["count"] for finding in run.report["findings"]] == [1, 1]


def test_a_filter_that_leaves_out_everything_is_no_clean_run(tool, program):
    run = tool("run", "--kernel-name", "no such kernel", "--", program)
    assert run.code == 4
    assert "none of the 10 launches could be checked" in run.stderr


def test_required_coverage_counts_what_filters_leave_out(tool, program):
    assert tool("run", "--kernel-name", "scale", "--require-coverage", "61", "--", program).code == 4
    assert tool("run", "--kernel-name", "scale", "--require-coverage", "60", "--", program).code == 0


def test_kernels_are_timed_so_that_the_share_of_the_gpu_time_is_known(tool, program):
    run = tool("run", "--kernel-name", "scale", "--", program)
    by_kernel = run.report["coverage"]["by_kernel"]
    assert all(kernel["timed_launches"] == 3 for kernel in by_kernel)
    assert all(kernel["timed_duration_ns"] > 0 for kernel in by_kernel)
    time = run.report["coverage"]["gpu_time"]
    assert 0 < time["estimated_checked_percent"] < 100
    assert time["timed_launches"] == 6
    assert time["untimed_kernels"] == 0


def test_text_report_tells_the_share_and_the_filters(tool, program):
    run = tool("run", "--kernel-name", "scale", "--list-kernels", "--", program, json_report=False)
    assert "checked: 1 of 2 kernels, 6 of 10 launches (60 %), about " in run.stderr
    assert "  overflow(float*, int), 4 of 4 launches: left out by --kernel-name scale\n" in run.stderr
    rows = [line.split() for line in run.stderr.splitlines() if line.endswith("(float*, int)") and "%" in line]
    assert sorted((row[0], row[1], row[4], row[5]) for row in rows) == [
        ("4", "0", "none", "overflow(float*,"),
        ("6", "6", "ptx", "scale(float*,"),
    ]


def test_generated_suppressions_hide_the_findings_they_were_generated_for(tool, program, tmp_path):
    found = tool("run", "--gen-suppressions", "--", program)
    assert found.code == 86
    entries = [finding["suppression"] for finding in found.report["findings"] if "suppression" in finding]
    assert len(entries) == 1  # load and store of one line
    file = tmp_path / "known.yaml"
    file.write_text("# of our program\n" + "".join(entries))
    hidden = tool("run", "--suppressions", file, "--", program)
    assert hidden.code == 0
    assert hidden.report["findings"] == []
    assert len(hidden.report["suppressed"]) == 2
    assert hidden.report["suppressions"] == [
        {"file": str(file), "line": 2, "reason": hidden.report["suppressions"][0]["reason"], "shipped": False,
         "findings": 2}
    ]  # fmt: skip
    text = tool("run", "--suppressions", file, "--", program, json_report=False)
    assert f"suppressed: 2 findings by 1 entry of {file}\n" in text.stderr
    assert text.stderr.endswith("ops-debug: no findings, 2 kernels, 2 checked, 2 suppressed\n")


def test_suppressions_are_for_logs_too_and_may_be_several(tool, program, tmp_path):
    log = tmp_path / "run.odlog"
    assert tool("run", "--log", log, "--", program).code == 86
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("- kind: leak\n  reason: none here\n")
    second.write_text("- {kernel: overflow, reason: a demonstration}\n")
    report = tool("report", "--suppressions", first, "--suppressions", second, log)
    assert report.code == 0
    assert [entry["findings"] for entry in report.report["suppressions"]] == [0, 2]


def test_a_wrong_file_is_told_of_before_the_program_runs(tool, program, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("- kind: leak\n  reason: x\n- kernel: '*'\n  reason: hide it all\n")
    run = tool("run", "--suppressions", file, "--", program)
    assert (run.code, run.stdout) == (3, "")
    assert f"{file}:3: the entry would hide every finding" in run.stderr
    run = tool("run", "--suppressions", tmp_path / "missing.yaml", "--", program)
    assert (run.code, run.stdout) == (3, "")
    assert "missing.yaml" in run.stderr


def test_leaks_are_listed_by_place_biggest_first_and_are_warnings(tool, program):
    run = tool("run", "--leak-check", "--", program, "leak")
    assert run.code == 0
    leaks = run.report["findings"]
    assert [leak["kind"] for leak in leaks] == ["leak", "leak"]
    assert [leak["severity"] for leak in leaks] == ["warning", "warning"]
    assert [(leak["leaked_bytes"], leak["count"]) for leak in leaks] == [(16384, 2), (512, 1)]
    lines = [leak["allocation"]["allocation_stack"][0]["line"] for leak in leaks]
    source = SOURCE.read_text().splitlines()
    assert "values, count * sizeof" in source[lines[0] - 1] or "Allocate(2048)" in source[lines[0] - 1]
    assert "&small" in source[lines[1] - 1]


def test_a_program_that_frees_its_memory_has_no_leak(tool, program):
    run = tool("run", "--leak-check", "--kernel-name", "scale", "--", program)
    assert run.code == 0
    assert run.report["findings"] == []


def test_leaks_are_not_looked_for_unless_asked(tool, program):
    assert tool("run", "--", program, "leak").report["findings"] == []


def test_a_program_without_driver_calls_gets_one_line(tool):
    run = tool("run", "--", "true", json_report=False)
    assert run.code == 0
    assert run.stderr.startswith("ops-debug: no CUDA driver call was seen; ")
    assert run.stderr.count("\n") == 1


def keys_of(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    if isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def test_every_json_field_is_documented(tool, program, tmp_path):
    file = tmp_path / "known.yaml"
    file.write_text("- {kind: leak, reason: for this test}\n")
    run = tool("run", "--leak-check", "--gen-suppressions", "--suppressions", file, "--sample", "1/2", "--", program)
    documented = (conftest.ROOT / "analysis/README.md").read_text()
    missing = {key for key in keys_of(run.report) if f"`{key}`" not in documented and f".{key}" not in documented}
    assert missing == set()
