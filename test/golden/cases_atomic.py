"""atom and red (PTX ISA 9.0, 9.7.13.4 to 6): every operation and type in global and shared memory.

Each thread has a word of its own, so that the result does not depend on the order of the threads:
operand a is what lies in memory, the results are what atom returned and what memory holds after.
"""

import numpy as np

import values
from case import Case
from element import COUNT, element

INTEGER = ("u32", "s32", "u64", "s64")


def _place(space, size):
    """Instructions that put the address of this thread's word into %g."""
    if space == "shared":
        return (f"mov.u32 %h, %tid.x; mul.wide.u32 %g, %h, {size}; mov.u64 %k, slots;"
                " add.u64 %g, %g, %k;")
    return f"mul.wide.u32 %g, %i, {size}; mov.u64 %k, words; add.u64 %g, %g, %k;"


PREAMBLE = (".shared .align 16 .b8 slots[4096];\n"
            f".global .align 16 .b8 words[{16 * 2 * COUNT}];\n")
REGISTERS = (".b64 %g", ".b64 %k", ".b32 %h")


def atom(op, kind, space, sources, inputs=None, plain=None):
    """`plain`: type of the loads and stores around, if ld does not know `kind`."""
    size = values.bits_of(kind) // 8
    plain = plain or f"b{8 * size}"
    dot = "" if space == "generic" else "." + space
    prepare = _place(space, size)
    operands = "%b, %c" if sources == 3 else "%b"
    text = (f"{prepare} st{dot}.{plain} [%g], %a; atom{dot}.{op}.{kind} %d, [%g], {operands};"
            f" ld{dot}.{plain} %q, [%g];")
    yield element(f"atom{dot}.{op}.{kind}", text, (kind, kind), (kind,) * sources, inputs=inputs,
                  registers=REGISTERS, preamble=PREAMBLE,
                  instruction=f"atom{dot}.{op}.{kind} %d, [%a], {operands};")
    if sources == 2 and op != "exch":
        red = f"red{dot}.{op}.{kind}"
        text = (f"{prepare} st{dot}.{plain} [%g], %a; {red} [%g], %b; ld{dot}.{plain} %d, [%g];")
        yield element(red, text, kind, (kind,) * sources, inputs=inputs, registers=REGISTERS,
                      preamble=PREAMBLE, instruction=f"{red} [%a], %b;")


def _compare_swap(kind):
    """Every second comparison holds."""
    a, b, c = values.operands([kind] * 3, COUNT, "operands")
    return [a, np.where(np.arange(COUNT) % 2 == 0, a, b), c]


def scalars():
    for space in ("global", "shared", "generic"):
        for kind in INTEGER:
            for op in ("add", "min", "max"):
                if space == "generic" and kind[0] == "s":
                    continue
                if op == "add" and kind == "s64":
                    continue  # no such form: .u64 serves
                yield from atom(op, kind, space, 2)
        for kind in ("b32", "b64"):
            for op in ("and", "or", "xor", "exch"):
                yield from atom(op, kind, space, 2)
        for op in ("inc", "dec"):
            yield from atom(op, "u32", space, 2)
        for kind in ("b16", "b32", "b64"):
            yield from atom("cas", kind, space, 3, inputs=_compare_swap(kind))
        for kind in ("f32", "f64"):
            yield from atom("add", kind, space, 2, plain=kind)
        for kind in ("f16", "bf16", "f16x2", "bf16x2"):
            yield from atom("add.noftz", kind, space, 2)
    # Orders and scopes change nothing for a thread that is alone.
    for order in ("relaxed", "acquire", "release", "acq_rel"):
        for scope in ("cta", "cluster", "gpu", "sys"):
            a = values.operands(["u32", "u32"], 32, "orders")
            text = (_place("global", 4) + f" st.global.u32 [%g], %a;"
                    f" atom.{order}.{scope}.global.add.u32 %d, [%g], %b; ld.global.u32 %q, [%g];")
            yield element(f"atom.{order}.{scope}.global.add.u32", text, ("u32", "u32"),
                          ("u32", "u32"), inputs=a, registers=REGISTERS, preamble=PREAMBLE)


def vectors():
    """atom.add with .v2 .v4 .v8: the elements of the memory vector are consecutive inputs."""
    forms = [("v2", "f32", "add"), ("v4", "f32", "add")]
    for kind in ("f16", "bf16"):
        forms += [(v, kind, f"{op}.noftz") for v in ("v2", "v4", "v8") for op in ("add", "min", "max")]
    for kind in ("f16x2", "bf16x2"):
        forms += [(v, kind, f"{op}.noftz") for v in ("v2", "v4") for op in ("add", "min", "max")]
    for vector, kind, op in forms:
        yield from _vector(int(vector[1]), kind, op)


