"""Rows for programs that use real frameworks (test/gpu/frameworks): each runs natively, then unchanged under ops-debug.

A right program must end the same, print the same, give no finding, and have every launch checked. A faulty one must give
its finding: kind, tensor, and the line (of kernels without source: the function).
"""
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import time

from gpu_session import BUILD, Outcome, Session, run_process

PROGRAMS = pathlib.Path(__file__).resolve().parent / "frameworks"
PYTHON = sys.executable
# Lines that may differ between two runs of the same program.
TIMES = re.compile(r"median step [\d.]+ ms, ")
# Rows run side by side on one GPU and a few cores.
QUIET = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".05", "OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "4", "MAX_JOBS": "3",
         "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A finding. Empty fields: anything goes."""
    kind: str
    shape: list[int] | None = None  # of a float32 tensor
    kernel: str = ""  # regular expression
    statement: str = ""  # text of the faulty line
    place: str = ""  # name of the file that the line is in
    source: str = ""  # where the statement can be read, if not in `place`, which may be gone by then
    first_line: str = ""  # text in `source` of the line that the compiler knew as line 1
    size_bytes: int = 0  # of the block
    allocated_in: str = ""  # name of a file in the Python stack of the block's allocation
    engine: str = ""  # that found it


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    command: list[str]
    findings: tuple[Wanted, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()  # of ops-debug run
    launches: bool = True  # False: the program has no GPU work
    cold: bool = False  # compile caches are empty under the tool; else native's run filled them, as on a user's machine
    compiled_by: str = ""  # share the caches of the programs with this name
    remark: str = ""  # regular expression that one remark of the report must match
    processes: int = 1  # with GPU work: at least so many must be in the report
    weight: int = 1
    loss_tolerance: float = 0  # relative, if the program's own runs differ


def caches(folder: pathlib.Path) -> dict[str, str]:
    """A home of its own: compile caches of frameworks and driver are where users have them, but for Inductor's in /tmp."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"HOME": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


def same_output(native: str, seen: str, loss_tolerance: float) -> list[str]:
    native, seen = TIMES.sub("", native), TIMES.sub("", seen)
    if native == seen:
        return []
    losses = [[float(number) for number in re.findall(r"loss ([\d.]+)", text)] for text in (native, seen)]
    if loss_tolerance and losses[0] and len(losses[0]) == len(losses[1]) and all(
            abs(a - b) <= loss_tolerance * abs(a) for a, b in zip(*losses)):
        return []
    return [f"prints {seen[-200:]!r}, natively {native[-200:]!r}"]


def line_of(text: str, statement: str) -> int:
    lines = [number for number, line in enumerate(text.splitlines(), 1) if statement in line]
    return lines[0] if len(lines) == 1 else 0


def finding_problems(finding: dict, wanted: Wanted) -> list[str]:
    found = []
    if finding["kind"] != wanted.kind:
        return [f"is {finding['kind']}, not {wanted.kind}"]
    if wanted.kernel and not re.search(wanted.kernel, finding.get("kernel", "") + " " + finding.get("function", "")):
        found.append(f"is in kernel {finding.get('kernel')}, not {wanted.kernel}")
    allocation = finding.get("allocation", {})
    tensor = allocation.get("tensor", {})
    if wanted.shape is not None and (tensor.get("shape"), tensor.get("dtype")) != (wanted.shape, "float32"):
        found.append(f"names a tensor {tensor.get('dtype')}{tensor.get('shape')}, not float32{wanted.shape}")
    if wanted.size_bytes and allocation.get("size_bytes") != wanted.size_bytes:
        found.append(f"names a block of {allocation.get('size_bytes')} bytes, not {wanted.size_bytes}")
    if wanted.engine and finding.get("engine") != wanted.engine:
        found.append(f"comes from engine {finding.get('engine')}, not {wanted.engine}")
    stack = [pathlib.Path(frame.get("file", "")).name for frame in tensor.get("allocation_stack", [])]
    if wanted.allocated_in and wanted.allocated_in not in stack:
        found.append(f"has the allocation stack {stack}, without {wanted.allocated_in}")
    if wanted.place and pathlib.Path(finding.get("file", "")).name != wanted.place:
        found.append(f"is in file {finding.get('file')}, not {wanted.place}")
    if wanted.statement:
        source = pathlib.Path(wanted.source or finding.get("file", "/nowhere"))
        text = source.read_text() if source.exists() else ""
        line = line_of(text, wanted.statement)
        if wanted.first_line:
            line += 1 - line_of(text, wanted.first_line)
        if finding.get("line", 0) != line or line < 1:
            found.append(f"is on line {finding.get('line')}, not {line}")
    return found


def findings_problems(findings: list[dict], wanted: tuple[Wanted, ...]) -> list[str]:
    """Each wanted finding stands for one or more of its kind and kernel; nothing else may be there."""
    left = list(findings)
    problems = []
    for one in wanted:
        results = {index: finding_problems(finding, one) for index, finding in enumerate(left)}
        fitting = [index for index, found in results.items() if not found]
        if fitting:
            left = [finding for index, finding in enumerate(left) if index not in fitting]
        elif left:
            problems.append(f"no {one.kind} as wanted: the finding " + ", ".join(min(results.values(), key=len)))
            left = left[1:]
        else:
            problems.append(f"no finding, {one.kind} wanted")
    if left and not problems:
        problems.append("more findings: " + ", ".join(f"{f['kind']} in {f.get('kernel', '?')}" for f in left[:4]))
    return problems


def coverage_problems(coverage: dict, launches_wanted: bool) -> tuple[str, list[str]]:
    launches, checked = coverage["launches"], coverage["checked_launches"]
    if not launches_wanted:
        return "", [f"{launches} launches, none expected"] if launches else []
    if not launches:
        return "0", ["no launch was seen"]
    text = f"{100 * checked / launches:.1f} % of {launches}"
    reasons = {}
    for kernel in coverage["by_kernel"]:
        missing = kernel["launches"] - kernel["checked_launches"]
        if missing > 0:
            reason = kernel.get("not_checked_reason", "no reason")
            reasons.setdefault(reason, []).append((missing, kernel["name"]))
    if checked == launches:
        return text, []
    worst = sorted(reasons.items(), key=lambda item: -sum(count for count, _ in item[1]))
    return text, [f"{sum(count for count, _ in kernels)} launches unchecked ({max(kernels)[1][:60]}…): {reason}"
                  for reason, kernels in worst[:3]]


def native_run(session: Session, program: Program) -> tuple[subprocess.CompletedProcess, float]:
    """Once for all rows with the same command, environment and caches."""
    def run():
        environment = {**QUIET, **caches(cache_folder(session, program)), **dict(program.environment)}
        return run_process(program.command, session.folder, environment, 200)

    return session.once.get(("native", tuple(program.command), program.environment, program.compiled_by), run)


def right_twin(program: Program) -> Program:
    return dataclasses.replace(program, command=["right" if part == "wrong" else part for part in program.command], findings=())


def cache_folder(session: Session, program: Program) -> pathlib.Path:
    return session.folder / "caches" / re.sub(r"\W+", "_", program.compiled_by or program.name)


def check_under_tool(session: Session, program: Program) -> Outcome:
    faulty = bool(program.findings)
    outcome = Outcome([])
    native = None
    if not faulty:
        native, outcome.native_seconds = native_run(session, program)
        if native.returncode != 0:
            outcome.problems.append(f"natively exit code {native.returncode}: {native.stderr[-300:]}")
            return outcome
    elif program.compiled_by:
        native_run(session, right_twin(program))
    folder = cache_folder(session, program)
    if program.cold:
        folder = folder.with_name(folder.name + "_cold")
    environment = {**QUIET, **caches(folder), **dict(program.environment)}
    start = time.perf_counter()
    result, report = session.run(program.name, "run", "--check", "memory", *program.flags, "--", *program.command,
                                 environment=environment, timeout=200)
    outcome.tool_seconds = time.perf_counter() - start
    if report is None:
        outcome.problems.append(f"no report, exit code {result.returncode}: {result.stderr[-400:]}")
        return outcome
    if result.returncode != (86 if faulty else 0):
        outcome.problems.append(f"exit code {result.returncode}: {result.stderr[-200:]}")
    if native is not None:
        outcome.problems += same_output(native.stdout, result.stdout, program.loss_tolerance)
    outcome.problems += findings_problems(report["findings"], program.findings)
    outcome.coverage, missing = coverage_problems(report["coverage"], program.launches)
    outcome.problems += missing
    if report.get("lost_events"):
        outcome.problems.append(f"{report['lost_events']} events lost")
    if program.launches and len(report["coverage"]["processes"]) < program.processes:
        outcome.problems.append(f"{len(report['coverage']['processes'])} processes in the report, not {program.processes}")
    if program.remark and not any(re.search(program.remark, remark["text"]) for remark in report["remarks"]):
        outcome.problems.append(f"no remark that says {program.remark!r}")
    if not program.launches:  # a one-line note, no more
        text, _ = run_process([str(BUILD / "ops-debug"), "run", "--device", "gpu", "--", *program.command], session.folder,
                              environment, 200)
        outcome.note = text.stderr.strip()
        if text.stdout != native.stdout or "\n" in outcome.note:
            outcome.problems.append(f"as text: {text.stdout[-100:]!r}, {outcome.note!r}")
    elif faulty and not outcome.problems:
        outcome.note = report["findings"][0]["message"]
    return outcome


def check_natively(session: Session, program: Program) -> Outcome:
    """Two runs by themselves print the same: only then can a comparison under the tool mean anything."""
    first, seconds = native_run(session, program)
    session.keep(program.name, f"exit code {first.returncode}, {seconds:.1f} s\n{first.stdout}{first.stderr}")
    outcome = Outcome([], native_seconds=seconds, note=first.stdout.strip()[:300])
    if program.findings:
        outcome.note = f"faulty, exit code {first.returncode}; {outcome.note}"
        return outcome
    if first.returncode != 0:
        outcome.problems.append(f"exit code {first.returncode}: {first.stderr[-300:]}")
        return outcome
    again = dataclasses.replace(program, environment=(*program.environment, ("OPS_DEBUG_TEST_AGAIN", "1")),
                                compiled_by=program.compiled_by or program.name)
    second, outcome.tool_seconds = native_run(session, again)
    outcome.problems += same_output(first.stdout, second.stdout, program.loss_tolerance)
    return outcome


def check_rank_logs(session: Session, torchrun: list[str]) -> Outcome:
    """Two ranks: two logs in one folder, with the rank in the name, and one report over both."""
    folder = session.new_path("_logs")
    program = Program("torchrun, faulty rank", torchrun)
    result, report = session.run(program.name, "run", "--check", "memory", "--log", f"{folder}/", "--", *torchrun,
                                 environment={**QUIET, **caches(cache_folder(session, program))}, timeout=200)
    outcome = Outcome([])
    logs = sorted(file.name for file in folder.glob("*")) if folder.is_dir() else []
    for rank in (0, 1):
        if not any(re.search(rf"rank{rank}\b|rank{rank}[._-]", name) for name in logs):
            outcome.problems.append(f"no log of rank {rank} among {logs}")
    merged = subprocess.run([str(BUILD / "ops-debug"), "report", "--format", "json", str(folder)], capture_output=True, text=True)
    session.keep(program.name, "\nmerged\n" + merged.stdout + merged.stderr)
    wanted = Wanted("oob-global", [8, 40], "fill", "# planted", "distributed.py", allocated_in="distributed.py")
    for name, document in (("live", report), ("merged", json.loads(merged.stdout) if merged.stdout else None)):
        if document is None:
            outcome.problems.append(f"no {name} report: {(result if name == 'live' else merged).stderr[-300:]}")
            continue
        outcome.problems += [f"{name}: {problem}" for problem in findings_problems(document["findings"], (wanted,))]
        outcome.coverage, missing = coverage_problems(document["coverage"], True)
        outcome.problems += [f"{name}: {problem}" for problem in missing]
    if result.returncode != 86:
        outcome.problems.append(f"exit code {result.returncode}")
    outcome.note = ", ".join(logs)
    return outcome


def programs(shared: pathlib.Path) -> list[Program]:
    def script(name: str, *arguments) -> list[str]:
        return [PYTHON, str(PROGRAMS / name), *[str(argument) for argument in arguments]]

    def in_pool(allocated_in: str, shape: list[int], kernel: str, *place: str, engine: str = "ptx") -> Wanted:
        return Wanted("oob-global", shape, kernel, *place, allocated_in=allocated_in, engine=engine)

    def freed(allocated_in: str, shape: list[int], kernel: str, *place: str, engine: str = "ptx") -> Wanted:
        return Wanted("use-after-free", shape, kernel, *place, allocated_in=allocated_in, engine=engine)

    kernels = shared.resolve() / "kernels"
    train = [PYTHON, str(kernels / "train_step.py"), "20"]
    compiled = script("train_step_compiled.py", kernels, 8)
    expandable = (("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)
    asynchronous = (("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),)
    # Both said outright: a machine's own TORCH_CUDA_ARCH_LIST must not decide.
    with_ptx, no_ptx = (("TORCH_CUDA_ARCH_LIST", "9.0+PTX"),), (("TORCH_CUDA_ARCH_LIST", "9.0"),)
    cupy_line = dict(statement="// planted", source=str(PROGRAMS / "cupy_kernels.py"), first_line='extern "C" __global__')
    middle = "# planted"
    rows = [
        Program("train step, eager", train, loss_tolerance=1e-4, weight=5),
        Program("train step, torch.compile, cold", compiled, cold=True, compiled_by="compiled", loss_tolerance=1e-4,
                weight=9),
        Program("train step, torch.compile, warm", compiled, compiled_by="compiled", loss_tolerance=1e-4, weight=9),
        Program("train step, torch.compile, reduce-overhead", script("train_step_compiled.py", kernels, 8, "reduce-overhead"),
                loss_tolerance=1e-4, weight=9),
        Program("Triton kernels, cold", script("triton_kernels.py"), cold=True, compiled_by="triton", weight=4),
        Program("Triton kernels, warm", script("triton_kernels.py"), compiled_by="triton", weight=4),
        Program("CuPy kernels, cold", script("cupy_kernels.py", "right"), cold=True, compiled_by="cupy", weight=4),
        Program("CuPy kernels, warm", script("cupy_kernels.py", "right"), compiled_by="cupy", weight=4),
        Program("CuPy kernels, cubins in a cache of the user's", script("cupy_kernels.py", "right"),
                environment=(("CUPY_CACHE_DIR", "cupy_cache"),), weight=4),
        Program("CuPy kernels, LD_PRELOAD cleared", script("without_preload.py", *script("cupy_kernels.py", "right"))),
        Program("JAX gradient", script("jax_gradient.py"), environment=(("XLA_FLAGS", "--xla_gpu_deterministic_ops=true"),),
                weight=5),
        Program("torch extension with PTX", script("torch_extension.py", "right"), environment=with_ptx,
                compiled_by="extension", weight=6),
        Program("torch extension, SASS only", script("torch_extension.py", "right"), environment=no_ptx,
                compiled_by="extension_sass", weight=6),
        Program("ONNX Runtime on the CPU", script("onnx_cpu.py"), launches=False),
        Program("NumPy only", script("numpy_only.py"), launches=False),
        Program("data loader, 4 workers, fork", script("data_loader.py", "fork"), weight=3),
        Program("data loader, 4 workers, spawn", script("data_loader.py", "spawn"), weight=6),
        Program("torchrun, 2 processes on one GPU",
                [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29511",
                 str(PROGRAMS / "distributed.py"), "right"], processes=2, weight=6),
        Program("torch graph", script("torch_graph.py", "right")),
        Program("caching allocator", script("allocator.py", "right")),
        Program("caching allocator, expandable segments", script("allocator.py", "right"), environment=expandable),
        Program("caching allocator, cudaMallocAsync", script("allocator.py", "right"), environment=asynchronous),
        Program("four threads", script("threads.py")),
        Program("torch.profiler", script("profiled.py"), remark="(?i)kineto|cupti|profiler"),
        # Planted faults, each with its right twin above or below.
        Program("pool overflow, Triton, into padding", script("pool_overflow_triton.py", "wrong", 10, 100),
                (in_pool("pool_overflow_triton.py", [10, 100], "fill", middle, "pool_overflow_triton.py"),)),
        Program("pool overflow, Triton, into neighbour", script("pool_overflow_triton.py", "wrong", 32, 32),
                (in_pool("pool_overflow_triton.py", [32, 32], "fill", middle, "pool_overflow_triton.py"),)),
        Program("pool overflow, Triton, expandable segments", script("pool_overflow_triton.py", "wrong", 32, 32),
                (in_pool("pool_overflow_triton.py", [32, 32], "fill", middle, "pool_overflow_triton.py"),), environment=expandable),
        Program("pool overflow, Triton, right", script("pool_overflow_triton.py", "right", 32, 32)),
        Program("pool overflow, extension with PTX", script("torch_extension.py", "wrong"),
                (in_pool("torch_extension.py", [7, 131], "scale_kernel", "// planted", "cuda.cu"),), environment=with_ptx,
                compiled_by="extension", weight=6),
        Program("pool overflow, extension, SASS only", script("torch_extension.py", "wrong"),
                (in_pool("torch_extension.py", [7, 131], "scale_kernel", "// planted", "cuda.cu", engine="sass"),), environment=no_ptx,
                compiled_by="extension_sass", weight=6),
        Program("pool overflow, CuPy", script("cupy_kernels.py", "wrong"),
                (Wanted("oob-global", None, "row_sums", size_bytes=520, allocated_in="cupy_kernels.py", engine="ptx", **cupy_line),)),
        Program("library, ATen embedding gradient, bad index", script("library_bad_index.py", "embedding", "wrong"),
                (in_pool("library_bad_index.py", [1000, 1], "embedding", engine="sass"),)),
        Program("library, ATen embedding gradient, right", script("library_bad_index.py", "embedding", "right")),
        Program("library, cuSPARSE, bad index", script("library_bad_index.py", "sparse", "wrong"),
                (in_pool("library_bad_index.py", [100, 40], "(?i)csr|spmm|sparse", engine="sass"),)),
        Program("library, cuSPARSE, right", script("library_bad_index.py", "sparse", "right")),
        Program("library, cuBLAS, bad size", script("library_bad_index.py", "cublas", "wrong"),
                (in_pool("library_bad_index.py", [10, 100], "(?i)copy", engine="sass"),)),
        Program("library, cuBLAS, right", script("library_bad_index.py", "cublas", "right")),
        Program("torch graph, tensor deleted", script("torch_graph.py", "deleted"),
                (freed("torch_graph.py", [3000, 1111], "elementwise", engine="sass"),)),
        Program("torch graph, segment given back", script("torch_graph.py", "emptied"),
                (Wanted("use-after-free", None, "elementwise"),)),
        Program("torch graph, tensor deleted, Triton", script("torch_graph.py", "triton"),
                (freed("torch_graph.py", [3000, 1111], "add_one", middle, "torch_graph.py"),)),
        Program("deleted tensor read", script("allocator.py", "wrong"),
                (freed("allocator.py", [123, 45], "add", middle, "allocator.py"),)),
    ]
    return rows


def add_frameworks(session: Session, shared: pathlib.Path, natively: bool) -> None:
    for program in programs(shared):
        kinds = ", ".join(wanted.kind + (f" of {wanted.shape}" if wanted.shape else "") for wanted in program.findings)
        check = check_natively if natively else check_under_tool
        wanted = kinds or ("same output, silent, all covered" if program.launches else "no effect")
        session.add(program.name, "prints the same twice" if natively and not kinds else wanted,
                    lambda program=program, check=check: check(session, program), "frameworks", program.weight)
    if not natively:
        faulty = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29512",
                  str(PROGRAMS / "distributed.py"), "wrong"]
        session.add("torchrun, one log per rank, merged", "two logs, oob-global of [8, 40]",
                    lambda: check_rank_logs(session, faulty), "frameworks", 6)
