"""Integer arithmetic (PTX ISA 9.0, 9.7.1), extended precision (9.7.2) and packed 16-bit integers."""

from element import element

WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
ALL = ("u16", "u32", "u64", "s16", "s32", "s64")


def _two(op, kind):
    return element(f"{op}.{kind}", f"{op}.{kind} %d, %a, %b;", kind, (kind, kind))


def arithmetic():
    for kind in ALL:
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield _two(op, kind)
        yield element(f"sad.{kind}", f"sad.{kind} %d, %a, %b, %c;", kind, (kind,) * 3)
        for op in ("mad.lo", "mad.hi"):
            yield element(f"{op}.{kind}", f"{op}.{kind} %d, %a, %b, %c;", kind, (kind,) * 3)
        if kind in WIDE:
            wide = WIDE[kind]
            yield element(f"mul.wide.{kind}", f"mul.wide.{kind} %d, %a, %b;", wide, (kind, kind))
            yield element(f"mad.wide.{kind}", f"mad.wide.{kind} %d, %a, %b, %c;", wide,
                          (kind, kind, wide))
    for kind in ("s16", "s32", "s64"):
        for op in ("neg", "abs"):
            yield element(f"{op}.{kind}", f"{op}.{kind} %d, %a;", kind, kind)
    for op in ("add.sat", "sub.sat"):
        yield _two(op, "s32")
    yield element("mad.hi.sat.s32", "mad.hi.sat.s32 %d, %a, %b, %c;", "s32", ("s32",) * 3)
    for kind in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield _two(f"mul24.{half}", kind)
            yield element(f"mad24.{half}.{kind}", f"mad24.{half}.{kind} %d, %a, %b, %c;", kind,
                          (kind,) * 3)
    yield element("mad24.hi.sat.s32", "mad24.hi.sat.s32 %d, %a, %b, %c;", "s32", ("s32",) * 3)
    for op in ("min.relu", "max.relu"):
        yield _two(op, "s32")


def packed():
    for kind in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            yield _two(op, kind)
    for op in ("min.relu", "max.relu"):
        yield element(f"{op}.s16x2", f"{op}.s16x2 %d, %a, %b;", "s16x2", ("s16x2",) * 2)
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            d = "s32" if "s32" in (a, b) else "u32"
            yield element(f"dp4a.{a}.{b}", f"dp4a.{a}.{b} %d, %a, %b, %c;", d, (a, b, d))
            for half in ("lo", "hi"):
                yield element(f"dp2a.{half}.{a}.{b}", f"dp2a.{half}.{a}.{b} %d, %a, %b, %c;", d,
                              (a, b, d))


# Four words in, two results out: the flag travels from the first instruction to the last.
def extended():
    for kind in ("u32", "s32", "u64", "s64"):
        z = "0"
        for op in ("add", "sub"):
            yield element(f"{op}.cc.{kind}", f"{op}.cc.{kind} %d, %a, %b; {op}c.{kind} %q, {z}, {z};",
                          (kind, kind), (kind, kind))
            yield element(f"{op}c.cc.{kind}",
                          f"{op}.cc.{kind} %d, %a, %b; {op}c.cc.{kind} %d, %c, %e;"
                          f" {op}c.{kind} %q, {z}, {z};", (kind, kind), (kind,) * 4)
        for half in ("lo", "hi"):
            yield element(f"mad.{half}.cc.{kind}",
                          f"mad.{half}.cc.{kind} %d, %a, %b, %c; addc.{kind} %q, {z}, {z};",
                          (kind, kind), (kind,) * 3)
            yield element(f"madc.{half}.cc.{kind}",
                          f"add.cc.{kind} %d, %c, %e; madc.{half}.cc.{kind} %d, %a, %b, %c;"
                          f" addc.{kind} %q, {z}, {z};", (kind, kind), (kind,) * 4)
            yield element(f"madc.{half}.{kind}",
                          f"add.cc.{kind} %d, %c, %e; madc.{half}.{kind} %d, %a, %b, %c;",
                          kind, (kind,) * 4)


def cases():
    yield from arithmetic()
    yield from packed()
    yield from extended()
