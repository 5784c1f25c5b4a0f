"""Element-wise cases: thread i reads operand i of every input, executes a few instructions and
stores its results. In the text, %a %b %c %e are the operands and %d %q the results.

A result or operand kind is a PTX type: it decides the register (8-bit types live in 16-bit
registers, packed pairs in 32-bit ones) and how memory holds it; "pred" becomes a byte 0 or 1.
"""

import numpy as np

import values
from case import Case
from rules import Exact

SOURCES = "abcefgh"
RESULTS = "dqrs"
COUNT = 384


def register_type(kind):
    if kind == "pred":
        return "pred"
    if kind in ("f32", "f64"):
        return kind
    if kind.startswith(("s", "u")) and "x" not in kind:
        width = max(values.bits_of(kind), 16)
        return f"{kind[0]}{width}"
    return f"b{max(values.bits_of(kind), 16)}"


def memory_type(kind):
    """What ld and st call the value."""
    if kind == "pred":
        return "u8"
    if kind in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64"):
        return kind
    return f"b{values.bits_of(kind)}"


def _prologue(text, results, sources, registers):
    lines = [".visible .entry $entry("]
    names = [f"in{k}" for k in range(len(sources))] + ["out"]
    lines.append(",".join(f".param .u64 {n}" for n in names) + ")\n{")
    lines.append(".reg .u32 %i, %n; .reg .u64 %p, %o; .reg .b16 %t;")
    for name, kind in zip(SOURCES, sources):
        lines.append(f".reg .{register_type(kind)} %{name};")
    for name, kind in zip(RESULTS, results):
        lines.append(f".reg .{register_type(kind)} %{name};")
    lines += [f".reg {r};" for r in registers]
    lines.append("mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mul.lo.u32 %i, %i, %n;")
    lines.append("mov.u32 %n, %tid.x; add.u32 %i, %i, %n;")
    for k, (name, kind) in enumerate(zip(SOURCES, sources)):
        size = values.bits_of(kind) // 8
        lines.append(f"ld.param.u64 %p, [in{k}]; mul.wide.u32 %o, %i, {size};")
        lines.append("add.u64 %p, %p, %o;")
        if kind == "pred":
            lines.append(f"ld.global.u8 %t, [%p]; setp.ne.u16 %{name}, %t, 0;")
        else:
            lines.append(f"ld.global.{memory_type(kind)} %{name}, [%p];")
    lines.append(text)
    return lines


def element(name, text, results, sources, inputs=None, rule=None, registers=(), count=COUNT,
            seed=None, instruction=None, block=None, **rest):
    """`results` and `sources`: kinds, one text or a tuple. Results of one case must have the same
    width; result k of thread i is element k * count + i of the output."""
    results = (results,) if isinstance(results, str) else tuple(results)
    sources = (sources,) if isinstance(sources, str) else tuple(sources)
    if inputs is None:
        # The same operands for all instructions of a type: outputs compress better together.
        inputs = values.operands(sources, count, seed or "operands") if sources else []
    count = len(inputs[0]) if inputs else count
    width = values.bits_of(results[0])
    size = width // 8
    lines = _prologue(text, results, sources, registers)
    lines.append(f"ld.param.u64 %p, [out]; mul.wide.u32 %o, %i, {size}; add.u64 %p, %p, %o;")
    for k, (result, kind) in enumerate(zip(RESULTS, results)):
        if values.bits_of(kind) != width:
            raise ValueError(f"{name}: results of different widths")
        place = f"[%p+{k * count * size}]"
        if kind == "pred":
            lines.append(f"selp.u16 %t, 1, 0, %{result}; st.global.u8 {place}, %t;")
        else:
            lines.append(f"st.global.{memory_type(kind)} {place}, %{result};")
    lines.append("ret;\n}")
    threads = block or min(count, 128)
    if count % threads:
        raise ValueError(f"{name}: {count} elements in blocks of {threads}")
    return Case(name=name, instruction=instruction or text.strip(), entry="\n".join(lines),
                inputs=list(inputs), output=np.zeros(count * len(results), values.WIDTHS[width]),
                rule=rule or Exact(), grid=(count // threads, 1, 1), block=(threads, 1, 1), **rest)
