"""What the faults of cases.cu must give; their right twins give nothing."""
import pathlib

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "end_to_end/programs/cases.cu"

# name -> (kind, text of the faulty line, number of accesses)
EXPECTED = {
    "mapping": ("oob-global", "map[i] = {i / 2, 0.5f}", 16),
    "local_array": ("oob-local", "sum += best[j] = scores", 32),
    "row_pitch": ("misaligned", "*(uint4*)(out + blockIdx.x * pitch", 48 * 5),
    "dynamic_shared": ("oob-shared", "[threadIdx.x]", None),
    "sentinel": ("oob-global", "atomicAdd(&gradient[row * width]", 1),
    "masked_lanes": ("oob-global", "value = ((const volatile float*)in)[i]", 24),
    "pointer_table": ("use-after-free", "out[threadIdx.x] = rows[blockIdx.x]", 50),
    "async_copy": ("oob-global", "(in + first)", 7),  # lanes 25 to 31
}


def problems(report: dict, name: str) -> list[str]:
    kind, text, count = EXPECTED[name]
    lines = SOURCE.read_text().splitlines()
    findings = report["findings"]
    found = []
    if not findings or {finding["kind"] for finding in findings} != {kind}:
        return [f"findings {[finding['kind'] for finding in findings]}, not {kind}"]
    for finding in findings:
        if text not in lines[finding["line"] - 1]:
            found.append(f"line {finding['line']}")
    accesses = sum(finding["count"] for finding in findings)
    if count is not None and accesses != count:
        found.append(f"{accesses} accesses, not {count}")
    return found
