"""wmma.load, wmma.store and wmma.mma: every shape and type (PTX ISA 9.0, 9.7.14.4).

Loads read matrices whose elements are their own positions, a digit at a time, so the recorded
registers are the layout of the fragments.
"""

import numpy as np

from matrix_case import BITS, multiply_case, pack, registers, thread_case, words

# shape, m, n, k, kind of a and b, registers of a and b, kind of c and d, registers
SHAPES = {"m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16)}
FRAGMENTS = []
for _shape, _size in SHAPES.items():
    FRAGMENTS.append((_shape, *_size, "f16", 8, 8, "f32", 8))
    FRAGMENTS.append((_shape, *_size, "f16", 8, 8, "f16", 4))
    _wide = {"m16n16k16": (4, 4), "m32n8k16": (8, 2), "m8n32k16": (2, 8)}[_shape]
    FRAGMENTS.append((_shape, *_size, "bf16", *_wide, "f32", 8))
    for _kind in ("s8", "u8"):
        FRAGMENTS.append((_shape, *_size, _kind, _wide[0] // 2, _wide[1] // 2, "s32", 8))
FRAGMENTS.append(("m16n16k8", 16, 16, 8, "tf32", 4, 4, "f32", 8))
FRAGMENTS.append(("m8n8k4", 8, 8, 4, "f64", 1, 1, "f64", 2))
for _kind in ("s4", "u4"):
    FRAGMENTS.append(("m8n8k32", 8, 8, 32, _kind, 1, 1, "s32", 2))
FRAGMENTS.append(("m8n8k128", 8, 8, 128, "b1", 1, 1, "s32", 2))


def _positions(kind, count):
    """[passes, 32, words]: element i holds digit `pass` of i."""
    width = min(BITS[kind], 32)
    passes = -(-(count - 1).bit_length() // width)
    index = np.arange(count, dtype=np.uint64)
    images = [pack((index >> np.uint64(p * width)) & np.uint64((1 << width) - 1), kind)
              for p in range(passes)]
    return np.stack([image.reshape(32, -1) for image in images])


def _copy_registers(letter, count, kind):
    if kind != "f64":
        return "", registers(letter, 0, count), ""
    declare = f".reg .f64 %fd<{count + 1}>;\n"
    if letter == "o":
        after = "".join(f"mov.b64 {{%o{2 * k}, %o{2 * k + 1}}}, %fd{k};\n" for k in range(count))
        return declare, registers("fd", 0, count), after
    before = "".join(f"mov.b64 %fd{k}, {{%i{2 * k}, %i{2 * k + 1}}};\n" for k in range(count))
    return declare + before, registers("fd", 0, count), ""


def load_case(which, shape, rows, columns, kind, count, layout, space):
    inputs = _positions(kind, rows * columns)
    size = inputs.shape[2] * 4 * 32
    before, names, after = _copy_registers("o", count, kind)
    stride = columns if layout == "row" else rows
    body = f"mad.wide.u32 %rd4, %t1, {size}, %rd0;\n"
    if space != ".global":
        body += (f"mov.u32 %t4, sm; mad.lo.u32 %t5, %t0, {size // 32}, %t4;\n"
                 + "".join(f"st.shared.b32 [%t5+{4 * k}], %i{k};\n" for k in range(size // 128))
                 + "bar.sync 0;\ncvt.u64.u32 %rd4, %t4;\n")
        if not space:
            body += "cvta.shared.u64 %rd4, %rd4;\n"
    text = f"wmma.load.{which}.sync.aligned.{layout}.{shape}{space}.{kind} {names}, [%rd4], {stride};"
    outputs = count * (2 if kind == "f64" else 1)
    return thread_case(f"load.{which}.{shape}.{kind}.{layout}{space or '.generic'}", text,
                       body + before + text + "\n" + after, inputs, outputs,
                       shared=size if space != ".global" else 0)


def store_case(shape, rows, columns, kind, count, layout, padding):
    """`padding`: elements between rows that the store must not touch."""
    words_in = count * (2 if kind == "f64" else 1)
    name = f"store.{shape}.{kind}.{layout}" + (".padded" if padding else "")
    inputs = words("s32", "any", (1, 32, words_in), "c", name)
    before, names, _ = _copy_registers("i", count, kind)
    stride = (columns if layout == "row" else rows) + padding
    lines = (rows if layout == "row" else columns)
    outputs = -(-stride * lines * BITS[kind] // 32 // 32)
    text = f"wmma.store.d.sync.aligned.{layout}.{shape}.global.{kind} [%rd1], {names}, {stride};"
    return thread_case(name, text, before + text, inputs, outputs, store=False)


def copies():
    seen = set()
    for shape, m, n, k, kind, a, b, accumulator, c in FRAGMENTS:
        for which, rows, columns, element, count in (("a", m, k, kind, a), ("b", k, n, kind, b),
                                                     ("c", m, n, accumulator, c)):
            if (shape, which, element) in seen:
                continue
            seen.add((shape, which, element))
            for layout in ("row", "col"):
                if element in ("s4", "u4", "b1") and layout != {"a": "row", "b": "col"}[which]:
                    continue
                yield load_case(which, shape, rows, columns, element, count, layout, ".global")
                if which == "c":
                    for padding in (0, 8):
                        yield store_case(shape, rows, columns, element, count, layout, padding)
    for space in (".shared", ""):
        yield load_case("a", "m16n16k16", 16, 16, "f16", 8, "row", space)
        yield load_case("b", "m16n16k16", 16, 16, "f16", 8, "row", space)


def _repeats(shape, kind, a, b):
    """Unique registers of a and b, and how often the operand names them."""
    if kind != "f16":
        return (a, b), (1, 1)
    unique = {"m16n16k16": (4, 4), "m32n8k16": (8, 2), "m8n32k16": (2, 8)}[shape]
    return unique, (8 // unique[0], 8 // unique[1])


def products():
    for shape, m, n, k, kind, a, b, accumulator, c in FRAGMENTS:
        (a, b), repeats = _repeats(shape, kind, a, b)
        scale = 2 if kind == "f64" else 1
        counts = (a * scale, b * scale, c * scale, c * scale)
        kinds = (kind, kind, accumulator)
        if kind == "b1":
            for operation in ("and", "xor"):
                yield multiply_case(f"mma.{shape}.b1.{operation}",
                                    f"wmma.mma.{operation}.popc.sync.aligned.row.col.{shape}.s32.b1.b1.s32",
                                    kinds, counts)
            continue
        layouts = (("row", "col"),) if kind in ("s4", "u4") else (
            ("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
        types = {"f16": f"{accumulator}.{accumulator}",
                 "f64": "f64.f64.f64.f64"}.get(kind, f"{accumulator}.{kind}.{kind}.{accumulator}")
        for left, right in layouts:
            modes = None if (left, right) == ("row", "col") else ("near",)
            if kind in ("s8", "u8", "s4", "u4") and modes:
                modes = ("any",)
            yield multiply_case(f"mma.{shape}.{kind}.{accumulator}.{left}.{right}",
                                f"wmma.mma.sync.aligned.{left}.{right}.{shape}.{types}", kinds, counts,
                                modes=modes, repeats=repeats)
        if kind == "f16":
            other = "f16" if accumulator == "f32" else "f32"
            yield multiply_case(f"mma.{shape}.f16.{accumulator}.{other}",
                                f"wmma.mma.sync.aligned.row.col.{shape}.{accumulator}.{other}",
                                (kind, kind, other), (a, b, 8 if other == "f32" else 4, c),
                                repeats=repeats, modes=("edge", "any", "near", "cancel"))
        if kind in ("s8", "u8", "s4", "u4"):
            yield multiply_case(f"mma.{shape}.{kind}.satfinite",
                                f"wmma.mma.sync.aligned.row.col.{shape}.{types}.satfinite", kinds, counts,
                                repeats=repeats)


def cases():
    yield from copies()
    yield from products()
