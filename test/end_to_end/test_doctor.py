"""`ops-debug doctor` on machines that are odd in every way: it tells what is there, what is missing and what that costs."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import conftest
import pytest
import test_scarcity

TOOL = conftest.BUILD / "ops-debug"
STANDINGS = {"ok", "note", "limits", "missing"}


@pytest.fixture
def machine(tmp_path):
    """A machine to be filled: machine.file(path, text) below its root, machine.doctor(...) -> exit code and JSON."""
    return FakeMachine(tmp_path)


class FakeMachine:
    def __init__(self, folder: pathlib.Path):
        self.folder, self.root, self.bin = folder, folder / "root", folder / "bin"
        self.root.mkdir()
        self.bin.mkdir()
        self.environment = {"PATH": str(self.bin), "HOME": str(folder), "LANG": "C.UTF-8"}
        self.tool = TOOL

    def file(self, path: str, text: str) -> pathlib.Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def program(self, name: str, script: str) -> pathlib.Path:
        file = self.bin / name
        file.write_text("#!/bin/sh\n" + script)
        file.chmod(0o755)
        return file

    def library(self, name: str, source: str) -> pathlib.Path:
        if shutil.which("cc") is None:
            pytest.skip("no C compiler")
        folder = self.folder / "libraries"
        folder.mkdir(exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(folder / name), "-x", "c", "-"], input=source,
                       text=True, check=True, env=os.environ)
        self.environment["LD_LIBRARY_PATH"] = str(folder)
        return folder / name

    def run(self, *flags: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(self.tool), "doctor", "--root", str(self.root), "--patience", "3", *flags],
                              capture_output=True, text=True, timeout=60, env=self.environment)

    def doctor(self) -> tuple[int, dict]:
        run = self.run("--format", "json")
        answer = json.loads(run.stdout)
        check_schema(answer)
        assert run.returncode == (0 if answer["gpu_checking"] else 4 if answer["emulator"] else 3)
        return run.returncode, answer

    def observe(self, name: str) -> dict:
        """The one observation with that id or subject."""
        found = [each for each in self.doctor()[1]["observations"] if name in (each["id"], each["subject"])]
        assert len(found) == 1, (name, found)
        return found[0]


def check_schema(answer: dict) -> None:
    assert answer.keys() == {"schema", "gpu_checking", "emulator", "summary", "observations"}
    assert answer["schema"] == 1
    assert isinstance(answer["gpu_checking"], bool) and isinstance(answer["emulator"], bool)
    for each in answer["observations"]:
        assert {"id", "subject", "standing", "found"} <= each.keys() <= {"id", "subject", "standing", "found", "cost",
                                                                          "advice", "details"}
        assert each["standing"] in STANDINGS
        assert all(isinstance(value, str) and value for key, value in each.items() if key != "details"), each
        assert all(isinstance(value, str) for value in each.get("details", {}).values())
        if each["standing"] in ("limits", "missing"):
            assert "cost" in each, each
        assert "\n" not in "".join(value for key, value in each.items() if key != "details")


def test_empty_machine_offers_the_emulator_and_says_what_each_missing_thing_costs(machine):
    machine.environment["OPS_DEBUG_SANITIZER_LIBRARY"] = str(machine.folder / "none.so")  # the build may have one
    code, answer = machine.doctor()
    assert code == 4
    assert answer["summary"] == "programs cannot be checked on a GPU here; kernels can on the emulator"
    by_id = {each["id"]: each for each in answer["observations"]}
    assert by_id["driver"]["standing"] == "missing"
    assert "--kernel FILE.cu" in by_id["nvcc"]["cost"]
    assert "not found" in by_id["cuobjdump"]["found"]
    assert by_id["python"]["found"] == "no python3 in PATH"
    assert by_id["sanitizer-api"]["standing"] == "limits"
    assert by_id["emulator"]["standing"] == by_id["ops-debug"]["standing"] == "ok"


def test_text_has_one_line_for_each_observation(machine):
    run = machine.run()
    _, answer = machine.doctor()
    table, summary = run.stdout.rstrip("\n").rsplit("\n\n", 1)
    lines = table.split("\n")
    heads = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[0] for line in heads] == [each["standing"] for each in answer["observations"]]
    assert all(line.lstrip().startswith(("means: ", "do:    ")) for line in lines if line.startswith(" "))
    assert summary == answer["summary"]
    assert run.stderr == ""


def test_unknown_format_and_operands_are_usage_errors(machine):
    assert machine.run("--format", "xml").returncode == 2
    assert machine.run("program").returncode == 2


# ---- driver and GPU ----


def test_working_driver_makes_gpu_checking_work(machine):
    # The emulator's driver stands in for NVIDIA's.
    machine.environment["LD_LIBRARY_PATH"] = str(conftest.BUILD / "emulator")
    code, answer = machine.doctor()
    assert code == 0
    gpu = next(each for each in answer["observations"] if each["id"] == "gpu")
    assert "compute capability 9.0" in gpu["found"]
    assert answer["summary"].startswith("programs can be checked on the GPU")


FAKE_DRIVER = """
#include <string.h>
int cuInit(unsigned f) { INIT; return 0; }
int cuDriverGetVersion(int* v) { *v = 13000; return 0; }
int cuDeviceGetCount(int* n) { *n = 2; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetName(char* n, int l, int d) { strcpy(n, "NVIDIA Fake\\t100"); return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? 10 : a == 76 ? 3 : a == 20 ? MODE : 0; return 0; }
int cuDeviceTotalMem_v2(unsigned long* v, int d) { *v = 80ul << 30; return 0; }
int cuGetErrorName(int e, const char** n) { *n = "CUDA_ERROR_FAKE"; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { *c = c; return RETAIN; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxSetCurrent(void* c) { return 0; }
int cuModuleLoadData(void** m, const void* i) { return LOAD; }
"""


def fake_driver(machine, **values):
    source = FAKE_DRIVER
    for name, default in {"INIT": "", "MODE": "0", "RETAIN": "0", "LOAD": "0"}.items():
        source = source.replace(name, values.get(name, default))
    machine.library("libcuda.so.1", source)


@pytest.mark.parametrize("init, words", [
    ("*(volatile int*)0 = 1", "was killed by signal 11"),
    ("__builtin_trap()", "was killed by signal 4"),
    ("for (;;) ;", "does not answer"),
])
def test_driver_that_crashes_or_hangs_hurts_nobody(machine, init, words):
    fake_driver(machine, INIT=init)
    start = time.monotonic()
    driver = machine.observe("driver")
    assert time.monotonic() - start < 20
    assert driver["standing"] == "missing" and words in driver["found"]


def test_driver_that_does_not_start_is_named_with_its_error(machine):
    fake_driver(machine, INIT="return 803")
    driver = machine.observe("driver")
    assert driver["standing"] == "missing"
    assert "does not start: CUDA_ERROR_FAKE (803)" in driver["found"]


def test_library_that_is_no_driver_is_no_driver(machine):
    machine.library("libcuda.so.1", "int cuInit(unsigned f) { return 0; }")
    assert "lacks functions" in machine.observe("driver")["found"]


def test_driver_that_cannot_compile_ptx_cannot_check(machine):
    fake_driver(machine, LOAD="222")
    code, answer = machine.doctor()
    assert code == 4
    gpus = [each for each in answer["observations"] if each["id"] == "gpu"]
    assert [each["standing"] for each in gpus] == ["missing", "missing"]
    assert "ptxjitcompiler" in gpus[0]["advice"]


def test_gpu_in_exclusive_mode_and_in_use(machine):
    fake_driver(machine, RETAIN="46", MODE="3")
    code, answer = machine.doctor()
    gpu = next(each for each in answer["observations"] if each["id"] == "gpu")
    assert code == 4
    assert "exclusive mode and in use" in gpu["advice"]


def test_one_broken_gpu_beside_a_good_one_limits_only(machine):
    fake_driver(machine, LOAD="0", RETAIN="d == 1 ? 2 : 0")
    code, answer = machine.doctor()
    assert code == 0
    assert [each["standing"] for each in answer["observations"] if each["id"] == "gpu"] == ["ok", "limits"]


def test_disabled_ptx_compiler_in_the_environment(machine):
    fake_driver(machine)
    machine.environment["CUDA_DISABLE_PTX_JIT"] = "1"
    code, answer = machine.doctor()
    assert code == 4
    assert next(each for each in answer["observations"] if each["id"] == "environment")["advice"] == \
        "unset CUDA_DISABLE_PTX_JIT"


def test_kernel_module_without_library_gets_other_advice(machine):
    machine.file("/dev/nvidiactl", "")
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue\n")
    driver = machine.observe("driver")
    assert driver["details"]["kernel_module"] == "580.159.03"
    assert "--gpus all" in driver["advice"]


# ---- system ----


@pytest.mark.parametrize("value, words", [("1", "only administrators"), ("0", "every user")])
def test_counter_permission(machine, value, words):
    machine.file("/proc/driver/nvidia/params", f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {value}\n")
    counters = machine.observe("counters")
    assert words in counters["found"]
    assert counters["details"] == {"RmProfilingAdminOnly": value}


@pytest.mark.parametrize("scope, standing", [("0", "ok"), ("1", "note"), ("3", "note")])
def test_ptrace(machine, scope, standing):
    machine.file("/proc/sys/kernel/yama/ptrace_scope", scope + "\n")
    ptrace = machine.observe("ptrace")
    assert ptrace["standing"] == standing and ptrace["details"]["yama_ptrace_scope"] == scope


def test_container_and_its_memory(machine):
    machine.file("/.dockerenv", "")
    machine.file("/sys/fs/cgroup/memory.max", str(2 << 30) + "\n")
    machine.environment["NVIDIA_DRIVER_CAPABILITIES"] = "utility"
    container = machine.observe("container")
    assert container["found"].startswith("Docker, 2048 MiB of memory")
    assert container["standing"] == "limits" and "compute,utility" in container["advice"]


@test_scarcity.needs_mount
def test_tiny_shared_memory_limits_and_is_measured(machine):
    command = f"{TOOL} doctor --format json"
    run = test_scarcity.shell(command, {"/dev/shm": "size=256k"})
    memory = next(each for each in json.loads(run.stdout)["observations"] if each["id"] == "shared-memory")
    assert memory["found"].startswith("256 KiB, 256 KiB free")
    assert memory["standing"] == "limits" and "nameless memory" in memory["cost"]


def test_limits_are_read(machine):
    run = test_scarcity.shell(f"ulimit -v 4000000; ulimit -n 64; {TOOL} doctor --format json")
    by_id = {each["id"]: each for each in json.loads(run.stdout)["observations"]}
    assert by_id["limit-address-space"]["details"]["limit"] == str(4000000 * 1024)
    assert by_id["limit-open-files"]["standing"] == "limits"


def test_no_room_for_a_ring_means_nothing_works(machine):
    run = test_scarcity.shell(f"ulimit -f 8; {TOOL} doctor --format json")
    answer = json.loads(run.stdout)
    assert run.returncode == 3
    assert next(each for each in answer["observations"] if each["id"] == "shared-memory")["standing"] == "missing"


def test_home_that_is_no_folder_limits_the_store(machine):
    machine.environment["HOME"] = "/dev/null"
    store = machine.observe("ptx-store")
    assert store["standing"] == "limits" and "--ptx-store" in store["advice"]


def test_store_is_measured(machine):
    store = machine.folder / ".cache/ops-debug/ptx"
    store.mkdir(parents=True)
    (store / "entry").write_bytes(b"x" * 3000)
    assert machine.observe("ptx-store")["details"] == {"bytes": "3000", "files": "1", "path": str(store)}


# ---- toolkit, Python, other tools, our own files ----


def test_toolkit_is_found_in_path_and_in_cuda_home(machine):
    answer = "echo 'nvcc: NVIDIA (R) Cuda compiler driver'; echo 'Cuda compilation tools, release 12.4, V12.4.131'\n"
    machine.program("nvcc", answer)
    assert machine.observe("nvcc")["found"] == f"12.4.131, {machine.bin}/nvcc"
    (machine.bin / "nvcc").unlink()
    home = machine.root / "opt/cuda"
    (home / "bin").mkdir(parents=True)
    shutil.copy(machine.program("ptxas", answer), home / "bin/ptxas")
    (machine.bin / "ptxas").unlink()
    machine.environment["CUDA_HOME"] = "/opt/cuda"
    assert machine.observe("ptxas")["details"]["version"] == "12.4.131"


def test_compiler_that_hangs_is_told_of_within_its_time(machine):
    machine.program("nvcc", "/bin/sleep 100 & wait\n")
    start = time.monotonic()
    assert "does not answer" in machine.observe("nvcc")["found"]
    assert time.monotonic() - start < 20


def test_cupti_and_its_version(machine):
    machine.file("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "")
    machine.file("/usr/local/cuda/version.json", '{"cuda_cupti": {"name": "CUPTI", "version": "13.0.85"}}')
    assert machine.observe("cupti")["details"]["version"] == "13.0.85"


def python_packages(machine, **sources):
    """A python3 in PATH that sees these packages."""
    machine.program("python3", f'exec {sys.executable} -S "$@"\n')
    folder = machine.folder / "site-packages"
    for name, (version, source) in sources.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source)
        (folder / f"{name}-{version}.dist-info").mkdir()
        (folder / f"{name}-{version}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    machine.environment["PYTHONPATH"] = str(folder)


TORCH = """
class version: cuda = {cuda!r}
class _C:
    def _cuda_getArchFlags(): return {flags!r}
"""


def test_torch_without_ptx_is_told_of(machine):
    python_packages(machine, torch=("2.11.0", TORCH.format(cuda="13.0", flags="sm_75 sm_80 sm_90")),
                    triton=("3.6.0", "raise SystemExit('never imported')"))
    torch = machine.observe("torch")
    assert torch["found"] == "2.11.0, CUDA 13.0, built for sm_75 sm_80 sm_90"
    assert "SASS only" in torch["cost"]
    assert machine.observe("triton")["found"] == "3.6.0"


def test_torch_without_cuda(machine):
    python_packages(machine, torch=("2.11.0+cpu", TORCH.format(cuda=None, flags="")))
    assert machine.observe("torch")["found"] == "2.11.0+cpu, without CUDA"


def test_torch_that_cannot_be_imported(machine):
    python_packages(machine, torch=("2.11.0", "import os; os.abort()"))
    torch = machine.observe("torch")
    assert torch["standing"] == "limits" and "was killed by signal 6" in torch["found"]


@pytest.mark.parametrize("script, words", [("/bin/sleep 100\n", "does not answer"), ("exit 9\n", "exit code 9")])
def test_python_that_does_not_work(machine, script, words):
    machine.program("python3", script)
    assert words in machine.observe("python")["found"]


def test_python_that_talks_without_end(machine):
    machine.program("python3", "while :; do echo package\tnumpy\t1; done\n")
    machine.doctor()


def test_other_tools_are_named(machine):
    machine.file("/proc/77/comm", "nv-hostengine\n")
    machine.file("/proc/78/comm", "compute-sanitizer\n"[:15])
    machine.environment["CUDA_INJECTION64_PATH"] = "/opt/nsight/libinjection.so"
    machine.environment["LD_PRELOAD"] = ""
    assert "counters" in machine.observe("DCGM")["cost"]
    assert machine.observe("compute-sanitizer")["found"] == "runs on this machine"
    assert machine.observe("CUDA_INJECTION64_PATH")["found"] == "/opt/nsight/libinjection.so"


def test_bytes_that_are_no_text_stay_valid_json(machine):
    machine.environment = {os.fsencode(key): os.fsencode(value) for key, value in machine.environment.items()}
    machine.environment[b"CUDA_INJECTION64_PATH"] = b"/\xff\"\\\x01/\xe2\x82"
    run = subprocess.run([str(TOOL), "doctor", "--format", "json", "--root", str(machine.root)], capture_output=True,
                         timeout=60, env=machine.environment)
    check_schema(json.loads(run.stdout.decode("utf-8")))


def test_broken_installation_is_told_of(machine):
    copy = machine.folder / "copy"
    copy.mkdir()
    machine.tool = shutil.copy(TOOL, copy / "ops-debug")
    code, answer = machine.doctor()
    assert code == 3 and answer["summary"] == "ops-debug does not work here"
    missing = {each["id"] for each in answer["observations"] if each["standing"] == "missing"}
    assert {"interposer", "analyzer"} <= missing


def test_damaged_preload_library_is_told_of(machine):
    copy = machine.folder / "copy"
    (copy / "lib").mkdir(parents=True)
    for name in ("ops-debug", "ops-debug-analyzer"):
        shutil.copy(conftest.BUILD / name, copy / name)
    (copy / "lib/libops_debug_interposer.so").write_bytes(b"\x7fELF but no more")
    machine.tool = copy / "ops-debug"
    assert machine.observe("interposer")["standing"] == "missing"
