"""Data movement (PTX ISA 9.0, 9.7.9): ld and st of every width, vector and state space, sign
extension, mov with packing, vector registers, cvta and isspacep."""

import numpy as np

import values
from case import Case
from element import element

THREADS = 32
SCALARS = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32",
           "f64")
LOADS = ("", ".volatile", ".relaxed.gpu", ".acquire.sys", ".ca", ".cg", ".cs", ".lu", ".cv", ".nc",
         ".L1::evict_first", ".L1::no_allocate", ".L2::128B", ".nc.L1::evict_last.L2::256B", ".weak")
STORES = ("", ".volatile", ".relaxed.cta", ".release.gpu", ".wb", ".cg", ".cs", ".wt",
          ".L1::evict_last", ".weak")
PREAMBLE = (".shared .align 16 .b8 memory_shared[8192];\n"
            ".global .align 16 .b8 memory_global[8192];\n")


def _head():
    return [".visible .entry $entry(.param .u64 in0, .param .u64 out)\n{",
            ".reg .u64 %p<8>, %o; .reg .u32 %t; .local .align 16 .b8 stack[256];",
            "mov.u32 %t, %tid.x; ld.param.u64 %p0, [in0]; ld.param.u64 %p1, [out];"]


def _case(name, instruction, lines, source, words):
    return Case(name=name, instruction=instruction, entry="\n".join([*lines, "ret;\n}"]),
                inputs=[source], output=np.zeros(words, np.uint64), block=(THREADS, 1, 1),
                preamble=PREAMBLE)


def widening():
    """Every scalar load into every wider register; all bytes of the register are stored."""
    source = values.random_bits(8, 256, "memory").copy()
    source[::5] |= np.uint8(0x80)
    for kind in SCALARS:
        size = values.bits_of(kind) // 8
        for width in (16, 32, 64):
            if width < 8 * size or (kind[0] == "f" and width != 8 * size):
                continue
            register = kind if kind[0] == "f" else f"b{width}"
            text = f"ld.global.{kind} %d, [%p2];"
            lines = [*_head(), f".reg .{register} %d;", f"mul.wide.u32 %o, %t, {size};",
                     "add.u64 %p2, %p0, %o;", text, "mul.wide.u32 %o, %t, 8; add.u64 %p3, %p1, %o;",
                     f"st.global.{register} [%p3], %d;"]
            yield _case(f"ld.{kind}.into.{register}", f"{text} into .{register}", lines, source,
                        THREADS)
            text = f"st.global.{kind} [%p2], %d;"
            lines = [*_head(), f".reg .{register} %d;", "mul.wide.u32 %o, %t, 8;",
                     "add.u64 %p2, %p0, %o;", f"ld.global.{register} %d, [%p2];",
                     "add.u64 %p2, %p1, %o;", text]
            yield _case(f"st.{kind}.of.{register}", f"{text} of .{register}", lines, source, THREADS)