def _vector(n, kind, op):
    size = values.bits_of(kind) // 8
    register = kind if kind == "f32" else f"b{8 * size}"
    count = 64
    a, b = values.operands([kind, kind], count * n, "operands")
    lines = [".visible .entry $entry(.param .u64 in0, .param .u64 in1, .param .u64 out)\n{",
             ".reg .u64 %p<4>, %o; .reg .u32 %t;",
             *(f".reg .{register} %{r}<{n}>;" for r in "xyz"),
             "ld.param.u64 %p0, [in0]; ld.param.u64 %p1, [in1]; ld.param.u64 %p2, [out];",
             f"mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, {n * size};",
             "add.u64 %p0, %p0, %o; add.u64 %p1, %p1, %o; add.u64 %p2, %p2, %o;"]

    def brace(name):
        return "{" + ", ".join(f"%{name}{k}" for k in range(n)) + "}"

    for k in range(n):
        lines.append(f"ld.global.{register} %x{k}, [%p0+{k * size}];")
        lines.append(f"ld.global.{register} %y{k}, [%p1+{k * size}];")
    for k in range(n):
        lines.append(f"st.global.{register} [%p2+{k * size}], %x{k};")
    # red once more, so that its result lies on top.
    text = f"atom.global.{op}.v{n}.{kind} {brace('z')}, [%p2], {brace('y')};"
    lines += [text, f"red.global.{op}.v{n}.{kind} [%p2], {brace('y')};"]
    total = count * n * size
    for k in range(n):
        lines.append(f"st.global.{register} [%p2+{total + k * size}], %z{k};")
    lines.append("ret;\n}")
    yield Case(name=f"atom.global.{op}.v{n}.{kind}", instruction=text, entry="\n".join(lines),
               inputs=[a, b], output=np.zeros(2 * count * n, values.WIDTHS[8 * size]),
               block=(count, 1, 1))


def wide():
    """.b128 exchange and compare-and-swap."""
    count = 64
    a = values.random_bits(64, 2 * count, "b128 memory")
    b = values.random_bits(64, 2 * count, "b128 operand")
    swap = values.random_bits(64, 2 * count, "b128 swap")
    matching = np.where(np.arange(2 * count) // 2 % 2 == 0, a, b)
    half = np.where(np.arange(2 * count) % 4 < 3, a, b)  # of every second pair, one half matches
    for space in ("global", "shared"):
        for op, compare in (("exch", b), ("cas", matching), ("cas.half", half)):
            operands = "%q1, %q2" if op.startswith("cas") else "%q1"
            place = ("mov.u64 %p3, slots; add.u64 %p3, %p3, %o;" if space == "shared" else
                     "add.u64 %p3, %p2, %o;")
            instruction = f"atom.{space}.{op[:4].strip('.')}.b128 %q3, [%p3], {operands};"
            entry = "\n".join([
                ".visible .entry $entry(.param .u64 in0, .param .u64 in1, .param .u64 in2,"
                " .param .u64 out)\n{",
                ".reg .u64 %p<5>, %o; .reg .u32 %t; .reg .b128 %q<5>;",
                "ld.param.u64 %p0, [in0]; ld.param.u64 %p1, [in1]; ld.param.u64 %p4, [in2];",
                "ld.param.u64 %p2, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 16;",
                "add.u64 %p0, %p0, %o; add.u64 %p1, %p1, %o; add.u64 %p4, %p4, %o;", place,
                "ld.global.b128 %q0, [%p0]; ld.global.b128 %q1, [%p1]; ld.global.b128 %q2, [%p4];",
                f"st.{space}.b128 [%p3], %q0;", instruction, "add.u64 %p2, %p2, %o;",
                f"ld.{space}.b128 %q4, [%p3];", "st.global.b128 [%p2], %q4;",
                f"st.global.b128 [%p2+{16 * count}], %q3;", "ret;\n}"])
            yield Case(name=f"atom.{space}.{op}.b128", instruction=instruction, entry=entry,
                       inputs=[a, compare, swap], output=np.zeros(4 * count, np.uint64),
                       block=(count, 1, 1), preamble=PREAMBLE)


def cases():
    yield from scalars()
    yield from vectors()
    yield from wide()
