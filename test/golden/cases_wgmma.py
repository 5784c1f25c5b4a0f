"""wgmma.mma_async: types, accumulation, descriptors (PTX ISA 9.0, 9.7.15).

A thread's words are its part of the shared images of a and b, then a's fragment (if a comes from
registers), the accumulators and the metadata of a sparse a. Where many registers come out, the
result is a checksum of them.
"""

import numpy as np

from cases_mma import metadata
from matrix_case import FLOATS, modes_of, registers, thread_case, words

DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
A_BYTES, B_BYTES = 16384, 32768


def descriptor(start, leading, stride, swizzle, base=0):
    """Without the address of shared memory; offsets in bytes. `swizzle`: 0 none, 1 128, 2 64, 3 32
    bytes."""
    return ((start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | base << 49 | swizzle << 62)


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def wgmma_case(name, columns, d, a, b, tail="%p1", a_descriptor=None, b_descriptor=None, modes=None,
               image=(2048, 512), a_registers=0, sparse=None, saturate="", checksum=False, times=1):
    """`image`: bytes of a and b that are filled; b lies behind A_BYTES. `sparse`: selector.
    `times`: multiplications, each in a group of its own and with the next 2048 bytes of a."""
    depth = DEPTH[a] * (2 if sparse is not None else 1)
    count = columns // (4 if d == "f16" else 2)
    per = [max(size // 4 // 128, 1) for size in image]
    fragment = sum(per)  # the thread's first word behind the images
    accumulators = fragment + a_registers
    parts = []
    for mode in modes or modes_of(a):
        row = [words(a, mode, (1, 128, per[0]), "a", name),
               words(b, mode, (1, 128, per[1]), "b", name)]
        if a_registers:
            row.append(words(a, mode, (1, 128, a_registers), "a", name + "/fragment"))
        row.append(words(d, mode, (1, 128, count), "c", name))
        if sparse is not None:
            row.append(metadata(a, (1, 128, 1), f"{name}/{mode}"))
        parts.append(np.concatenate(row, -1))
    inputs = np.concatenate(parts)
    body = ["mov.u32 %t4, sm;", f"mad.lo.u32 %t5, %t0, {per[0] * 4}, %t4;",
            f"mad.lo.u32 %t6, %t0, {per[1] * 4}, %t4;"]
    body += [f"st.shared.b32 [%t5+{4 * k}], %i{k};" for k in range(per[0])]
    body += [f"st.shared.b32 [%t6+{A_BYTES + 4 * k}], %i{per[0] + k};" for k in range(per[1])]
    body += ["fence.proxy.async; bar.sync 0;", "cvt.u64.u32 %rd6, %t4; shr.u64 %rd6, %rd6, 4;"]
    if a_descriptor is None:
        a_descriptor = descriptor(0, 128, 256, 0)
    if b_descriptor is None:  # of a sparse product it is twice as deep
        b_descriptor = descriptor(0, 128, 256 if sparse is None else 512, 0)
    body += [f"add.s64 %rd7, %rd6, {signed(a_descriptor)};",
             f"add.s64 %rd8, %rd6, {signed(b_descriptor + (A_BYTES >> 4))};",
             "setp.ne.b32 %p1, %t4, -1; setp.eq.b32 %p2, %t4, -1;"]
    body += [f"mov.b32 %d{k}, %i{accumulators + k};" for k in range(count)]
    body.append("wgmma.fence.sync.aligned;")
    left = registers("i", fragment, a_registers) if a_registers else "%rd7"
    form = "wgmma.mma_async" + (".sp" if sparse is not None else "")
    meta = f" %i{accumulators + count}, {sparse}," if sparse is not None else ""
    operation = ".and.popc" if a == "b1" else ""
    text = (f"{form}.sync.aligned.m64n{columns}k{depth}{saturate}.{d}.{a}.{b}{operation} "
            f"{registers('d', 0, count)}, {left}, %rd8,{meta} {tail};")
    for step in range(times):
        if step:
            body.append("add.s64 %rd7, %rd7, 128;")
        body += [text, "wgmma.commit_group.sync.aligned;"]
    if times > 1:
        body.append("wgmma.wait_group.sync.aligned 1;")
    body.append("wgmma.wait_group.sync.aligned 0;")
    if checksum:
        body.append("mov.b32 %o0, %d0;")
        body += [f"mad.lo.u32 %o0, %o0, 16777619, %d{k};" for k in range(1, count)]
    else:
        body += [f"mov.b32 %o{k}, %d{k};" for k in range(count)]
    instruction = (f"{form}.m64n{columns}k{depth}.{d}.{a}.{b} a={a_descriptor:#x} b={b_descriptor:#x}"
                   f" {tail}")
    return thread_case(name, instruction, "\n".join(body), inputs, 1 if checksum else count,
                       shared=A_BYTES + B_BYTES, target="sm_90a",
                       registers_text=f".reg .b32 %d<{count + 1}>;")


def tail_of(a, scale_d="%p1", negate=(1, 1), transpose=(0, 0), from_registers=False):
    if a not in FLOATS:
        return scale_d
    parts = [scale_d, *map(str, negate)]
    if a in ("f16", "bf16"):
        parts += [str(transpose[1])] if from_registers else [str(t) for t in transpose]
    return ", ".join(parts)


TYPES = (("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"),
         ("f32", "tf32", "tf32"), ("f32", "e4m3", "e4m3"), ("f32", "e4m3", "e5m2"),
         ("f32", "e5m2", "e4m3"), ("f32", "e5m2", "e5m2"), ("f16", "e4m3", "e4m3"),
         ("f16", "e5m2", "e4m3"), ("f16", "e5m2", "e5m2"), ("s32", "s8", "s8"), ("s32", "s8", "u8"),
         ("s32", "u8", "s8"), ("s32", "u8", "u8"), ("s32", "b1", "b1"))


def arithmetic():
    for d, a, b in TYPES:
        kinds = f"{d}.{a}.{b}"
        yield wgmma_case(kinds, 8, d, a, b, tail_of(a))
        yield wgmma_case(f"{kinds}.registers", 8, d, a, b, tail_of(a, from_registers=True),
                         a_registers=4, modes=("any",))
        yield wgmma_case(f"{kinds}.from_zero", 8, d, a, b, tail_of(a, "%p2"), modes=("any",))
        if a in FLOATS:
            yield wgmma_case(f"{kinds}.negate_a", 8, d, a, b, tail_of(a, negate=(-1, 1)),
                             modes=("edge", "any"))
            yield wgmma_case(f"{kinds}.negate_both", 8, d, a, b, tail_of(a, "0", negate=(-1, -1)),
                             modes=("any",))
        if a in ("s8", "u8"):
            yield wgmma_case(f"{kinds}.satfinite", 8, d, a, b, saturate=".satfinite")
    yield wgmma_case("f32.f16.f16.groups", 8, "f32", "f16", "f16", tail_of("f16"), times=3,
                     modes=("near",), image=(3 * 2048, 512))


# Every kind of descriptor; 16-bit types in all orders, the others are always K-major.
def layouts():
    for columns in (8, 24, 64, 136, 256):
        for swizzle in range(4):
            for order in ((0, 0), (0, 1), (1, 0), (1, 1)):
                if columns not in (64, 256) and order != (swizzle & 1, 1):
                    continue
                for leading, stride in ((128, 1024), (2048, 512)):
                    if columns > 64 and leading != 128:
                        continue
                    place = descriptor(0, leading, stride, swizzle)
                    yield wgmma_case(f"layout.n{columns}.{swizzle}.{order[0]}{order[1]}.{leading}", columns,
                                     "f32", "f16", "f16", tail_of("f16", transpose=order), place, place,
                                     modes=("near",), image=(A_BYTES, B_BYTES), checksum=True)
    for a, d in (("tf32", "f32"), ("e4m3", "f32"), ("s8", "s32"), ("bf16", "f32")):
        for swizzle in range(4):
            for start, base in ((0, 0), (32, 0), (384, 0), (384, 3), (512, 4)):
                if base and not swizzle:
                    continue
                place = descriptor(start, 256, 1024, swizzle, base)
                yield wgmma_case(f"start.{a}.{swizzle}.{start}.{base}", 64, d, a, a, tail_of(a), place,
                                 place, modes=("any",) if d == "s32" else ("near",),
                                 image=(A_BYTES, B_BYTES // 2), checksum=True)


def sparse():
    for d, a, selectors in (("f32", "f16", 2), ("f16", "f16", 1), ("f32", "bf16", 2), ("f32", "tf32", 2),
                            ("f32", "e4m3", 1), ("f16", "e5m2", 1), ("s32", "s8", 1), ("s32", "u8", 1)):
        for selector in range(selectors):
            modes = ("edge", "any", "near") if a in FLOATS else ("any",)
            yield wgmma_case(f"sp.{d}.{a}.{selector}", 8, d, a, a, tail_of(a), sparse=selector,
                             modes=modes)
        yield wgmma_case(f"sp.{d}.{a}.registers", 8, d, a, a, tail_of(a, from_registers=True), sparse=0,
                         a_registers=4, modes=("any",))
    for swizzle in range(4):
        for order in ((0, 0), (1, 1)):
            place = descriptor(0, 1024, 2048, swizzle)
            yield wgmma_case(f"sp.layout.{swizzle}.{order[0]}", 64, "f32", "f16", "f16",
                             tail_of("f16", transpose=order), place, place, sparse=0, modes=("near",),
                             image=(A_BYTES, B_BYTES), checksum=True)


def cases():
    yield from arithmetic()
    yield from layouts()
    yield from sparse()