def vectors():
    source = values.random_bits(8, 2048, "vectors")
    for kind in ("b8", "s8", "u16", "s16", "b32", "s32", "u64", "f32", "f64"):
        size = values.bits_of(kind) // 8
        for n in (2, 4):
            if n * size > 16:
                continue
            register = kind if kind[0] == "f" else f"{kind[0]}{max(8 * size, 16)}"
            names = "{" + ", ".join(f"%d{k}" for k in range(n)) + "}"
            for space in ("global", "shared", "local", "generic"):
                dot = "" if space == "generic" else "." + space
                yield _vector_case(kind, size, n, register, names, space, dot, source)
            zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(register, "0")
            text = f"ld.global.v{n}.{kind} {names.replace('%d1', '_')}, [%p2];"
            lines = [*_head(), f".reg .{register} %d<{n}>;", f"mul.wide.u32 %o, %t, {n * size};",
                     "add.u64 %p2, %p0, %o; add.u64 %p3, %p1, %o;",
                     f"mov.{register} %d1, {zero};", text, f"st.global.v{n}.{kind} [%p3], {names};"]
            yield _case(f"ld.v{n}.{kind}.sink", text, lines, source, THREADS * n * size // 8 or 4)


def _vector_case(kind, size, n, register, names, space, dot, source):
    """global -> space (vector store), space -> global (vector load), lanes in another order."""
    base = {"shared": "mov.u64 %p4, memory_shared;", "local": "mov.u64 %p4, stack;",
            "global": "mov.u64 %p4, memory_global;",
            "generic": "mov.u64 %p4, memory_shared; cvta.shared.u64 %p4, %p4;"}[space]
    add = "" if space == "local" else "add.u64 %p4, %p4, %o;"
    load = f"ld{dot}.v{n}.{kind} {names}, [%p4];"
    store = f"st{dot}.v{n}.{kind} [%p4], {names};"
    swapped = "{" + ", ".join(f"%d{n - 1 - k}" for k in range(n)) + "}"
    lines = [*_head(), f".reg .{register} %d<{n}>; {base}", f"mul.wide.u32 %o, %t, {n * size};",
             f"{add} add.u64 %p2, %p0, %o; add.u64 %p3, %p1, %o;"]
    lines += [f"ld.global.{kind} %d{k}, [%p2+{k * size}];" for k in range(n)]
    lines += [store, load, f"st.global.v{n}.{kind} [%p3], {swapped};"]
    return _case(f"{space}.v{n}.{kind}", f"{store} {load}", lines, source,
                 max(THREADS * n * size // 8, 1))


def qualifiers():
    source = values.random_bits(32, 64, "qualifiers")
    for modifiers in LOADS:
        text = f"ld{_between(modifiers, 'global')}.u32 %d, [%p2];"
        lines = [*_head(), ".reg .u32 %d; mul.wide.u32 %o, %t, 4; add.u64 %p2, %p0, %o;",
                 f"add.u64 %p3, %p1, %o; {text} st.global.u32 [%p3], %d;"]
        yield _case(f"ld{modifiers}", text, lines, source, THREADS // 2)
    for modifiers in STORES:
        text = f"st{_between(modifiers, 'global')}.u32 [%p3], %d;"
        lines = [*_head(), ".reg .u32 %d; mul.wide.u32 %o, %t, 4; add.u64 %p2, %p0, %o;",
                 f"add.u64 %p3, %p1, %o; ld.global.u32 %d, [%p2]; {text}"]
        yield _case(f"st{modifiers}", text, lines, source, THREADS // 2)
    text = "ldu.global.u32 %d, [%p0+4];"
    yield _case("ldu", text, [*_head(), ".reg .u32 %d; mul.wide.u32 %o, %t, 4;",
                              f"add.u64 %p3, %p1, %o; {text} st.global.u32 [%p3], %d;"], source,
                THREADS // 2)


def _between(modifiers, space):
    """The state space stands behind order and scope, in front of cache operators."""
    if modifiers.startswith((".volatile", ".relaxed", ".acquire", ".release", ".weak")):
        return f"{modifiers}.{space}"
    return f".{space}{modifiers}"


def quads():
    source = values.random_bits(64, 2 * THREADS, "b128")
    registers = ".reg .b128 %q<4>; .reg .b64 %d<4>;"
    at = "mul.wide.u32 %o, %t, 16; add.u64 %p2, %p0, %o; add.u64 %p3, %p1, %o;"
    for space in ("global", "shared"):  # the only spaces that .b128 accesses know
        base = f"mov.u64 %p4, memory_{space}; add.u64 %p4, %p4, %o;"
        lines = [*_head(), registers, at, base, "ld.global.b128 %q0, [%p2];",
                 f"st.{space}.b128 [%p4], %q0; ld.{space}.b128 %q1, [%p4];",
                 "st.global.b128 [%p3], %q1;"]
        yield _case(f"b128.{space}", f"st.{space}.b128; ld.{space}.b128", lines, source, 2 * THREADS)
    lines = [*_head(), registers, at, "ld.global.v2.b64 {%d0, %d1}, [%p2];",
             "mov.b128 %q0, {%d1, %d0}; mov.b128 %q1, %q0; mov.b128 {%d2, %d3}, %q1;",
             "st.global.v2.b64 [%p3], {%d2, %d3};"]
    yield _case("mov.b128", "mov.b128", lines, source, 2 * THREADS)
    lines = [*_head(), registers, ".reg .pred %w;", at,
             "ld.global.b128 %q0, [%p2]; and.b32 %t, %t, 1; setp.eq.u32 %w, %t, 0;",
             "mov.b64 %d0, 7; mov.b64 %d1, 9; mov.b128 %q1, {%d0, %d1};",
             "@%w mov.b128 %q1, %q0; st.global.b128 [%p3], %q1;"]
    yield _case("mov.b128.guarded", "@p mov.b128", lines, source, 2 * THREADS)


def vector_registers():
    source = values.random_bits(32, 4 * THREADS, "vector registers")
    at = "mul.wide.u32 %o, %t, 16; add.u64 %p2, %p0, %o; add.u64 %p3, %p1, %o;"
    lines = [*_head(), ".reg .v4 .b32 %v, %u; .reg .b32 %d;", at, "ld.global.v4.b32 %v, [%p2];",
             "mov.b32 %u.x, %v.w; mov.b32 %u.y, %v.z; mov.b32 %u.z, %v.y; add.u32 %u.w, %v.x, 5;",
             "st.global.v4.b32 [%p3], %u;"]
    yield _case("reg.v4.b32", ".reg .v4 .b32 with .x .y .z .w", lines, source, 2 * THREADS)
    lines = [*_head(), ".reg .v2 .b64 %v, %u;", at, "ld.global.v2.b64 %v, [%p2];",
             "mov.b64 %u.r, %v.g; mov.b64 %u.g, %v.r; st.global.v2.b64 [%p3], %u;"]
    yield _case("reg.v2.b64", ".reg .v2 .b64 with .r .g", lines, source, 2 * THREADS)
    lines = [*_head(), ".reg .v4 .f32 %v, %u;", at, "ld.global.v4.f32 %v, [%p2];",
             "mov.v4.f32 %u, {%v.y, %v.x, %v.w, %v.z}; st.global.v4.f32 [%p3], %u;"]
    yield _case("mov.v4.f32", "mov.v4.f32 of a brace list", lines, source, 2 * THREADS)
    lines = [*_head(), ".reg .v2 .u32 %v, %u;", at, "ld.global.v2.u32 %v, [%p2];",
             "mov.v2.u32 %u, %v; st.global.v2.u32 [%p3], %u; st.global.v2.u32 [%p3+8], {%u.y, %v.x};"]
    yield _case("mov.v2.u32", "mov.v2.u32 of a vector", lines, source, 2 * THREADS)


def packing():
    for wide, narrow, n in (("b16", "b8", 2), ("b32", "b16", 2), ("b32", "b8", 4), ("b64", "b32", 2),
                            ("b64", "b16", 4)):
        bits = values.bits_of(narrow)
        register = f"b{bits}"
        names = ", ".join(f"%x{k}" for k in range(n))
        swapped = ", ".join(f"%x{n - 1 - k}" for k in range(n))
        yield element(f"mov.{wide}.{n}x{narrow}",
                      f"mov.{wide} {{{names}}}, %a; mov.{wide} %d, {{{swapped}}};", wide, wide,
                      registers=(f".{register} %x<{n}>",))
    for wide, narrow in (("b32", "b16"), ("b64", "b32")):
        for k in range(2):
            names = ("%x, _", "_, %x")[k]
            yield element(f"mov.{wide}.sink{k}", f"mov.{wide} {{{names}}}, %a; mov.{narrow} %d, %x;",
                          narrow, wide, registers=(f".{narrow} %x",))
    for kind in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"):
        yield element(f"mov.{kind}", f"mov.{kind} %d, %a;", kind, kind)
    yield element("mov.pred", "mov.pred %d, %a;", "pred", "pred", count=32)


def spaces():
    """What kind of address it is must not depend on where a device puts its windows."""
    source = values.random_bits(32, THREADS, "spaces")
    for space, base in (("global", "memory_global"), ("shared", "memory_shared"), ("local", "stack")):
        lines = [*_head(), ".reg .pred %w<4>; .reg .u32 %d<5>;",
                 f"mov.u64 %p2, {base}; cvta.{space}.u64 %p3, %p2; cvta.to.{space}.u64 %p4, %p3;",
                 "isspacep.global %w0, %p3; isspacep.shared %w1, %p3; isspacep.local %w2, %p3;",
                 "selp.u32 %d0, 1, 0, %w0; selp.u32 %d1, 2, 0, %w1; selp.u32 %d2, 4, 0, %w2;",
                 "add.u32 %d0, %d0, %d1; add.u32 %d0, %d0, %d2; setp.eq.u64 %w3, %p2, %p4;",
                 "selp.u32 %d1, 8, 0, %w3; add.u32 %d0, %d0, %d1;",
                 "mul.wide.u32 %o, %t, 4; add.u64 %p5, %p0, %o; add.u64 %p6, %p1, %o;",
                 "ld.u32 %d3, [%p5]; st.u32 [%p3+4], %d3; bar.sync 0; ld.u32 %d4, [%p3+4];",
                 f"ld.{space}.u32 %d2, [%p2+4]; setp.eq.u32 %w3, %d2, %d4;",
                 "selp.u32 %d1, 16, 0, %w3; add.u32 %d0, %d0, %d1; st.u32 [%p6], %d0;"]
        yield _case(f"isspacep.{space}", f"cvta.{space}, isspacep, generic ld and st", lines, source,
                    THREADS // 2)


def cases():
    yield from widening()
    yield from vectors()
    yield from qualifiers()
    yield from quads()
    yield from vector_registers()
    yield from packing()
    yield from spaces()
