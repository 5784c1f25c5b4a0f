"""f32 and f64 arithmetic (PTX ISA 9.0, 9.7.3): exact operations with every rounding, flush and
saturation, and the approximate ones within the bounds of the manual.

The bounds are those between the manual's exact result and what an implementation may return. Both
the H200 and the CPU device deviate from the exact result, so a case allows both deviations: the
CPU device rounds correctly, half a unit in the last place.
"""

import numpy as np

import values
from element import COUNT, element
from rules import Bound

ROUNDINGS = (".rn", ".rz", ".rm", ".rp")


def exact():
    for rounding in ("",) + ROUNDINGS:
        for kind in ("f32", "f64"):
            for ftz in ("", ".ftz") if kind == "f32" else ("",):
                for sat in ("", ".sat") if kind == "f32" else ("",):
                    for op in ("add", "sub", "mul", "fma"):
                        if op == "fma" and not rounding:
                            continue
                        if rounding in (".rm", ".rp") and sat and op != "fma":
                            continue  # covered by the other operations
                        name = f"{op}{rounding}{ftz}{sat}.{kind}"
                        count = 3 if op == "fma" else 2
                        operands = ", ".join(("%a", "%b", "%c")[:count])
                        yield element(name, f"{name} %d, {operands};", kind, (kind,) * count)
                if not rounding:
                    continue
                yield element(f"div{rounding}{ftz}.{kind}", f"div{rounding}{ftz}.{kind} %d, %a, %b;",
                              kind, (kind, kind))
                for op in ("rcp", "sqrt"):
                    name = f"{op}{rounding}{ftz}.{kind}"
                    yield element(name, f"{name} %d, %a;", kind, kind)
    for rounding in ROUNDINGS:
        yield element(f"mad{rounding}.f32", f"mad{rounding}.f32 %d, %a, %b, %c;", "f32",
                      ("f32",) * 3)
        yield element(f"mad{rounding}.f64", f"mad{rounding}.f64 %d, %a, %b, %c;", "f64",
                      ("f64",) * 3)


def signs_and_limits():
    for kind in ("f32", "f64"):
        for ftz in ("", ".ftz") if kind == "f32" else ("",):
            for op in ("neg", "abs"):
                yield element(f"{op}{ftz}.{kind}", f"{op}{ftz}.{kind} %d, %a;", kind, kind)
            for op in ("min", "max"):
                for nan in ("", ".NaN") if kind == "f32" else ("",):
                    for xor in ("", ".xorsign.abs") if kind == "f32" else ("",):
                        name = f"{op}{ftz}{nan}{xor}.{kind}"
                        yield element(name, f"{name} %d, %a, %b;", kind, (kind, kind))


# Inputs of the approximate functions: every edge, then values spread over the exponents.
def _spread(seed, low, high, signs=True, edge=None):
    edge = values.edges("f32") if edge is None else edge
    bits = values.random_bits(32, COUNT - len(edge), seed)
    exponent = (bits >> np.uint32(23)) % np.uint32(high - low + 1) + np.uint32(127 + low)
    mask = 0x807fffff if signs else 0x007fffff
    return [np.concatenate([edge, (bits & np.uint32(mask)) | (exponent << np.uint32(23))])]


def _within(limit):
    """Edges up to `limit`, infinities and NaNs."""
    edge = values.edges("f32")
    return edge[~(np.abs(edge.view(np.float32)) > limit) | np.isinf(edge.view(np.float32))]


HALF_ULP = 2.0 ** -24  # relative


