"""Every way in which a program can reach the driver runs unchanged under the tool, and its faults are found."""
import os
import pathlib
import subprocess

import conftest
import pytest

PROGRAMS = conftest.BUILD / "test/programs"
SOURCES = conftest.ROOT / "test/end_to_end/programs"


@pytest.fixture(params=["end_to_end_driver_dlopen", "end_to_end_driver_linked"])
def driver_program(request):
    return PROGRAMS / request.param


def test_driver_api_program_runs_unchanged_and_silent(tool, driver_program):
    run = tool("run", "--check", "memory", "--", driver_program)
    assert run.stdout == "sum 499500\n"
    assert run.report["findings"] == []
    assert run.code == 0


def test_driver_api_program_has_both_launch_forms_checked(tool, driver_program):
    run = tool("run", "--check", "memory", "--", driver_program, "overflow")
    assert run.stdout == "sum 499500\n"  # the bad store is skipped, the others are made
    assert [(f["kind"], f["count"]) for f in run.report["findings"]] == [("oob-global", 2)]
    assert run.code == 86


def test_fault_without_line_info_names_the_ptx_line_and_advises_lineinfo(tool, driver_program):
    finding = tool("run", "--check", "memory", "--", driver_program, "overflow").report["findings"][0]
    assert "line" not in finding
    assert finding["ptx_line"] == 21
    assert "-lineinfo" in finding["advice"]


@pytest.fixture(scope="module")
def runtime_program(built):
    return built(SOURCES / "runtime_api.cu", "-cudart", "shared")


def test_shared_cudart_program_runs_unchanged_and_silent(tool, runtime_program):
    run = tool("run", "--check", "memory", "--", runtime_program)
    assert run.stdout == "sum 1998.0 no error\n"
    assert run.report["findings"] == []
    assert run.code == 0


def test_fault_in_a_function_that_is_not_inlined_names_kernel_and_function(tool, runtime_program):
    run = tool("run", "--check", "memory", "--", runtime_program, "overflow")
    assert run.code == 86
    assert len(run.report["findings"]) == 1
    finding = run.report["findings"][0]
    assert finding["kind"] == "oob-global"
    assert finding["kernel"].startswith("differences(")
    assert finding["function"].startswith("element(")


def test_a_program_that_names_the_folder_of_nvidias_runtime_gets_the_emulators(tool, nvcc, tmp_path):
    folder = pathlib.Path(nvcc).parent.parent / "lib64"
    if not (folder / "libcudart.so.13").exists():
        pytest.skip("the toolkit has no shared run-time")
    program = tmp_path / "program"
    subprocess.run([nvcc, "-std=c++17", "-gencode", "arch=compute_90,code=compute_90", "-cudart", "shared", "-Xlinker",
                    f"--disable-new-dtags,-rpath={folder}", "-o", str(program), str(SOURCES / "runtime_api.cu")],
                   check=True, capture_output=True, text=True, timeout=300)
    assert str(folder) in subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    run = tool("run", "--check", "memory", "--", program)
    assert run.code == 0, run.stderr
    assert run.report["coverage"]["checked_launches"] == run.report["coverage"]["launches"] > 0
    assert run.report["remarks"] == []


def test_static_cudart_is_refused_on_the_emulator_with_the_flag_to_use(tool, built):
    run = tool("run", "--check", "memory", "--", built(SOURCES / "runtime_api.cu", "-cudart", "static"))
    assert "-cudart shared" in run.stderr


def test_program_with_its_own_protobuf_and_abseil_runs_unchanged(tool):
    program = PROGRAMS / "end_to_end_own_protobuf"
    run = tool("run", "--check", "memory", "--", program)
    assert run.stdout == "protobuf 42\ndriver 0 1\n"
    assert run.code == 0


def test_exit_code_of_the_program_is_kept(tool):
    assert tool("run", "--check", "memory", "--", "sh", "-c", "exit 7").code == 7


def test_report_of_the_log_equals_the_live_report(tool, runtime_program, tmp_path):
    log = tmp_path / "run.odlog"
    live = tool("run", "--check", "memory", "--log", log, "--", runtime_program, "overflow")
    offline = tool("report", log)
    assert offline.report == live.report


# What programs reach by name besides the driver: look-ups, exec and signals (interposer/README.md), compilers.
EXPORTED = {"dlsym", "dlvsym", "InitializeInjection", "sigaction", "signal", "_exit", "_Exit", "execve", "execv", "execvp", "execvpe",
            "execl", "execlp", "execle", "fexecve", "posix_spawn", "posix_spawnp"}
EXPORTED_FAMILIES = ("cu", "nvrtc", "nvJitLink", "__nvJitLink", "ops_debug_", "_ZN3c1027reportMemoryUsageToProfilerE",
                     "_ZN2at6detail")


def test_preload_library_exports_only_driver_names_and_the_lookups(tool):
    library = conftest.BUILD / "lib/libops_debug_interposer.so"
    lines = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True)
    names = [line.split()[-1].split("@")[0] for line in lines.stdout.splitlines()]
    assert "cuLaunchKernel" in names and "dlsym" in names
    assert [name for name in names if not name.startswith(EXPORTED_FAMILIES) and name not in EXPORTED] == []


def test_packed_folder_runs_elsewhere_and_replaces_nothing_of_the_users(tmp_path):
    pack = [str(conftest.ROOT / "scripts/pack.sh"), str(tmp_path / "packed")]
    environment = {**os.environ, "OPS_DEBUG_BUILD": str(conftest.BUILD)}
    for _ in range(2):
        subprocess.run(pack, env=environment, check=True, capture_output=True, timeout=60)
    run = subprocess.run([str(tmp_path / "packed/ops-debug"), "run", "--device", "emulator", "--",
                          str(PROGRAMS / "end_to_end_driver_dlopen"), "overflow"],
                         env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert run.returncode == 86, run.stderr
    (tmp_path / "mine").mkdir()
    refused = subprocess.run([pack[0], str(tmp_path / "mine")], env=environment, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "was not made by pack.sh" in refused.stderr
