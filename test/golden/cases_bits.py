"""Logic and shifts (PTX ISA 9.0, 9.7.8), bit operations of 9.7.1 and prmt (9.7.9)."""

import numpy as np

import values
from element import COUNT, element

LUTS = (0x00, 0x01, 0x17, 0x2d, 0x40, 0x6a, 0x80, 0x96, 0xca, 0xd8, 0xe8, 0xf0, 0xfe, 0xff)


def logic():
    for width in (16, 32, 64):
        kind = f"b{width}"
        for op in ("and", "or", "xor"):
            yield element(f"{op}.{kind}", f"{op}.{kind} %d, %a, %b;", kind, (kind, kind))
        for op in ("not", "cnot"):
            yield element(f"{op}.{kind}", f"{op}.{kind} %d, %a;", kind, kind)
    for op in ("and", "or", "xor"):
        yield element(f"{op}.pred", f"{op}.pred %d, %a, %b;", "pred", ("pred", "pred"), count=32)
    yield element("not.pred", "not.pred %d, %a;", "pred", "pred", count=32)
    for lut in LUTS:
        yield element(f"lop3.b32.{lut:#04x}", f"lop3.b32 %d, %a, %b, %c, {lut:#04x};", "b32",
                      ("b32",) * 3)
    for op in ("and", "or"):
        yield element(f"lop3.{op}", f"lop3.{op}.b32 %d|%g, %a, %b, %c, 0x96, %e; selp.u32 %q, 1, 0, %g;",
                      ("b32", "b32"), ("b32", "b32", "b32", "pred"), registers=(".pred %g",))


def _amounts(count):
    random = values.random_bits(32, count, "shift amounts")
    return np.where(np.arange(count) % 4 != 3, random % np.uint32(80), random).astype(np.uint32)


def shifts():
    for width in (16, 32, 64):
        for kind, op in ((f"b{width}", "shl"), (f"u{width}", "shr"), (f"s{width}", "shr"),
                         (f"b{width}", "shr")):
            a = values.operands([kind], COUNT, "operands")[0]
            yield element(f"{op}.{kind}", f"{op}.{kind} %d, %a, %b;", kind, (kind, "u32"),
                          inputs=[a, _amounts(COUNT)])
    a, b, _ = values.operands(["b32", "b32", "b32"], COUNT, "operands")
    for direction in "lr":
        for mode in ("clamp", "wrap"):
            op = f"shf.{direction}.{mode}.b32"
            yield element(op, f"{op} %d, %a, %b, %c;", "b32", ("b32", "b32", "u32"),
                          inputs=[a, b, _amounts(COUNT)])


def counts():
    for width in (32, 64):
        for op in ("popc", "clz"):
            yield element(f"{op}.b{width}", f"{op}.b{width} %d, %a;", "u32", f"b{width}")
        yield element(f"brev.b{width}", f"brev.b{width} %d, %a;", f"b{width}", f"b{width}")
        for sign in "us":
            kind = f"{sign}{width}"
            for op in ("bfind", "bfind.shiftamt"):
                yield element(f"{op}.{kind}", f"{op}.{kind} %d, %a;", "u32", kind)


def fields():
    position, length = _amounts(COUNT), _amounts(COUNT)[::-1].copy()
    for width in (32, 64):
        for sign in "us":
            kind = f"{sign}{width}"
            a = values.operands([kind], COUNT, "operands")[0]
            yield element(f"bfe.{kind}", f"bfe.{kind} %d, %a, %b, %c;", kind, (kind, "u32", "u32"),
                          inputs=[a, position, length])
        kind = f"b{width}"
        a, b = values.operands([kind, kind], COUNT, "operands")
        yield element(f"bfi.{kind}", f"bfi.{kind} %d, %a, %b, %c, %e;", kind,
                      (kind, kind, "u32", "u32"), inputs=[a, b, position, length])
    for mode in ("clamp", "wrap"):
        yield element(f"bmsk.{mode}.b32", f"bmsk.{mode}.b32 %d, %a, %b;", "b32", ("u32", "u32"),
                      inputs=[position, length])
        for kind in ("u32", "s32"):
            a = values.operands([kind], COUNT, "operands")[0]
            yield element(f"szext.{mode}.{kind}", f"szext.{mode}.{kind} %d, %a, %b;", kind,
                          (kind, "u32"), inputs=[a, position])
    mask = values.operands(["b32"], COUNT, "operands")[0]
    base = values.random_bits(32, COUNT, "fns base") % np.uint32(32)
    offset = (values.random_bits(32, COUNT, "fns offset") % np.uint32(41)).astype(np.int64) - 20
    yield element("fns.b32", "fns.b32 %d, %a, %b, %c;", "b32", ("b32", "u32", "s32"),
                  inputs=[mask, base, offset.astype(np.uint32)])


def permute():
    selector = values.operands(["b32"], COUNT, "prmt")[0]
    a, b = values.operands(["b32", "b32"], COUNT, "operands")
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield element(f"prmt.b32{mode}", f"prmt.b32{mode} %d, %a, %b, %c;", "b32", ("b32",) * 3,
                      inputs=[a, b, selector])


def cases():
    yield from logic()
    yield from shifts()
    yield from counts()
    yield from fields()
    yield from permute()
