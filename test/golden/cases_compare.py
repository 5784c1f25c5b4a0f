"""Comparison and selection (PTX ISA 9.0, 9.7.6 and 9.7.7), testp, copysign."""

from element import element

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
FLOATS = ("f32", "f64", "f16", "bf16")


def _relations(kind):
    if kind in FLOATS or kind in ("f16x2", "bf16x2"):
        return ORDERED + UNORDERED
    if kind[0] == "b":
        return ("eq", "ne")
    return ORDERED + (("lo", "ls", "hi", "hs") if kind[0] == "u" else ())


def _setp(relation, kind, combine=None):
    """f16 and bf16 have one result; the others the predicate and its complement, packed pairs one
    per half."""
    op = ".".join(filter(None, ("setp", relation, combine, kind)))
    single = kind in ("f16", "bf16")
    d = "%d" if single else "%d|%q"
    c = ", !%c" if combine else ""
    sources = (kind, kind, "pred") if combine else (kind, kind)
    return element(op, f"{op} {d}, %a, %b{c};", "pred" if single else ("pred", "pred"), sources)


def setp():
    kinds = [f"{c}{w}" for c in "bus" for w in (16, 32, 64)]
    for kind in (*kinds, *FLOATS, "f16x2", "bf16x2"):
        for relation in _relations(kind):
            yield _setp(relation, kind)
    for kind in ("f32", "f16", "f16x2"):
        for relation in ("eq.ftz", "ltu.ftz", "ge.ftz", "num.ftz"):
            yield _setp(relation, kind)
    for combine in ("and", "or", "xor"):
        for kind, relation in (("s32", "lt"), ("f32", "geu"), ("u64", "ne"), ("f64", "gt"),
                               ("f16", "le"), ("bf16", "gtu")):
            yield _setp(relation, kind, combine)
    for kind in ("f16x2", "bf16x2"):
        yield _setp("lt", kind, "and")


def set_values():
    for result in ("u32", "s32", "f32"):
        for kind in ("u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64"):
            relation = "ne" if kind[0] == "b" else "lt"
            yield element(f"set.{relation}.{result}.{kind}",
                          f"set.{relation}.{result}.{kind} %d, %a, %b;", result, (kind, kind))
        yield element(f"set.geu.xor.{result}.f32", f"set.geu.xor.{result}.f32 %d, %a, %b, %c;",
                      result, ("f32", "f32", "pred"))
    yield element("set.lt.ftz.u32.f32", "set.lt.ftz.u32.f32 %d, %a, %b;", "u32", ("f32", "f32"))
    for kind in ("f16", "bf16"):
        for result in ("u16", "s16", "u32", "s32", kind):
            for relation in ("eq", "gtu", "nan"):
                yield element(f"set.{relation}.{result}.{kind}",
                              f"set.{relation}.{result}.{kind} %d, %a, %b;", result, (kind, kind))
    for kind in ("f16x2", "bf16x2"):
        for relation in ("eq", "gtu", "nan", "ne"):
            yield element(f"set.{relation}.{kind}.{kind}", f"set.{relation}.{kind}.{kind} %d, %a, %b;",
                          kind, (kind, kind))
    yield element("set.le.or.f16x2.f16x2", "set.le.or.f16x2.f16x2 %d, %a, %b, %c;", "f16x2",
                  ("f16x2", "f16x2", "pred"))


def selection():
    for kind in [f"{c}{w}" for c in "bus" for w in (16, 32, 64)] + ["f32", "f64"]:
        yield element(f"selp.{kind}", f"selp.{kind} %d, %a, %b, %c;", kind, (kind, kind, "pred"))
        for condition in ("s32", "f32"):
            yield element(f"slct.{kind}.{condition}", f"slct.{kind}.{condition} %d, %a, %b, %c;",
                          kind, (kind, kind, condition))
    yield element("slct.ftz.b32.f32", "slct.ftz.b32.f32 %d, %a, %b, %c;", "b32",
                  ("b32", "b32", "f32"))


def properties():
    for kind in ("f32", "f64"):
        for op in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield element(f"testp.{op}.{kind}", f"testp.{op}.{kind} %d, %a;", "pred", kind)
        yield element(f"copysign.{kind}", f"copysign.{kind} %d, %a, %b;", kind, (kind, kind))


def cases():
    yield from setp()
    yield from set_values()
    yield from selection()
    yield from properties()
