"""Tensor copies: boxes of every rank and type, swizzles, element strides, elements outside the
tensor, im2col, stores, reductions, and changed tensor maps.

A load case dumps the shared memory that the copy has filled (0xcd where it has not), a store case
the global memory. The first word of a load's output says that the mbarrier completed with exactly
the bytes that the case expects.
"""

import struct

import numpy as np

import tensor_map
from case import Case
from rules import Exact, Masked

PREAMBLE = ".extern .shared .align 1024 .b8 memory[];"
DUMP = 1024  # where the box starts in shared memory; the mbarrier is below it


def _data(count, seed=1, kind="u32"):
    """Bytes that differ everywhere; for floats, values of moderate size with some denormals."""
    generator = np.random.RandomState(seed)
    if kind in ("f32", "f32.ftz", "tf32", "tf32.ftz"):
        values = generator.uniform(-4, 4, count // 4).astype(np.float32)
        values[::7] = np.float32(1e-40)
        bits = values.view(np.uint32)
        # Ties and limits of rounding to tf32, infinities and NaNs.
        special = [0x3f801000, 0x3f803000, 0xbf801000, 0x3f800fff, 0x3f801001, 0x7f7fffff, 0x7f800000,
                   0xff800000, 0x7f800001, 0x7fc01000, 0xffffffff, 0x00001000, 0x80000fff, 0x007fffff]
        bits[5:5 + len(special)] = special
        return bits
    if kind == "f16":
        return generator.uniform(-4, 4, count // 2).astype(np.float16).view(np.uint32)
    if kind == "bf16":
        bits = generator.uniform(-4, 4, count // 2).astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16).view(np.uint32)
    if kind == "f64":
        return generator.uniform(-4, 4, count // 8).view(np.uint32)
    return generator.randint(0, 1 << 32, count // 4, dtype=np.uint64).astype(np.uint32)


def _prologue(coordinates, extra=""):
    lines = [f"mov.b32 %c{i}, {value};" for i, value in enumerate(coordinates)]
    return "\n".join(lines) + extra


HEAD = """
.visible .entry $entry(.param .u64 in, .param .u64 out, .param .align 64 .b8 map[128])
{
.reg .pred %p<8>; .reg .b16 %o<4>; .reg .b32 %r<32>; .reg .b32 %c<8>; .reg .b64 %rd<16>;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3;
mov.u32 %r1, memory; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2;
"""


def _load_kernel(coordinates, bytes_, dump, offset, mode, rank, offsets=None):
    operands = f"[%r4], [%rd3, {{{', '.join(f'%c{i}' for i in range(rank))}}}], [%r1]"
    setup = ""
    if offsets is not None:
        setup = "\n".join(f"mov.b16 %o{i}, {value};" for i, value in enumerate(offsets))
        operands += f", {{{', '.join(f'%o{i}' for i in range(len(offsets)))}}}"
    return HEAD + _prologue(coordinates) + setup + f"""
mov.u32 %r5, %r3; mov.u32 %r6, 0xcdcdcdcd;
FILL: add.u32 %r7, %r1, %r5; st.shared.u32 [%r7+{DUMP}], %r6; add.u32 %r5, %r5, 128;
setp.lt.u32 %p1, %r5, {dump}; @%p1 bra FILL;
setp.ne.u32 %p2, %r2, 0; fence.proxy.async.shared::cta; bar.sync 0; @%p2 bra WAIT;
mbarrier.init.shared.b64 [%r1], 1; fence.proxy.async.shared::cta;
mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {bytes_};
add.u32 %r4, %r1, {DUMP + offset};
cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes {operands};
WAIT: bar.sync 0; mov.u32 %r8, 0; mov.u32 %r9, 0;
POLL: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0; @%p3 bra DONE;
add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 2000; @%p1 bra POLL;
DONE: selp.u32 %r9, 1, 0, %p3; setp.ne.u32 %p4, %r2, 0; @!%p4 st.global.u32 [%rd2], %r9;
mov.u32 %r5, %r3;
COPY: add.u32 %r7, %r1, %r5; ld.shared.u32 %r6, [%r7+{DUMP}]; cvt.u64.u32 %rd4, %r5; add.u64 %rd4, %rd2, %rd4;
st.global.u32 [%rd4+4], %r6; add.u32 %r5, %r5, 128; setp.lt.u32 %p1, %r5, {dump}; @%p1 bra COPY;
ret;
}}"""


def _ceil(a, b):
    return (a + b - 1) // b


def load(name, kind, sizes, box, at, *, offset=0, mode="tile", bytes_=None, in_bytes=None, footprint=0,
         seed=1, **options):
    rank = len(sizes)
    steps = options.get("steps") or [1] * rank
    count = box[0]
    for d in range(1, rank):
        count *= _ceil(box[d], steps[d])
    size = bytes_ or count * tensor_map.BYTES[kind]
    dump = _ceil(max(size, footprint) + offset, 128) * 128 + 128
    strides = options.get("strides") or tensor_map.dense_strides(kind, sizes)
    total = in_bytes or (strides[-1] * sizes[-1] if strides else sizes[0] * tensor_map.BYTES[kind])
    data = _data(_ceil(total, 128) * 128, seed, kind)
    return Case(
        name=name, instruction=f"cp.async.bulk.tensor.{rank}d {kind} {options}",
        entry=_load_kernel(at, size, dump, offset, mode, rank), inputs=[data],
        output=np.zeros(1 + dump // 4, np.uint32), shared_bytes=DUMP + dump, preamble=PREAMBLE,
        parameters=lambda driver, inputs, output: [
            struct.pack("<Q", inputs[0]), struct.pack("<Q", output),
            tensor_map.tiled(driver, inputs[0], kind, sizes, box, **options)],
        parameter_note=repr((kind, sizes, box, sorted(options.items()))),
        operands=lambda index: f"byte {4 * index - 4} of shared memory" if index else "completed")


def load_im2col(name, kind, sizes, lower, upper, channels, pixels, at, offsets, *, seed=2,
                **options):
    rank = len(sizes)
    size = channels * pixels * tensor_map.BYTES[kind]
    dump = _ceil(size, 128) * 128 + 128
    strides = options.get("strides") or tensor_map.dense_strides(kind, sizes)
    data = _data(_ceil(strides[-1] * sizes[-1], 128) * 128, seed, kind)
    return Case(
        name=name, instruction=f"cp.async.bulk.tensor.{rank}d.im2col {kind} {options}",
        entry=_load_kernel(at, size, dump, 0, "im2col", rank, offsets), inputs=[data],
        output=np.zeros(1 + dump // 4, np.uint32), shared_bytes=DUMP + dump, preamble=PREAMBLE,
        parameters=lambda driver, inputs, output: [
            struct.pack("<Q", inputs[0]), struct.pack("<Q", output),
            tensor_map.im2col(driver, inputs[0], kind, sizes, lower, upper, channels, pixels,
                              **options)],
        parameter_note=repr((kind, sizes, lower, upper, channels, pixels, sorted(options.items()))),
        operands=lambda index: f"byte {4 * index - 4} of shared memory" if index else "completed")


def store(name, kind, sizes, box, at, *, operation="", mode="tile", encode=None, bytes_=None, footprint=0,
          seed=3, **options):
    """The tensor is the output; shared memory holds the first input."""
    rank = len(sizes)
    steps = options.get("steps") or [1] * rank
    count = box[0] if box else 0
    for d in range(1, rank):
        count *= _ceil(box[d], steps[d]) if box else 1
    size = bytes_ or count * tensor_map.BYTES[kind]
    padded = _ceil(max(size, footprint), 1024) * 1024
    strides = options.get("strides") or tensor_map.dense_strides(kind, sizes)
    total = strides[-1] * sizes[-1] if strides else sizes[0] * tensor_map.BYTES[kind]
    what = "cp.reduce.async.bulk.tensor" if operation else "cp.async.bulk.tensor"
    dot = f".{operation}" if operation else ""
    entry = HEAD + _prologue(at) + f"""
mov.u32 %r5, %r3;
FILL: cvt.u64.u32 %rd4, %r5; add.u64 %rd4, %rd1, %rd4; ld.global.u32 %r6, [%rd4];
add.u32 %r7, %r1, %r5; st.shared.u32 [%r7], %r6; add.u32 %r5, %r5, 128;
setp.lt.u32 %p1, %r5, {padded}; @%p1 bra FILL;
fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p2, %r2, 0; @%p2 bra END;
{what}.{rank}d.global.shared::cta{dot}.{mode}.bulk_group [%rd3, {{{', '.join(f'%c{i}' for i in range(rank))}}}], [%r1];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END: ret;
}}"""
    make = encode or (lambda driver, address: tensor_map.tiled(driver, address, kind, sizes, box,
                                                               **options))
    return Case(
        name=name, instruction=f"{what}.{rank}d{dot} {kind} {options}", entry=entry,
        inputs=[_data(padded, seed, kind)], output=_data(_ceil(total, 128) * 128, seed + 1, kind),
        shared_bytes=padded, preamble=PREAMBLE,
        parameters=lambda driver, inputs, output: [
            struct.pack("<Q", inputs[0]), struct.pack("<Q", output), make(driver, output)],
        parameter_note=repr((name, kind, sizes, box, mode, sorted(options.items()))),
        operands=lambda index: f"byte {4 * index} of global memory")


def _boxes():
    yield load("tile.1d", "u32", [100], [64], [12])
    yield load("tile.1d.before", "u8", [256], [128], [-48])
    yield load("tile.1d.behind", "u64", [20], [16], [10])
    yield load("tile.1d.outside", "u32", [20], [16], [52])
    yield load("tile.2d", "u32", [40, 12], [16, 8], [8, 2])
    yield load("tile.2d.corner", "u16", [40, 12], [32, 8], [-8, -3])
    yield load("tile.2d.far.corner", "u16", [40, 12], [32, 8], [24, 8])
    yield load("tile.3d", "u8", [48, 5, 4], [32, 3, 4], [16, -1, 1])
    yield load("tile.4d", "s32", [12, 5, 4, 3], [8, 2, 3, 2], [4, 1, 2, -1])
    yield load("tile.5d", "u32", [8, 3, 4, 3, 5], [4, 2, 2, 2, 3], [4, 1, 1, 2, 3])
    yield load("tile.2d.pitch", "f32", [20, 6], [16, 6], [4, 0], strides=[160])
    for kind in tensor_map.TYPES:
        box = 128 // tensor_map.BYTES[kind]
        yield load(f"type.{kind}", kind, [box + 5, 4], [box, 4], [16 // tensor_map.BYTES[kind], 0], seed=5)
    for kind in ("f16", "bf16", "f32", "f64", "f32.ftz", "tf32", "tf32.ftz"):
        box = 64 // tensor_map.BYTES[kind]
        yield load(f"fill.nan.{kind}", kind, [box + 3, 4], [box, 3], [-16 // tensor_map.BYTES[kind], 2],
                   fill=1)


def _swizzles():
    for swizzle, span in ((1, 32), (2, 64), (3, 128)):
        for kind in ("u8", "u16", "f32", "u64"):
            inner = span // tensor_map.BYTES[kind]
            yield load(f"swizzle{span}.{kind}", kind, [2 * inner, 40], [inner, 32],
                       [16 // tensor_map.BYTES[kind], 3],
                       swizzle=swizzle)
        for offset in (128, 256, 640):
            yield load(f"swizzle{span}.at{offset}", "u16", [span // 2, 20], [span // 2, 16], [0, 0],
                       swizzle=swizzle, offset=offset)
        yield load(f"swizzle{span}.3d", "f16", [span // 2 + 4, 6, 5], [span // 2, 3, 4], [0, 4, 2],
                   swizzle=swizzle)
        yield store(f"store.swizzle{span}", "u16", [span // 2 + 8, 24], [span // 2, 16], [8, 12],
                    swizzle=swizzle)
    for inner in (16, 32, 64):
        yield load(f"swizzle128.narrow{inner}", "u8", [inner, 40], [inner, 32], [0, 0], swizzle=3,
                   footprint=32 * 128)
    yield load("swizzle64.narrow16", "u8", [16, 40], [16, 32], [0, 0], swizzle=2, footprint=32 * 64)
    yield load("swizzle64.narrow48", "u8", [48, 40], [48, 32], [0, 0], swizzle=2, footprint=32 * 64)
    yield store("store.swizzle128.narrow", "u16", [24, 24], [16, 16], [8, 4], swizzle=3,
                footprint=16 * 128)


def _steps():
    yield load("step.2", "u32", [16, 20], [8, 12], [4, 1], steps=[1, 2])
    yield load("step.3.odd", "u32", [16, 20], [8, 10], [4, -1], steps=[1, 3])
    yield load("step.3d", "u16", [16, 9, 12], [16, 6, 8], [0, 2, 1], steps=[1, 2, 3])
    yield load("step.ignored", "u32", [16, 8], [8, 4], [0, 0], steps=[2, 1])
    yield load("step.swizzled", "u16", [32, 40], [32, 32], [0, 0], steps=[1, 4], swizzle=2)
    yield store("store.step", "u32", [16, 20], [8, 12], [4, 1], steps=[1, 2])


def _im2col():
    nwc = dict(kind="u16", sizes=[32, 10, 3], channels=16, pixels=12)
    yield load_im2col("im2col.3d", lower=[0], upper=[0], at=[8, 4, 1], offsets=[0], **nwc)
    yield load_im2col("im2col.3d.box", lower=[-1], upper=[-1], at=[8, -1, 0], offsets=[0], **nwc)
    yield load_im2col("im2col.3d.offset", lower=[-1], upper=[-1], at=[0, 5, 1], offsets=[2], **nwc)
    yield load_im2col("im2col.3d.step", lower=[0], upper=[-1], at=[0, 2, 0], offsets=[1],
                      steps=[1, 2, 1], **nwc)
    yield load_im2col("im2col.3d.phase", lower=[0], upper=[0], at=[0, 3, 0], offsets=[0],
                      steps=[1, 2, 1], **nwc)
    nhwc = dict(kind="f16", sizes=[16, 7, 6, 3], channels=16, pixels=40)
    yield load_im2col("im2col.4d", lower=[-1, -1], upper=[-1, -1], at=[0, 2, 3, 0], offsets=[0, 0],
                      **nhwc)
    yield load_im2col("im2col.4d.offset", lower=[-1, -1], upper=[-1, -1], at=[0, -1, -1, 1],
                      offsets=[2, 1], **nhwc)
    yield load_im2col("im2col.4d.step", lower=[-1, -1], upper=[0, 0], at=[0, 1, 1, 0],
                      offsets=[0, 0], steps=[1, 2, 2, 1], **nhwc)
    yield load_im2col("im2col.4d.step.n", lower=[0, 0], upper=[0, 0], at=[0, 0, 0, 0],
                      offsets=[0, 0], steps=[1, 3, 3, 2], **nhwc)
    yield load_im2col("im2col.4d.swizzled", lower=[-1, -1], upper=[-1, -1], at=[0, 0, 0, 0],
                      offsets=[1, 1], swizzle=1, **nhwc)
    yield load_im2col("im2col.4d.nan", lower=[-1, -1], upper=[-1, -1], at=[8, 4, 4, 2],
                      offsets=[1, 1], fill=1, **nhwc)
    ndhwc = dict(kind="u32", sizes=[8, 4, 3, 3, 2], channels=8, pixels=50)
    yield load_im2col("im2col.5d", lower=[-1, 0, 0], upper=[0, 0, -1], at=[0, 1, 1, 0, 0],
                      offsets=[1, 0, 1], **ndhwc)
    yield load_im2col("im2col.5d.step", lower=[0, 0, 0], upper=[0, 0, 0], at=[4, 0, 0, 0, 0],
                      offsets=[0, 1, 0], steps=[1, 2, 2, 2, 1], **ndhwc)
    sizes = [16, 7, 6, 3]
    for name, lower, upper, at in (("inside", [0, 0], [0, 0], [0, 3, 2, 0]),
                                   ("smaller", [1, 1], [-1, -2], [0, 2, 3, 1])):
        yield store(f"store.im2col.{name}", "u16", sizes, None, at, mode="im2col_no_offs",
                    bytes_=16 * 20 * 2,
                    encode=lambda driver, address, lower=lower, upper=upper: tensor_map.im2col(
                        driver, address, "u16", sizes, lower, upper, 16, 20))


def _stores():
    yield store("store.1d", "u32", [100], [64], [12])
    yield store("store.1d.behind", "u32", [100], [64], [60])
    yield store("store.2d.far.corner", "u16", [40, 12], [32, 8], [24, 8])
    yield store("store.3d", "u8", [48, 5, 4], [32, 3, 4], [16, 1, 1])
    yield store("store.5d", "f32", [8, 3, 4, 3, 5], [4, 2, 2, 2, 3], [4, 1, 1, 2, 3])
    yield store("store.f32.ftz", "f32.ftz", [32, 4], [32, 4], [0, 0])
    yield store("store.tf32", "tf32", [32, 4], [32, 4], [0, 0])
    for kind in ("u32", "s32", "u64", "s64"):
        for operation in ("add", "min", "max", "and", "or", "xor"):
            if kind == "s64" and operation in ("add", "and", "or", "xor"):
                continue
            yield store(f"reduce.{operation}.{kind}", kind, [16, 6], [8, 4], [12, 1],
                        operation=operation)
    for operation in ("inc", "dec"):
        yield store(f"reduce.{operation}.u32", "u32", [16, 6], [8, 4], [4, 1], operation=operation)
    for kind in ("f16", "bf16"):
        for operation in ("add", "min", "max"):
            yield store(f"reduce.{operation}.{kind}", kind, [32, 6], [16, 4], [8, 1],
                        operation=operation)
    yield store("reduce.add.f32", "f32", [16, 6], [8, 4], [4, 1], operation="add")
    yield store("reduce.add.f64", "f64", [16, 6], [8, 4], [4, 1], operation="add")


def interleaved(name, kind, sizes, box, at, *, interleave=1, steps=None, **options):
    """NC/8HWC8 and NC/16HWC16: dimension 0 counts pixels of 16 or 32 bytes, the one before the last
    slices of that many bytes of channels, of which a copy takes one."""
    rank = len(sizes)
    slice_bytes = 16 * interleave
    count = slice_bytes
    for d in range(rank):
        if d != rank - 2:
            count *= _ceil(box[d], (steps or [1] * rank)[d])
    if steps:
        options["steps"] = steps
    return load(name, kind, sizes, box, at, interleave=interleave, in_bytes=1 << 17, bytes_=count,
                strides=[512 * 4 ** i for i in range(rank - 1)], **options)


def _interleaved():
    for interleave in (1, 2):
        options = {"interleave": interleave, "swizzle": interleave - 1}
        yield interleaved(f"interleave{16 * interleave}.3d", "u16", [24, 6, 4], [16, 4, 2],
                          [8 * interleave, 1, 1], **options)
        yield interleaved(f"interleave{16 * interleave}.5d", "u16", [24, 6, 4, 3, 2],
                          [8, 3, 2, 16 * interleave, 2], [8 * interleave, 1, 1, 1, 0], **options)
    yield interleaved("interleave16.channels16", "u16", [24, 6, 32, 3], [16, 4, 16, 1], [8, 1, 0, 1])
    yield interleaved("interleave16.channels24", "u16", [24, 6, 32, 3], [16, 2, 24, 1], [8, 1, 1, 1])
    yield interleaved("interleave16.outside", "u16", [20, 4, 2, 2], [16, 2, 16, 1], [8, 3, 1, 0])
    yield interleaved("interleave16.outside.channels", "u16", [20, 4, 12, 2], [8, 2, 24, 1],
                      [8, 0, 0, 0])
    yield interleaved("interleave16.before", "u16", [20, 4, 24, 2], [8, 2, 16, 1], [-8, -1, -1, 0])
    yield interleaved("interleave16.u8", "u8", [24, 6, 64, 3], [16, 2, 32, 1], [16, 1, 1, 1])
    yield interleaved("interleave32.f32", "f32", [24, 6, 64, 3], [16, 2, 16, 1], [8, 1, 1, 1],
                      interleave=2, swizzle=1)
    yield interleaved("interleave16.swizzle128", "u16", [64, 6, 32, 3], [16, 3, 16, 1], [8, 1, 1, 1],
                      swizzle=3)
    yield interleaved("interleave16.step", "u16", [64, 6, 32, 3], [16, 4, 16, 1], [8, 1, 1, 1],
                      steps=[2, 2, 1, 1])
    yield interleaved("interleave16.step.channels", "u16", [64, 6, 64, 3], [8, 2, 32, 1],
                      [8, 1, 1, 1], steps=[1, 1, 2, 1])


def cases():
    yield from _boxes()
    yield from _swizzles()
    yield from _steps()
    yield from _im2col()
    yield from _stores()
    yield from _interleaved()
    yield from _replaced()


# The map of a 2-D f32 tensor becomes, field by field, another one.
REPLACEMENTS = {
    "address": [("global_address", "b64", "", "%rd5")],
    "rank.and.sizes": [("rank", "b32", "", "2"), ("global_dim", "b32", "2", "3"),
                       ("global_stride", "b64", "1", "%rd6"), ("box_dim", "b32", "2", "2"),
                       ("element_stride", "b32", "2", "1")],
    "size": [("global_dim", "b32", "0", "9"), ("global_dim", "b32", "1", "3")],
    "stride": [("global_stride", "b64", "0", "%rd7")],
    "box": [("box_dim", "b32", "1", "3")],
    "step": [("element_stride", "b32", "1", "2")],
    "swizzle": [("swizzle_mode", "b32", "", "1")],
    "fill": [("fill_mode", "b32", "", "1")],
    "type.u16": [("elemtype", "b32", "", "1")],
    "type.f32.ftz": [("elemtype", "b32", "", "8")],
    "type.f64": [("elemtype", "b32", "", "9")],
    "type.bf16": [("elemtype", "b32", "", "10"), ("fill_mode", "b32", "", "1")],
    "type.tf32": [("elemtype", "b32", "", "11")],
    "type.tf32.ftz": [("elemtype", "b32", "", "12")],
}


def _replaced():
    for name, fields in REPLACEMENTS.items():
        rank = 3 if name.startswith("rank") else 2
        kind, size = "f32", 8 * 4 * 4
        if name == "box":
            size = 8 * 3 * 4
        if name in ("step", "type.u16", "type.bf16"):
            size //= 2
        if name == "type.f64" or rank == 3:
            size *= 2
        replaced = ""
        for field, type_, ordinal, value in fields:
            ordinal = f"{ordinal}, " if ordinal else ""
            replaced += (f"tensormap.replace.tile.{field}.shared::cta.b1024.{type_} [%r10], "
                         f"{ordinal}{value};\n")
        text = _load_kernel([8 if name in ("type.u16", "type.bf16") else 4, 1, 1][:rank],
                            size, 512, 0, "tile", rank)
        text = text.replace("\nmov.u32 %r5, %r3; mov.u32 %r6, 0xcd", f"""
add.u32 %r10, %r1, 512; add.u64 %rd5, %rd1, 64; mov.u64 %rd6, 192; mov.u64 %rd7, 96; add.u64 %rd8, %rd2, 4096;
shl.b32 %r11, %r2, 2; cvt.u64.u32 %rd9, %r11; add.u64 %rd9, %rd9, %rd3; ld.u32 %r12, [%rd9]; add.u32 %r11, %r11, %r10;
st.shared.u32 [%r11], %r12; bar.warp.sync -1; setp.ne.u32 %p5, %r2, 0; @%p5 bra REPLACED;
{replaced}REPLACED: bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd8], [%r10], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd8], 128; mov.u64 %rd3, %rd8;
mov.u32 %r5, %r3; mov.u32 %r6, 0xcd""", 1)
        yield Case(
            name=f"replace.{name}", instruction=f"tensormap.replace {fields}", entry=text,
            inputs=[_data(8192, 9, kind)], output=np.zeros(1 + 512 // 4 + 1024, np.uint32),
            shared_bytes=DUMP + 512, preamble=PREAMBLE, target="sm_90a",
            parameters=lambda driver, inputs, output: [
                struct.pack("<Q", inputs[0]), struct.pack("<Q", output),
                tensor_map.tiled(driver, inputs[0], "f32", [12, 6], [8, 4])],
            parameter_note="f32 12x6 box 8x4", rule=Masked(Exact(), np.arange(1 + 512 // 4 + 1024) <= 512 // 4),
            operands=lambda index: f"byte {4 * index - 4} of shared memory" if index else "completed")

