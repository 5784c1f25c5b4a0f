"""mma.sync and mma.sp of sm_90: every shape and type (PTX ISA 9.0, 9.7.14.5 and 9.7.14.6).

The ISA leaves the accumulation of floating-point types open; the emulator follows what the H200
does (emulator/isa/matrix_kernels.h, emulator/matrix_arithmetic.h), so all results are exact.
"""

import numpy as np

import values
from matrix_case import multiply_case

SYNC = "mma.sync.aligned"


def halves():
    for kind in ("f16", "bf16"):
        for shape, counts in (("m16n8k8", (2, 1, 4, 4)), ("m16n8k16", (4, 2, 4, 4))):
            yield multiply_case(f"{shape}.f32.{kind}", f"{SYNC}.{shape}.row.col.f32.{kind}.{kind}.f32",
                                (kind, kind, "f32"), counts, blocks=2)
    for shape, counts in (("m16n8k8", (2, 1, 2, 2)), ("m16n8k16", (4, 2, 2, 2))):
        yield multiply_case(f"{shape}.f16.f16", f"{SYNC}.{shape}.row.col.f16.f16.f16.f16",
                            ("f16",) * 3, counts, blocks=2)
    for shape, counts in (("m16n8k4", (2, 1, 4, 4)), ("m16n8k8", (4, 2, 4, 4))):
        yield multiply_case(f"{shape}.f32.tf32", f"{SYNC}.{shape}.row.col.f32.tf32.tf32.f32",
                            ("tf32", "tf32", "f32"), counts, blocks=2)


# Four independent products of 8x8x4 in a warp, all layouts.
def quads():
    for a in ("row", "col"):
        for b in ("row", "col"):
            for d, c in (("f32", "f32"), ("f32", "f16"), ("f16", "f16")):
                counts = (2, 2, 8 if c == "f32" else 4, 8 if d == "f32" else 4)
                yield multiply_case(f"m8n8k4.{a}.{b}.{d}.{c}", f"{SYNC}.m8n8k4.{a}.{b}.{d}.f16.f16.{c}",
                                    ("f16", "f16", c), counts)


def eighths():
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            for shape, counts in (("m16n8k16", (2, 1)), ("m16n8k32", (4, 2))):
                for d, n in (("f32", 4), ("f16", 2)):
                    yield multiply_case(f"{shape}.{d}.{a}.{b}",
                                        f"{SYNC}.{shape}.row.col.{d}.{a}.{b}.{d}", (a, b, d),
                                        (*counts, n, n))


def doubles():
    for shape, counts in (("m8n8k4", (2, 2, 4, 4)), ("m16n8k4", (4, 2, 8, 8)),
                          ("m16n8k8", (8, 4, 8, 8)), ("m16n8k16", (16, 8, 8, 8))):
        yield multiply_case(f"{shape}.f64", f"{SYNC}.{shape}.row.col.f64.f64.f64.f64", ("f64",) * 3,
                            counts)


def integers():
    for width, shapes in ((8, (("m8n8k16", (1, 1, 2, 2)), ("m16n8k16", (2, 1, 4, 4)),
                               ("m16n8k32", (4, 2, 4, 4)))),
                          (4, (("m8n8k32", (1, 1, 2, 2)), ("m16n8k32", (2, 1, 4, 4)),
                               ("m16n8k64", (4, 2, 4, 4))))):
        for a in "su":
            for b in "su":
                for sat in ("", ".satfinite"):
                    for shape, counts in shapes:
                        kinds = (f"{a}{width}", f"{b}{width}", "s32")
                        yield multiply_case(
                            f"{shape}{sat}.{kinds[0]}.{kinds[1]}",
                            f"{SYNC}.{shape}.row.col{sat}.s32.{kinds[0]}.{kinds[1]}.s32", kinds, counts)
    for operation in ("and", "xor"):
        for shape, counts in (("m8n8k128", (1, 1, 2, 2)), ("m16n8k128", (2, 1, 4, 4)),
                              ("m16n8k256", (4, 2, 4, 4))):
            yield multiply_case(f"{shape}.b1.{operation}",
                                f"{SYNC}.{shape}.row.col.s32.b1.b1.s32.{operation}.popc",
                                ("b1", "b1", "s32"), counts)


def metadata(kind, shape, seed):
    """Valid positions: two of four, of tf32 one of two."""
    if kind == "tf32":
        choices = np.array([0b0100, 0b1110], np.uint64)
    else:
        choices = np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110], np.uint64)
    count = int(np.prod(shape))
    result = np.zeros(count, np.uint64)
    for k in range(8):
        pick = values.random_bits(64, count, f"{seed}/{k}") % np.uint64(len(choices))
        result |= choices[pick] << np.uint64(4 * k)
    return result.astype(np.uint32).reshape(shape)


# kind, shape, words of a and b, number of sparsity selectors
SPARSE = (("f16", "m16n8k16", 2, 2, 4), ("f16", "m16n8k32", 4, 4, 2), ("bf16", "m16n8k16", 2, 2, 4),
          ("bf16", "m16n8k32", 4, 4, 2), ("tf32", "m16n8k8", 2, 2, 4), ("tf32", "m16n8k16", 4, 4, 2),
          ("e4m3", "m16n8k64", 4, 4, 1), ("e5m2", "m16n8k64", 4, 4, 1), ("s8", "m16n8k32", 2, 2, 2),
          ("u8", "m16n8k64", 4, 4, 1), ("s4", "m16n8k64", 2, 2, 2), ("u4", "m16n8k128", 4, 4, 1))


def sparse():
    for kind, shape, a, b, selectors in SPARSE:
        integer = kind[0] in "su"
        d = "s32" if integer else "f32"
        modes = ("edge", "any") if integer else ("edge", "any", "near", "wide")
        for selector in range(selectors):
            for form in ("sp", "sp::ordered_metadata"):
                if form == "sp" and selector % 2:
                    continue
                name = f"{form.replace('::', '.')}.{shape}.{kind}.{selector}"
                yield multiply_case(name, f"mma.{form}.sync.aligned.{shape}.row.col.{d}.{kind}.{kind}.{d}",
                                    (kind, kind, d), (a, b, 4, 4), modes=modes,
                                    tail=f", %i{a + b + 4}, {selector}",
                                    extra=metadata(kind, (len(modes), 32, 1), name))
    yield multiply_case("sp.m16n8k32.f16.f16", "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
                        ("f16",) * 3, (4, 4, 2, 2), modes=("any", "near"), tail=", %i10, 0",
                        extra=metadata("f16", (2, 32, 1), "sp.f16"))


def cases():
    yield from halves()
    yield from quads()
    yield from eighths()
    yield from doubles()
    yield from integers()
    yield from sparse()
