"""Cases of textures and surfaces: kernels in which thread i reads its coordinates, makes one access
and stores what came; and the coordinates that tell addressing rules apart."""

import struct

import numpy as np

import texture_object
import values
from case import Case
from rules import Exact

COUNT = 192
BLOCK = 64

# geometry -> coordinates in the vector operand; a three-element vector is filled up to four.
VECTORS = {"1d": "{%c0}", "2d": "{%c0, %c1}", "3d": "{%c0, %c1, %c2, %c2}", "a1d": "{%l, %c0}",
           "a2d": "{%l, %c0, %c1, %c1}", "cube": "{%c0, %c1, %c2, %c2}",
           "acube": "{%l, %c0, %c1, %c2}"}
DIMENSIONS = {"1d": 1, "a1d": 1, "2d": 2, "a2d": 2, "3d": 3, "cube": 3, "acube": 3}


def image_data(image, seed="image"):
    """Bytes of all levels: any integers; floats with few special values among moderate ones."""
    count = image.total_bytes() // (int(image.format[1:]) // 8)
    bits = values.random_bits(int(image.format[1:]), count, f"{seed}/{image.format}")
    if image.format[0] == "f":
        bits = values.random_values(image.format, count, f"{seed}/{image.format}")
    else:
        top = 1 << (int(image.format[1:]) - 1)
        for k, value in enumerate((0, 1, top - 1, top, top + 1, 2 * top - 1)):
            bits[k::23] = value
    return bits.view(np.uint8)


def moderate_data(image, seed="moderate"):
    """As image_data, but floats lie in [-4, 4), so that a filter's error has a bound."""
    if image.format[0] != "f":
        return image_data(image, seed)
    width = int(image.format[1:])
    count = image.total_bytes() // (width // 8)
    whole = values.random_bits(32, count, seed).astype(np.int64) - (1 << 31)
    real = (whole >> 8).astype(np.float32) / np.float32(1 << 21)
    return real.astype(np.float16 if width == 16 else np.float32).view(np.uint8)


def real_coordinates(size, normalized, seed, count=COUNT, special=True):
    """f32 bits: special values, texel borders and centres, just beside them, and random ones."""
    scale = np.float32(size)
    edge = [0.0, -0.0, 0.5, 1.0, size - 0.5, size, size - 1, -0.5, -1.0, size + 0.5, size + 1,
            -size, -size - 0.5, 2 * size, 2 * size + 0.5, 3 * size - 0.5, -2 * size + 0.25]
    for k in range(min(size, 5)):
        edge += [k + 0.25, k + 0.75, k + 0.5 + 1 / 512, k + 0.5 + 1 / 256, k + 0.5 - 1 / 512]
    texels = np.array(edge, np.float32)
    bits = values.random_bits(32, count, f"{seed}/real")
    spread = (bits >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24)
    wide = (spread * np.float32(5) - np.float32(2)) * scale
    narrow = spread * scale
    place = np.concatenate([texels, np.where(np.arange(count) % 3 == 0, wide, narrow)])
    if normalized:
        place = place / scale
    odd = np.array([0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0x7f7fffff,
                    0xff7fffff, 0x501502f9, 0xd01502f9, 0x4b000000, 0x4f000000, 0xcf000000,
                    0x00000001, 0x80000001, 0x3f7fffff, 0x3effffff, 0x3f000001, 0xb3000000],
                   np.uint32) if special else np.zeros(0, np.uint32)
    return np.concatenate([odd, place.view(np.uint32)])[:count]


def whole_coordinates(size, seed, count=COUNT):
    edge = [0, 1, size - 1, size, -1, -2, size + 1, 2 * size - 1, 2 * size, -size, -size - 1,
            0x7fffffff, -0x80000000, 1 << 20, -(1 << 20)]
    bits = values.random_bits(32, count, f"{seed}/whole")
    near = bits.astype(np.int64) % (3 * size) - size
    inside = bits.astype(np.int64) % size
    mixed = np.where(np.arange(count) % 3 == 0, near, inside)
    return np.concatenate([np.array(edge, np.int64), mixed])[:count].astype(np.int32).view(np.uint32)


