"""What the sixteen planted faults of planted.cu give under --check all: each its own fault, and nothing else."""
import dataclasses
import pathlib

import finding_lines
import planted


@dataclasses.dataclass(frozen=True)
class Conflict:
    fault: int
    kind: str  # or kinds, in a tuple: any of them
    kernel: str
    statements: tuple[str, ...]  # the lines that findings name: both sides of a race, the barrier, the read
    host_statements: tuple[str, ...] = ()  # lines of the host that may be named, too


CONFLICTS = [
    Conflict(4, "race-shared", "shared_race", ("s[threadIdx.x] = threadIdx.x;", "out[threadIdx.x] = s[63 - threadIdx.x];")),
    Conflict(5, "missing-warp-sync", "warp_race", ("s[threadIdx.x] = threadIdx.x;", "out[threadIdx.x] = s[31 - threadIdx.x];")),
    Conflict(6, ("race-global", "atomics-misuse"), "global_write_race", ("p[0] = p[0] + 1;",)),
    Conflict(7, "race-global", "global_read_race", ("p[0] = 3;", "out[0] = p[0];")),
    Conflict(8, "uninitialised-read", "copy", ("out[threadIdx.x] = p[threadIdx.x];",)),
    Conflict(9, "uninitialised-read", "uninitialised_shared", ("out[threadIdx.x] = s[threadIdx.x];",)),
    Conflict(10, "barrier-divergence", "divergent_barrier", ("if (threadIdx.x < 16) __syncthreads();",), ("out[threadIdx.x] = 1;", "}")),
    Conflict(13, "fp-overflow", "half_overflow", ("out[threadIdx.x] = __float2half(v * (threadIdx.x + 1));",)),
    Conflict(14, "stream-race", "copy", ("out[threadIdx.x] = p[threadIdx.x];",),
             ("cudaMemcpyAsync(a, host, 4000, cudaMemcpyHostToDevice, s1)", "copy<<<1, 32, 0, s2>>>(a, d);")),
]
SILENT: list[int] = []


def lines_of(source: pathlib.Path, kernel: str, statements: tuple[str, ...]) -> set[int]:
    """Lines of the kernel, or of main, that hold one of the statements."""
    lines, inside = set(), False
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if "__global__" in line or "int main" in line:
            inside = f" {kernel}(" in line or "int main" in line
        if inside and any(statement in line for statement in statements):
            lines.add(number)
    return lines


def problems(report: dict, source: pathlib.Path, expected: Conflict) -> list[str]:
    findings = [finding for finding in report["findings"] if finding.get("severity") != "note"]
    kinds = (expected.kind,) if isinstance(expected.kind, str) else expected.kind
    if not findings:
        return ["no finding"]
    found = [f"{finding['kind']}: {finding['message']}" for finding in findings if finding["kind"] not in kinds]
    wanted = lines_of(source, expected.kernel, expected.statements)
    allowed = wanted | lines_of(source, expected.kernel, expected.host_statements)
    named = set()
    for finding in findings:
        lines = set(finding_lines.lines_of(finding, source.name))
        named |= lines
        if not lines <= allowed:
            found.append(f"lines {sorted(lines)}, not {sorted(allowed)}")
        if finding.get("kernel") and expected.kernel not in finding["kernel"]:
            found.append(f"kernel {finding['kernel']}")
    if not wanted <= named:
        found.append(f"lines {sorted(named)} do not name {sorted(wanted)}")
    return found


def all_problems(report: dict, source: pathlib.Path, fault: int) -> list[str]:
    """For any of the sixteen."""
    if fault in SILENT:
        return [f"{finding['kind']}: {finding['message']}" for finding in report["findings"]]
    for expected in planted.EXPECTED:
        if expected.fault == fault:
            return planted.problems(report, source, expected)
    return problems(report, source, next(conflict for conflict in CONFLICTS if conflict.fault == fault))
