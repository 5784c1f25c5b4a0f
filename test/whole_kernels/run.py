"""Runs the whole-kernel programs and compares what they print with the record of an NVIDIA H200 (golden.json).

    python3 run.py --emulator FOLDER --programs FOLDER [NAME...]   on the CPU device (folder of libcuda.so.1); the
                                                                   programs from programs.py, else compiled first
    python3 run.py --emulator ... --schedules N ...                and under the schedule seeds 1 to N
    python3 run.py --gpu [NAME...]                                 on the machine's GPU, compiling first
    python3 run.py --record --output FILE                          the same, and writes the record

A line `NAME: exact ...` has to be the same, and so has everything that is no digest (device printf). A line
`NAME: float ...` holds values of approximate functions, or sums whose order the ISA leaves open: they may differ by the
tolerance in the line, which the program states with its reason. Each program first compares its results with a
computation on the host and fails on its own, so a record cannot hold what a wrong kernel made. Exit code 77: there is
no nvcc to compile with.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import programs

GOLDEN = programs.FOLDER / "golden.json"
SKIPPED = 77
TIMEOUT_S = 100


def parse_float_line(text):
    """{'n': .., 'tolerance': .., 'sum': .., 'l2': .., 'samples': [..]} of what follows `float`."""
    head, _, samples = text.partition(" samples")
    fields = {key: float(value) for key, value in (part.split("=") for part in head.split())}
    fields["samples"] = [float(value) for value in samples.split()]
    return fields


def float_difference(text, golden_text):
    """What is wrong between two float digests; None if nothing is."""
    got, golden = parse_float_line(text), parse_float_line(golden_text)
    if (got["n"], got["tolerance"], len(got["samples"])) != (golden["n"], golden["tolerance"], len(golden["samples"])):
        return "another size or tolerance than recorded: record again"
    tolerance, n, l2 = golden["tolerance"], golden["n"], golden["l2"]
    rms = l2 / math.sqrt(n)
    for index, (a, b) in enumerate(zip(got["samples"], golden["samples"])):
        if not abs(a - b) <= tolerance * max(abs(b), rms):
            return f"sample {index} is {a:.9g}, recorded {b:.9g}"
    # Each value may be off by tolerance * max(|value|, rms): summed up with Cauchy's inequality.
    if not abs(got["sum"] - golden["sum"]) <= 2 * tolerance * math.sqrt(n) * l2:
        return f"the sum is {got['sum']:.9g}, recorded {golden['sum']:.9g}"
    if not abs(got["l2"] - l2) <= 2 * tolerance * l2:
        return f"the norm is {got['l2']:.9g}, recorded {l2:.9g}"
    return None


def differences(lines, golden_lines):
    """Yields a sentence per line that is not as recorded."""
    if len(lines) != len(golden_lines):
        yield f"{len(lines)} lines, recorded {len(golden_lines)}"
    for line, golden in zip(lines, golden_lines):
        name, _, digest = line.partition(": float ")
        golden_name, _, golden_digest = golden.partition(": float ")
        if digest and golden_digest and name == golden_name:
            wrong = float_difference(digest, golden_digest)
            if wrong:
                yield f"{name}: {wrong}"
        elif line != golden:
            yield f"got      {line}\nrecorded {golden}"


def run_program(path, environment):
    """(lines, problem): what the program printed; why it failed, or None."""
    try:
        run = subprocess.run([str(path)], capture_output=True, text=True, timeout=TIMEOUT_S,
                             env={**os.environ, **environment})
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode() if late.stdout else ""
        return output.splitlines(), f"did not end within {TIMEOUT_S} s"
    lines = run.stdout.splitlines()
    if run.returncode == 0:
        return lines, None
    return lines, f"exit code {run.returncode}\n{run.stdout}{run.stderr}"


def gpu_name():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    run = subprocess.run(query, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"run.py: {' '.join(query)} failed, so there is no GPU to record:\n{run.stderr}")
    return run.stdout.splitlines()[0].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    device = parser.add_mutually_exclusive_group(required=True)
    device.add_argument("--emulator", type=pathlib.Path, help="folder of the CPU device's libcuda.so.1")
    device.add_argument("--gpu", action="store_true")
    device.add_argument("--record", action="store_true")
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the compiled programs; without it they are "
                        "compiled first")
    parser.add_argument("--schedules", type=int, default=0, help="schedule seeds of the CPU device to run as well")
    parser.add_argument("--output", type=pathlib.Path, default=GOLDEN, help="file that --record writes")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    chosen = arguments.names or programs.names()

    environment, failed, recorded = {}, {}, {}
    folder = arguments.programs
    with tempfile.TemporaryDirectory() as scratch:
        if folder is None:
            folder = pathlib.Path(scratch)
            nvcc = programs.find_nvcc()
            if nvcc is None:
                print("run.py: skipped: no nvcc to compile the programs with")
                return SKIPPED
            started = time.monotonic()
            failed.update(programs.build(chosen, nvcc, folder, "emulator" if arguments.emulator else "gpu"))
            print(f"compiled in {time.monotonic() - started:.0f} s")
        if arguments.emulator:
            environment = {"LD_LIBRARY_PATH": str(arguments.emulator)}
        golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"programs": {}}
        for name in chosen:
            if name in failed:
                print(f"FAILED {name}: does not compile\n{failed[name]}")
                continue
            started = time.monotonic()
            lines, problem = run_program(folder / name, environment)
            if problem is None and not arguments.record:
                if name not in golden["programs"]:
                    problem = f"no record of it in {GOLDEN}: make one on an H200 with --record\n" + "\n".join(lines)
                else:
                    problem = "\n".join(differences(lines, golden["programs"][name])) or None
                for seed in range(1, arguments.schedules + 1):
                    if problem is not None:
                        break
                    seeded = {**environment, "OPS_DEBUG_SCHEDULE_SEED": str(seed)}
                    lines, problem = run_program(folder / name, seeded)
                    problem = problem or "\n".join(differences(lines, golden["programs"][name])) or None
                    if problem is not None:
                        problem = f"with OPS_DEBUG_SCHEDULE_SEED={seed}: {problem}"
            if problem is not None:
                failed[name] = problem
                print(f"FAILED {name}: {problem}")
                continue
            recorded[name] = lines
            print(f"ok {name}: {len(lines)} lines, {time.monotonic() - started:.2f} s")
    if arguments.record and recorded:
        arguments.output.write_text(json.dumps({"device": gpu_name(), "programs": recorded}, indent=1) + "\n")
        print(f"wrote {arguments.output}: {len(recorded)} programs, {len(failed)} failed and left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