def coordinates(geometry, image, kind, normalized, special=True):
    """{register: bits}"""
    sizes = (image.width, max(image.height, 1), max(image.depth, 1))
    result = {}
    for d in range(DIMENSIONS[geometry]):
        if "cube" in geometry:
            bits = values.random_bits(32, COUNT, f"cube{d}")
            spread = (bits >> np.uint32(8)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)
            result[f"c{d}"] = spread.view(np.uint32)
        elif kind == "f32":
            array = real_coordinates(sizes[d], normalized, f"{d}", special=special)
            result[f"c{d}"] = np.roll(array, 41 * d)
        else:
            result[f"c{d}"] = np.roll(whole_coordinates(sizes[d], f"{d}"), 41 * d)
    if geometry.startswith("a"):
        layers = max(image.depth // (6 if image.cube else 1), 1)
        choice = values.random_bits(32, COUNT, "layer") % np.uint32(layers)
        choice[::17] = layers
        choice[5::34] = 0xffffffff
        choice[6::34] = 1000
        result["l"] = choice
    return result


def _kernel(registers, body, results, count):
    lines = [".visible .entry $entry(.param .u64 handle, .param .u64 in, .param .u64 out)\n{",
             ".reg .u32 %i, %n; .reg .u64 %p, %h, %o; .reg .b32 %d<4>; .reg .pred %k;"]
    lines += [f".reg .{kind} %{name};" for name, kind in registers]
    lines.append("mov.u32 %i, %ctaid.x; mov.u32 %n, %tid.x; "
                 f"mad.lo.u32 %i, %i, {BLOCK}, %n; ld.param.u64 %h, [handle];")
    lines.append("ld.param.u64 %p, [in]; mul.wide.u32 %o, %i, 4; add.u64 %p, %p, %o;")
    for k, (name, kind) in enumerate(registers):
        lines.append(f"ld.global.{kind} %{name}, [%p+{4 * count * k}];")
    lines.append("ld.param.u64 %p, [out]; add.u64 %p, %p, %o;")
    lines.append(body)
    for k, register in enumerate(results):
        lines.append(f"st.global.b32 [%p+{4 * count * k}], %{register};")
    lines.append("ret;\n}")
    return "\n".join(lines)


def fetch(name, operation, geometry, image, sampling, coordinate="f32", *, tail="", operands=None,
          data=None, rule=None, special=True, target="sm_90", predicate=False):
    """One texture instruction, `operation` without its operands. `tail` follows the address, with
    registers that `operands` ({name: (kind, bits)}) gives values."""
    places = coordinates(geometry, image, coordinate, sampling.normalized, special)
    registers = [(k, "u32" if k == "l" else coordinate) for k in places]
    arrays = list(places.values())
    for register, (kind, bits) in (operands or {}).items():
        registers.append((register, kind))
        arrays.append(np.resize(bits, COUNT))
    data = image_data(image) if data is None else data
    vector = "{%d0, %d1, %d2, %d3}" + ("|%k" if predicate else "")
    body = f"{operation} {vector}, [%h, {VECTORS[geometry]}]{tail};"
    shown = [(r, a, kind) for (r, kind), a in zip(registers, arrays)]

    def describe(index):
        thread = index % COUNT
        parts = [f"{r}={a.view(np.float32)[thread]:.9g}" if kind == "f32" else
                 f"{r}={int(a.view(np.int32)[thread])}" for r, a, kind in shown]
        return f"thread {thread} component {index // COUNT}: " + " ".join(parts)

    return Case(
        name=name, instruction=f"{operation} of {image} by {sampling}",
        entry=_kernel(registers, body, ["d0", "d1", "d2", "d3"], COUNT),
        inputs=[np.concatenate(arrays), data], output=np.zeros(4 * COUNT, np.uint32),
        rule=rule or Exact(), grid=(COUNT // BLOCK, 1, 1), block=(BLOCK, 1, 1), target=target,
        parameters=lambda driver, inputs, output: [
            struct.pack("<Q", texture_object.make_texture(driver, image, sampling, data)),
            struct.pack("<Q", inputs[0]), struct.pack("<Q", output)],
        parameter_note=repr((image, sampling)), operands=describe)


def query(name, operation, image, sampling=None):
    """txq, or suq if there is no sampling: thread 0's answer."""
    data = image_data(image)

    def parameters(driver, inputs, output):
        handle = (texture_object.make_texture(driver, image, sampling, data) if sampling else
                  texture_object.make_surface(driver, image, data)[0])
        return [struct.pack("<Q", handle), struct.pack("<Q", inputs[0]), struct.pack("<Q", output)]

    return Case(name=name, instruction=f"{operation} of {image}",
                entry=_kernel([("c0", "u32")], f"{operation} %d0, [%h];", ["d0"], BLOCK),
                inputs=[np.zeros(BLOCK, np.uint32)], output=np.zeros(BLOCK, np.uint32),
                block=(BLOCK, 1, 1), parameters=parameters, parameter_note=repr((image, sampling)))


def surface(name, operation, geometry, image, places, *, width, count, action, reduction=None):
    """suld, sust or sured. `places`: {register: 32-bit values}; c0 in bytes. Of a load the output
    is what the threads got, else the array's contents afterwards."""
    threads = len(next(iter(places.values())))
    padded = (threads + BLOCK - 1) // BLOCK * BLOCK
    arrays = [np.resize(np.array(a, np.int64), padded).astype(np.uint64).astype(np.uint32)
              for a in places.values()]
    registers = [(k, "u32") for k in places]
    kind = f"b{width}"
    register = {"b8": "b16"}.get(kind, kind)
    names = [f"%v{k}" for k in range(count)]
    declared = "".join(f".reg .{register} {v}; " for v in names)
    vector = "{" + ", ".join(names) + "}" if count > 1 else names[0]
    data = image_data(image)
    body = declared
    address = f"[%h, {VECTORS[geometry]}]"
    results = []
    guard = f"setp.ge.u32 %k, %i, {threads}; @%k ret;\n"
    size = width // 8
    if action == "suld":
        body += f"{operation} {vector}, {address};\n"
        body += f"mad.wide.s32 %p, %i, {size * count - 4}, %p;\n"
        for k, v in enumerate(names):
            body += f"st.global.{kind} [%p+{k * size}], {v};\n"
        output = np.zeros(padded * size * count, np.uint8)
    else:
        body += guard
        # Every element that a thread stores differs from every other one.
        body += "mad.lo.u32 %d0, %i, 0x9e3779b1, 0x7f4a7c15;\n" if reduction is None else \
            f"mad.lo.u32 %d0, %i, {reduction}, 0xfffffff8;\n"
        for v in names:
            if width == 64:
                body += f"mov.b64 {v}, {{%d0, %i}};\n"
            elif width == 32:
                body += f"mov.b32 {v}, %d0;\n"
            else:
                body += f"cvt.u16.u32 {v}, %d0;\n"
            body += "shf.l.wrap.b32 %d0, %d0, %d0, 7;\n"
        body += f"{operation} {address}, {vector};\n"
        output = np.zeros(len(data), np.uint8)

    def parameters(driver, inputs, out):
        handle, array = texture_object.make_surface(driver, image, data)
        if action != "suld":
            def read_back():
                contents = texture_object.read_array(driver, image, array)
                driver.store(out, contents)
            driver.after_launch.append(read_back)
        return [struct.pack("<Q", handle), struct.pack("<Q", inputs[0]), struct.pack("<Q", out)]

    def describe(index):
        if action != "suld":
            texel, byte = divmod(index, image.texel_bytes)
            x, rest = texel % image.width, texel // image.width
            return f"texel ({x}, {rest % max(image.height, 1)}, {rest // max(image.height, 1)}) byte {byte}"
        thread = index // (size * count)
        return " ".join(f"{r}={int(a.view(np.int32)[thread])}" for (r, _), a in zip(registers, arrays))

    return Case(name=name, instruction=f"{operation} of {image}",
                entry=_kernel(registers, body, results, padded), inputs=[np.concatenate(arrays), data],
                output=output, grid=(padded // BLOCK, 1, 1), block=(BLOCK, 1, 1),
                parameters=parameters, parameter_note=repr((image, action)), operands=describe)
