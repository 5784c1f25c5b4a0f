"""cvt and cvt.pack (PTX ISA 9.0, 9.7.9.21 and 22): all pairs of types with every rounding, flush and
saturation; fp8 and tf32 too."""

import numpy as np

import values
from element import COUNT, element

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")
TO_INTEGER = (".rni", ".rzi", ".rmi", ".rpi")
TO_FLOAT = (".rn", ".rz", ".rm", ".rp")


def _width(kind):
    return values.bits_of(kind)


def _register(kind):
    """Narrow results go to 32-bit registers: their upper bits are part of the result."""
    return "b32" if kind in INTEGERS and _width(kind) < 32 else kind


def _holds(to, source):
    """Every value of `source` is one of `to`: .sat is not allowed then."""
    if to[0] == source[0]:
        return _width(to) >= _width(source)
    return source[0] == "u" and _width(to) > _width(source)


def _convert(op, to, source, inputs=None):
    if "bf16" in (to, source) and min(_width(to), _width(source)) == 8:
        # These forms want registers of exactly the type.
        narrow = to if to in INTEGERS else source
        text = (f"{op}.{to}.{source} %x, %a; cvt.u32.u8 %d, %x;" if to == narrow else
                f"cvt.u8.u16 %x, %a; {op}.{to}.{source} %d, %x;")
        return element(f"{op}.{to}.{source}", text, "b32" if to == narrow else to, source,
                       registers=(f".{narrow} %x",), inputs=inputs)
    register = to if source == "bf16" else _register(to)
    return element(f"{op}.{to}.{source}", f"{op}.{to}.{source} %d, %a;", register, source,
                   inputs=inputs)


def integers():
    for to in INTEGERS:
        for source in INTEGERS:
            if to != source:
                yield _convert("cvt", to, source)
            if not _holds(to, source):
                yield _convert("cvt.sat", to, source)


def float_to_integer():
    for to in INTEGERS:
        for source in FLOATS:
            for rounding in TO_INTEGER:
                yield _convert("cvt" + rounding, to, source)
            if source != "bf16":
                yield _convert("cvt.rzi.sat", to, source)
            if source == "f32":
                yield _convert("cvt.rpi.ftz", to, source)


def integer_to_float():
    for to in FLOATS:
        for source in INTEGERS:
            for rounding in TO_FLOAT:
                yield _convert("cvt" + rounding, to, source)
            if to != "bf16":
                yield _convert("cvt.rn.sat", to, source)


def float_to_float():
    for source in FLOATS:
        for rounding in TO_INTEGER:
            yield _convert("cvt" + rounding, source, source)
        if source == "f32":
            for rounding in TO_INTEGER:
                yield _convert(f"cvt{rounding}.ftz", source, source)
            yield _convert("cvt.ftz.sat", source, source)
        if source != "bf16":
            yield _convert("cvt.rni.sat", source, source)
            yield _convert("cvt.sat", source, source)
        for to in FLOATS:
            if to == source:
                continue
            narrower = _width(to) < _width(source) or {to, source} == {"f16", "bf16"}
            for rounding in TO_FLOAT if narrower else ("",):
                yield _convert("cvt" + rounding, to, source)
            rounding = ".rn" if narrower else ""
            if "bf16" not in (to, source):
                yield _convert(f"cvt{rounding}.sat", to, source)
            if "f32" in (to, source) and "bf16" not in (to, source):
                yield _convert(f"cvt{rounding}.ftz", to, source)
    for to in ("f16", "bf16"):
        for rounding in (".rn", ".rz"):
            for end in (".relu", ".satfinite", ".relu.satfinite"):
                yield _convert(f"cvt{rounding}{end}", to, "f32")
    # .satfinite with .rn and .rz needs sm_100.
    for op in ("cvt.rna", "cvt.rn", "cvt.rz", "cvt.rn.relu", "cvt.rz.relu", "cvt.rna.satfinite"):
        yield element(f"{op}.tf32.f32", f"{op}.tf32.f32 %d, %a;", "b32", "f32")


def packed():
    for to in ("f16x2", "bf16x2"):
        for rounding in (".rn", ".rz"):
            for end in ("", ".relu", ".satfinite", ".relu.satfinite"):
                op = f"cvt{rounding}{end}.{to}.f32"
                yield element(op, f"{op} %d, %a, %b;", to, ("f32", "f32"))
    every_pair = np.arange(1 << 16, dtype=np.uint16)
    every_half = values.operands(["f16x2"], 2 * COUNT, "fp8")
    for fp8 in ("e4m3x2", "e5m2x2"):
        for end in ("", ".relu"):
            op = f"cvt.rn.satfinite{end}.{fp8}"
            yield element(f"{op}.f32", f"{op}.f32 %d, %a, %b;", "b16", ("f32", "f32"),
                          inputs=_near_fp8(fp8))
            yield element(f"{op}.f16x2", f"{op}.f16x2 %d, %a;", "b16", "f16x2", inputs=every_half)
            # All 256 values, in both halves.
            yield element(f"cvt.rn{end}.f16x2.{fp8}", f"cvt.rn{end}.f16x2.{fp8} %d, %a;", "f16x2",
                          "b16", inputs=[every_pair[:256] | (every_pair[:256][::-1] << np.uint16(8))])


def _near_fp8(fp8):
    """f32 values at, between and beside the values of a format."""
    exponent, fraction = (4, 3) if fp8[:4] == "e4m3" else (5, 2)
    bias = (1 << (exponent - 1)) - 1
    bits = values.random_bits(32, 2 * COUNT, f"near {fp8}")
    low, span = 127 - bias - fraction - 2, (1 << exponent) + fraction + 3
    scaled = (bits >> np.uint32(23)) % np.uint32(span) + np.uint32(low)
    keep = np.array([0x80000000 | ((1 << 23) - (1 << (23 - fraction - k))) for k in range(3)],
                    np.uint32)[np.arange(len(bits)) % 3]
    near = (bits & keep) | (scaled << np.uint32(23))
    near = near + ((bits >> np.uint32(3)) % np.uint32(3)).astype(np.uint32) - np.uint32(1)
    edge = values.edges("f32")
    a = np.concatenate([edge, near])[:2 * COUNT]
    return [a, np.roll(a, 11)]


def pack():
    for to in ("u16", "s16"):
        op = f"cvt.pack.sat.{to}.s32"
        yield element(op, f"{op} %d, %a, %b;", "b32", ("s32", "s32"), inputs=_short(2))
    for to in ("u8", "s8", "u4", "s4", "u2", "s2"):
        op = f"cvt.pack.sat.{to}.s32.b32"
        yield element(op, f"{op} %d, %a, %b, %c;", "b32", ("s32", "s32", "b32"), inputs=_short(3))


def _short(count):
    """Integers around the limits of narrow types, and the usual ones."""
    arrays = values.operands(["s32"] * count, COUNT, "operands")
    shift = values.random_bits(32, COUNT, "pack") % np.uint32(28)
    small = (arrays[0].view(np.int32) >> shift.astype(np.int32)).view(np.uint32)
    arrays[0] = np.where(np.arange(COUNT) % 2 == 0, small, arrays[0])
    arrays[1] = np.where(np.arange(COUNT) % 3 == 0, np.roll(small, 5), arrays[1])
    return arrays


def cases():
    yield from integers()
    yield from float_to_integer()
    yield from integer_to_float()
    yield from float_to_float()
    yield from packed()
    yield from pack()
