"""What a golden case is, and the families that hold them.

A case is one kernel with its inputs: everything that decides the result is part of `digest`, which
is stored beside the recorded output, so that changed cases and old data never pass for each other.
"""

import hashlib
import importlib
import pathlib
import re
from dataclasses import dataclass, field

import numpy as np

from rules import Exact

HERE = pathlib.Path(__file__).resolve().parent


@dataclass
class Case:
    name: str  # unique within the family
    instruction: str  # what a mismatch shows
    entry: str  # PTX of the kernel; `$entry` stands for its name
    inputs: list  # numpy arrays; their device addresses are the first parameters
    output: np.ndarray  # 1-D, unsigned: initial contents; its address is the last parameter
    rule: object = field(default_factory=Exact)
    grid: tuple = (1, 1, 1)
    block: tuple = (32, 1, 1)
    shared_bytes: int = 0  # dynamic
    cluster: tuple = None
    target: str = "sm_90"
    version: str = "9.0"
    preamble: str = ""  # module scope: device functions, variables
    # (driver, input addresses, output address) -> bytes of each kernel parameter, where they are not
    # simply the addresses (tensor maps, scalars). `parameter_note` must say what they depend on, for
    # the digest.
    parameters: object = None
    parameter_note: str = ""
    # element index -> text of the operands; by default the inputs of the same length as the output
    operands: object = None

    @property
    def symbol(self):
        return "case_" + re.sub(r"\W", "_", self.name)

    def ptx(self):
        return self.entry.replace("$entry", self.symbol)

    def digest(self):
        h = hashlib.sha256()
        shape = (self.grid, self.block, self.shared_bytes, self.cluster, self.target,
                 self.parameter_note)
        for text in (self.version, self.preamble, self.ptx(), repr(shape)):
            h.update(text.encode() + b"\0")
        for array in [*self.inputs, self.output]:
            h.update(str(array.dtype).encode() + array.tobytes())
        return h.hexdigest()[:16]

    def describe(self, index):
        if self.operands is not None:
            return self.operands(index)
        count = len(self.output)
        parts = []
        for name, array in zip("abcefgh", self.inputs):
            if array.ndim == 1 and len(array) and count % len(array) == 0:
                digits = array.dtype.itemsize * 2
                parts.append(f"{name}={int(array[index % len(array)]):#0{digits + 2}x}")
        return " ".join(parts) or "-"


def families():
    return sorted(p.stem[len("cases_"):] for p in HERE.glob("cases_*.py"))


def load_family(family):
    """The cases of one family, in a fixed order."""
    cases = list(importlib.import_module(f"cases_{family}").cases())
    seen = set()
    for case in cases:
        if case.symbol in seen:
            raise ValueError(f"family {family}: two cases are called {case.name}")
        seen.add(case.symbol)
        if case.output.ndim != 1 or case.output.dtype.kind != "u":
            raise ValueError(f"family {family}: {case.name}: the output must be a 1-D unsigned array")
    return cases


def modules(cases, entries=150):
    """Groups of cases that share a PTX module: (PTX text, cases)."""
    groups = {}
    for case in cases:
        groups.setdefault((case.version, case.target, case.preamble), []).append(case)
    for key, members in groups.items():
        for start in range(0, len(members), entries):
            part = members[start:start + entries]
            yield module_text(key, part), part


def module_text(key, members):
    version, target, preamble = key
    head = f".version {version}\n.target {target}\n.address_size 64\n{preamble}\n"
    return head + "\n".join(case.ptx() for case in members)


def key_of(case):
    return case.version, case.target, case.preamble
