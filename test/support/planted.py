"""What the sixteen planted faults of planted.cu must and must not give: shared by the emulator tests and the GPU run."""
import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Expected:
    fault: int
    kind: str
    kernel: str
    statement: str  # text of the faulty source line
    first_thread: tuple[int, int, int] = (0, 0, 0)
    first_block: tuple[int, int, int] = (0, 0, 0)


EXPECTED = [
    Expected(0, "oob-global", "overflow_into_neighbour", "p[distance + threadIdx.x] = 1.f;"),
    Expected(1, "oob-global", "overflow_by_one", "if (i <= n) p[i] = 1.f;", (232, 0, 0), (3, 0, 0)),
    Expected(2, "oob-local", "local_overflow", "out[threadIdx.x] = list[k + threadIdx.x % 2];", (1, 0, 0)),
    Expected(3, "oob-shared", "shared_overflow", "s[threadIdx.x + k] = 1;", (31, 0, 0)),
    Expected(11, "misaligned", "misaligned", "*(int*)(p + 1 + threadIdx.x * 4) = 1;"),
    Expected(12, "use-after-free", "copy", "out[threadIdx.x] = p[threadIdx.x];"),
    Expected(15, "use-after-free", "copy", "out[threadIdx.x] = p[threadIdx.x];"),
]
SILENT = [4, 5, 6, 7, 8, 9, 10, 13, 14]


def line_of(source: pathlib.Path, statement: str) -> int:
    lines = [n for n, line in enumerate(source.read_text().splitlines(), 1) if statement in line]
    assert len(lines) == 1, f"{statement!r} stands on lines {lines} of {source}"
    return lines[0]


def problems(report: dict, source: pathlib.Path, expected: Expected) -> list[str]:
    """Differences between a JSON report and what the fault must give; empty if it is right."""
    findings = report["findings"]
    if len(findings) != 1:
        return [f"{len(findings)} findings: {[f['kind'] for f in findings]}"]
    finding = findings[0]
    wanted = {"kind": expected.kind, "line": line_of(source, expected.statement)}
    found = [f"{key} is {finding.get(key)}, not {value}" for key, value in wanted.items() if finding.get(key) != value]
    if not finding["kernel"].startswith(expected.kernel + "("):
        found.append(f"kernel is {finding['kernel']}")
    if list(expected.first_thread) != list(finding["thread"]) or list(expected.first_block) != list(finding["block"]):
        found.append(f"first offender is block {finding['block']} thread {finding['thread']}")
    if expected.fault == 0 and finding.get("target_allocation", {}).get("size_bytes") != 4000:
        found.append("the neighbour that was hit is not named")
    if pathlib.Path(finding["file"]).name != source.name:
        found.append(f"file is {finding['file']}")
    return found
