"""What the matrix families (mma, wmma, wgmma, ldmatrix) share: elements of every type in the
patterns that tell accumulation rules apart, and kernels that give each thread words of its own.

In a body, %i0 %i1 ... are the thread's input words, %o0 %o1 ... its results; %t<16> %rd<16> %p<4>
are free, %t0 is %tid.x.
"""

import hashlib

import numpy as np

from case import Case

# exponent and fraction bits
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "f32": (8, 23), "e4m3": (4, 3),
          "e5m2": (5, 2), "f64": (11, 52)}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "e4m3": 8, "e5m2": 8, "f64": 64, "s8": 8,
        "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}
# edge: the limits of the type, rarely infinite or NaN; any: all bits random; near: exponents about
# 0; wide: exponents far apart; cancel: sums that nearly vanish; zeros: a +0, b and c -0.
FLOAT_MODES = ("edge", "any", "near", "wide", "cancel", "zeros")
INTEGER_MODES = ("edge", "any")


def modes_of(kind):
    return FLOAT_MODES if kind in FLOATS else INTEGER_MODES


def _draw(count, seed):
    """As values.random_bits, but quick for whole matrices."""
    return np.frombuffer(hashlib.shake_128(seed.encode()).digest(count * 8), "<u8")


def elements(kind, mode, count, role, seed):
    """`count` bit patterns as uint64. `role`: "a", "b" or "c"."""
    seed = f"{seed}/{kind}/{mode}/{role}"
    bits = _draw(count, seed)
    if kind not in FLOATS:
        width = BITS[kind]
        top = 1 << (width - 1)
        edges = np.array([0, 1, top, top - 1, 2 * top - 1], np.uint64)
        if mode == "edge" and width > 1:
            return edges[bits % np.uint64(len(edges))]
        return bits >> np.uint64(64 - width)
    exponent, fraction = FLOATS[kind]
    if kind == "f64" and mode == "any":
        return bits
    bias = (1 << (exponent - 1)) - 1
    top = (1 << exponent) - 1
    place = np.uint64(fraction)
    sign = (bits >> np.uint64(63)) << np.uint64(exponent + fraction)
    significand = bits & np.uint64((1 << fraction) - 1)
    dice = _draw(count, seed + "/dice")
    if mode == "any":
        field = (dice >> np.uint64(20)) % np.uint64(top)
    elif mode == "wide":
        reach = min(8 if exponent < 8 else 14, bias - 1)
        field = (dice >> np.uint64(20)) % np.uint64(2 * reach + 1) + np.uint64(bias - reach)
    else:
        field = (dice >> np.uint64(20)) % np.uint64(5) + np.uint64(bias - 2)
    result = sign | (field << place) | significand
    ones = (1 << fraction) - 1
    if mode == "edge":
        special = [0, 1, ones, 1 << fraction, bias << fraction, (bias << fraction) | 1,
                   ((top - 1) << fraction) | ones, 3 << fraction]
        rare = [(top << fraction) | ones, top << fraction, (top << fraction) | 1,
                (top << fraction) | (1 << (fraction - 1))]
        choice = np.array(special, np.uint64)[dice % np.uint64(len(special))]
        odd = np.array(rare, np.uint64)[dice % np.uint64(len(rare))]
        pick = (dice >> np.uint64(40)) % np.uint64(256)
        result = np.where(pick < 200, choice | sign, result)
        result = np.where(pick == 255, odd | sign, result)
    elif mode == "cancel":
        if role == "c":
            field = np.uint64(min(bias + 4, top - 1))
            result = sign | (field << place) | significand
        else:
            few = sign | (np.uint64(bias) << place) | (significand & np.uint64(1))
            result = np.where(dice % np.uint64(10) < 3, few, result)
    elif mode == "zeros":
        negative = 0 if role == "a" else 1 << (exponent + fraction)
        result = np.full(count, negative, np.uint64)
    if kind == "tf32":  # the low bits of its 32 do not count
        result = (result << np.uint64(13)) | (dice & np.uint64(0x1fff if mode == "any" else 0))
    return result


def pack(bits, kind):
    """Elements in 32-bit words, along the last axis."""
    width = BITS[kind]
    if width == 64:
        return np.ascontiguousarray(bits).view(np.uint32)
    per = 32 // width
    parts = bits.reshape(bits.shape[:-1] + (-1, per))
    words = np.zeros(parts.shape[:-1], np.uint64)
    for k in range(per):
        words |= parts[..., k] << np.uint64(k * width)
    return words.astype(np.uint32)