def approximate():
    isa = "PTX ISA 9.0, 9.7.3."
    for ftz in ("", ".ftz"):
        yield _function(f"rcp.approx{ftz}", _spread("rcp", -126, 127),
                        Bound("f32", isa + "13 rcp: 1 ulp", ulp=2))
        yield _function(f"sqrt.approx{ftz}", _spread("sqrt", -126, 127, False),
                        Bound("f32", isa + "15 sqrt: relative error 2^-23", ulp=1,
                              relative=2.0 ** -23 + HALF_ULP))
        yield _function(f"rsqrt.approx{ftz}", _spread("rsqrt", -126, 127, False),
                        Bound("f32", isa + "16 rsqrt: relative error 2^-22.9",
                              relative=2.0 ** -22.9 + HALF_ULP))
        for op, number in (("sin", 18), ("cos", 19)):
            yield _function(f"{op}.approx{ftz}", _spread(op, -18, 1, edge=_within(6.28)),
                            Bound("f32", f"{isa}{number} {op}: absolute error 2^-20.5 in [-2pi, 2pi]",
                                  absolute=2.0 ** -20.5 + HALF_ULP))
            yield _function(f"{op}.approx{ftz}", _spread(op + " wide", 2, 7, edge=_within(0)),
                            Bound("f32", f"{isa}{number} {op}: absolute error 2^-14.7 in [-100pi, 100pi]",
                                  absolute=2.0 ** -14.7 + HALF_ULP), ".wide")
        yield _function(f"lg2.approx{ftz}", _spread("lg2", -126, 127, False), Bound(
            "f32", isa + "20 lg2: absolute error 2^-22 in (0.5, 2), relative outside",
            absolute=2.0 ** -22 + HALF_ULP, relative=2.0 ** -22 + HALF_ULP))
        yield _function(f"ex2.approx{ftz}", _spread("ex2", -20, 7),
                        Bound("f32", isa + "21 ex2: 2 ulp", ulp=2))
        for mode in ("approx", "full"):
            op = f"div.{mode}{ftz}.f32"
            yield element(op, f"{op} %d, %a, %b;", "f32", ("f32", "f32"), inputs=_quotients(),
                          rule=Bound("f32", f"{isa}8 {op}: 2 ulp for |b| in [2^-126, 2^126]", ulp=2))
            # "For 2^126 < |b| < 2^128 ... NaN ..., otherwise a sign-preserving zero" (approx).
            yield element(op + ".large", f"{op} %d, %a, %b;", "f32", ("f32", "f32"),
                          inputs=_large_divisors(),
                          rule=Bound("f32", f"{isa}8 {op}: zeros and NaNs, or 2 ulp", ulp=2))
    yield _function("tanh.approx", _spread("tanh", -20, 5),
                    Bound("f32", isa + "22 tanh: relative error 2^-11",
                          relative=2.0 ** -11 + HALF_ULP))
    inputs = values.operands(["f64"], COUNT, "approx")
    for op, number in (("rcp.approx.ftz.f64", 14), ("rsqrt.approx.ftz.f64", 17)):
        yield element(op, f"{op} %d, %a;", "f64", "f64", inputs=inputs, rule=Bound(
            "f64", f"{isa}{number} {op}: 20 fraction bits", relative=2.0 ** -20))
    yield element("rsqrt.approx.f64", "rsqrt.approx.f64 %d, %a;", "f64", "f64", inputs=inputs,
                  rule=Bound("f64", "CUDA C++ Programming Guide, table of double-precision functions:"
                             " rsqrt 1 ulp", ulp=2))


def _function(op, inputs, rule, end=""):
    return element(f"{op}.f32{end}", f"{op}.f32 %d, %a;", "f32", "f32", inputs=inputs, rule=rule)


def _large_divisors():
    a, b = values.operands(["f32", "f32"], COUNT, "large divisors")
    exponent = np.uint32(252) + b % np.uint32(3)
    return [a, (b & np.uint32(0x807fffff)) | (exponent << np.uint32(23))]


def _quotients():
    a, b = values.operands(["f32", "f32"], 2 * COUNT, "quotients")
    exponent = (b >> np.uint32(23)) & np.uint32(255)
    inside = ((exponent >= 1) & (exponent <= 252)) | (b << np.uint32(1) == 0) | (exponent == 255)
    keep = np.flatnonzero(inside)[:COUNT]
    return [a[keep], b[keep]]


def cases():
    yield from exact()
    yield from signs_and_limits()
    yield from approximate()
