"""f16, bf16 and their pairs (PTX ISA 9.0, 9.7.4), and mixed precision (9.7.5)."""

import numpy as np

from element import element
from rules import Bound

HALVES = ("f16", "f16x2", "bf16", "bf16x2")


def arithmetic():
    for kind in HALVES:
        is_f16 = kind.startswith("f16")
        flushes = ("", ".ftz") if is_f16 else ("",)
        for op in ("add", "sub", "mul"):
            for rounding in ("", ".rn"):
                for ftz in flushes:
                    for sat in ("", ".sat") if is_f16 else ("",):
                        name = f"{op}{rounding}{ftz}{sat}.{kind}"
                        yield element(name, f"{name} %d, %a, %b;", kind, (kind, kind))
        for ftz in flushes:
            for end in ("", ".sat", ".relu") if is_f16 else ("", ".relu"):
                name = f"fma.rn{ftz}{end}.{kind}"
                yield element(name, f"{name} %d, %a, %b, %c;", kind, (kind,) * 3)
        for end in ("", ".relu"):
            name = f"fma.rn.oob{end}.{kind}"
            yield element(name, f"{name} %d, %a, %b, %c;", kind, (kind,) * 3)
        for ftz in flushes:
            for op in ("neg", "abs"):
                yield element(f"{op}{ftz}.{kind}", f"{op}{ftz}.{kind} %d, %a;", kind, kind)
            for op in ("min", "max"):
                for nan in ("", ".NaN"):
                    for xor in ("", ".xorsign.abs"):
                        name = f"{op}{ftz}{nan}{xor}.{kind}"
                        yield element(name, f"{name} %d, %a, %b;", kind, (kind, kind))


# The bounds are the manual's, plus half a unit in the last place for the CPU device, which rounds
# the exact result.
TANH = {"f16": 2.0 ** -10.987 + 2.0 ** -12, "bf16": 2.0 ** -8 + 2.0 ** -9}
EX2 = {"f16": 2.0 ** -9.9 + 2.0 ** -11, "bf16": 2.0 ** -7 + 2.0 ** -8}


def functions():
    every = np.arange(1 << 16, dtype=np.uint16)
    pairs = np.arange(0, 1 << 16, 16, dtype=np.uint32) * np.uint32(0x10001)
    for kind in HALVES:
        name = kind.replace("x2", "")
        inputs = [every if kind == name else pairs]
        yield element(f"tanh.approx.{kind}", f"tanh.approx.{kind} %d, %a;", kind, kind, inputs=inputs,
                      rule=Bound(kind, "PTX ISA 9.0, 9.7.4.9 tanh: absolute error 2^-10.987 (f16),"
                                 " 2^-8 (bf16)", absolute=TANH[name]))
        op = f"ex2.approx.{kind}" if name == "f16" else f"ex2.approx.ftz.{kind}"
        yield element(op, f"{op} %d, %a;", kind, kind, inputs=inputs,
                      rule=Bound(kind, "PTX ISA 9.0, 9.7.4.10 ex2: relative error 2^-9.9 (f16),"
                                 " 2^-7 (bf16)", relative=EX2[name], ulp=1))


def out_of_bounds():
    """Which values count as the NaN of elements outside a tensor (fma.oob): all of them tried."""
    every = np.arange(1 << 16, dtype=np.uint16)
    for kind, one, two in (("f16", 0x3c00, 0x4000), ("bf16", 0x3f80, 0x4000)):
        others = [np.full(1 << 16, one, np.uint16), np.full(1 << 16, two, np.uint16)]
        for place in range(3):
            inputs = [others[0], others[1]]
            inputs.insert(place, every)
            op = f"fma.rn.oob.{kind}"
            yield element(f"{op}.every.{'abc'[place]}", f"{op} %d, %a, %b, %c;", kind, (kind,) * 3,
                          inputs=inputs)


def cases():
    yield from arithmetic()
    yield from functions()
    yield from out_of_bounds()