def words(kind, mode, shape, role, seed):
    """Packed random elements: an array of `shape` words."""
    count = int(np.prod(shape)) * 32 // BITS[kind]
    return pack(elements(kind, mode, count, role, seed), kind).reshape(shape)


def registers(prefix, first, count):
    return "{" + ", ".join(f"%{prefix}{first + k}" for k in range(count)) + "}"


def thread_case(name, instruction, body, inputs, outputs, shared=0, registers_text="", store=True,
                **rest):
    """`inputs`: [blocks, threads, words]; `outputs`: words per thread."""
    blocks, threads, count = inputs.shape
    lines = [".visible .entry $entry(.param .u64 in, .param .u64 out)\n{",
             f".reg .b32 %i<{count + 1}>; .reg .b32 %o<{outputs + 1}>; .reg .b32 %t<16>;",
             ".reg .b64 %rd<16>; .reg .pred %p<4>;", registers_text]
    if shared:
        lines.append(f".shared .align 1024 .b8 sm[{shared}];")
    lines.append("ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n"
                 "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x;\n"
                 "mad.lo.u32 %t3, %t1, %t2, %t0;\n"
                 f"mad.wide.u32 %rd2, %t3, {4 * count}, %rd0;"
                 f" mad.wide.u32 %rd3, %t3, {4 * outputs}, %rd1;")
    lines += [f"ld.global.b32 %i{k}, [%rd2+{4 * k}];" for k in range(count)]
    lines.append(body)
    if store:
        lines += [f"st.global.b32 [%rd3+{4 * k}], %o{k};" for k in range(outputs)]
    lines.append("ret;\n}")

    def operands(index):
        thread = index // outputs
        return f"block {thread // threads} thread {thread % threads} register {index % outputs}"

    return Case(name=name, instruction=instruction, entry="\n".join(lines), inputs=[inputs],
                output=np.zeros(blocks * threads * outputs, np.uint32), grid=(blocks, 1, 1),
                block=(threads, 1, 1), operands=operands, **rest)


def multiply_case(name, opcode, kinds, counts, tail="", modes=None, blocks=1, extra=None,
                  repeats=(1, 1), **rest):
    """d = a * b + c from registers. `kinds`: of a, b, c; `counts`: 32-bit words of a, b, c and d.
    `extra`: words [modes * blocks, 32, n] behind the operands, named in `tail`. `repeats`: how often
    the registers of a and b are written (wmma's copies)."""
    modes = modes or modes_of(kinds[0])
    parts = []
    for mode in modes:
        parts.append(np.concatenate(
            [words(kind, mode, (blocks, 32, count), role, f"{name}/{opcode}")
             for kind, count, role in zip(kinds, counts, "abc")], -1))
    inputs = np.concatenate(parts)
    if extra is not None:
        inputs = np.concatenate([inputs, extra], -1)
    a, b, c, d = counts
    if kinds[0] == "f64":
        body, text = _double_body(opcode, counts)
        text_registers = "; ".join(f".reg .f64 %f{x}<{n // 2 + 1}>" for x, n in zip("abcd", counts))
        return thread_case(name, text, body, inputs, d, registers_text=text_registers + ";", **rest)
    left = ", ".join([registers("i", 0, a)[1:-1]] * repeats[0])
    right = ", ".join([registers("i", a, b)[1:-1]] * repeats[1])
    text = (f"{opcode} {registers('o', 0, d)}, {{{left}}}, {{{right}}}, "
            f"{registers('i', a + b, c)}{tail};")
    return thread_case(name, text, text, inputs, d, **rest)


def _double_body(opcode, counts):
    lines, word = [], 0
    for letter, count in zip("abc", counts):
        for k in range(count // 2):
            lines.append(f"mov.b64 %f{letter}{k}, {{%i{word}, %i{word + 1}}};")
            word += 2
    text = (f"{opcode} " + ", ".join(registers(f"f{letter}", 0, count // 2)
                                      for letter, count in zip("dabc", (counts[3], *counts[:3]))) + ";")
    lines.append(text)
    lines += [f"mov.b64 {{%o{2 * k}, %o{2 * k + 1}}}, %fd{k};" for k in range(counts[3] // 2)]
    return "\n".join(lines), text
