"""Textures and surfaces (PTX ISA 9.0, 9.7.10 and 9.7.11): every element format, geometry, address
mode and kind of coordinate; filtering; mipmap levels; gathering; queries; surfaces in and out of
range.

Point sampling, surfaces and gathering are bit for bit, and so is filtering, whose rule
(emulator/texture_blend.cc) was found by sweeps on an H200. Bounds remain where eight or sixteen texels
meet and rounding differs in one case of a thousand: HALF_BOX, TWO_BOXES; and for tex.grad.3d.
"""

import numpy as np

import values
from rules import Bound, Exact, Masked
from texture_case import COUNT, coordinates, fetch, moderate_data, query, surface
from texture_object import Image, Sampling

GUIDE = "CUDA C++ Programming Guide, Linear Filtering: weights with 8 fractional bits"
# The texels of moderate_data lie in [-4, 4): a weight that is 1/256 off shifts the sum by 8/256.
TWO_BOXES = Bound("f32", GUIDE, absolute=2 * 8 / 256)
# Texels below 4 of 11 bits, aligned with 4 more.
HALF_BOX = Bound("f32", GUIDE + "; f16 texels", absolute=2.0 ** -12)

FORMATS = ("u8", "s8", "u16", "s16", "u32", "s32", "f16", "f32")
MODES = ("clamp", "border", "wrap", "mirror")
SHAPES = {
    "1d": {"width": 13},
    "2d": {"width": 12, "height": 7},
    "3d": {"width": 8, "height": 6, "depth": 5},
    "a1d": {"width": 11, "depth": 4, "layered": True},
    "a2d": {"width": 8, "height": 5, "depth": 3, "layered": True},
    "cube": {"width": 6, "height": 6, "depth": 6, "cube": True},
    "acube": {"width": 4, "height": 4, "depth": 12, "cube": True, "layered": True},
}
BORDER = (0.25, -1.5, 3.0, 0.75)


def _result(format_):
    """The type in which an instruction returns the elements of a format."""
    return "f32" if format_[0] == "f" else f"{format_[0]}32"


def _short(sampling):
    return ".".join([sampling.mode, "linear" if sampling.linear else "point",
                     "normalized" if sampling.normalized else "texels"])


def formats():
    for format_ in FORMATS:
        result = _result(format_)
        for channels in (1, 2, 4):
            for geometry, coordinate in (("1d", "s32"), ("2d", "f32"), ("3d", "f32"), ("a1d", "s32"),
                                         ("a2d", "f32")):
                if channels != 4 and geometry in ("3d", "a1d"):
                    continue
                image = Image(format_, channels, **SHAPES[geometry])
                yield fetch(f"element.{geometry}.{format_}.{channels}",
                            f"tex.{geometry}.v4.{result}.{coordinate}", geometry, image,
                            Sampling(border=BORDER), coordinate)
            line = Image(format_, channels, 24, kind="linear")
            yield fetch(f"linear.{format_}.{channels}", f"tex.1d.v4.{result}.s32", "1d", line,
                        Sampling(), "s32")
            rows = Image(format_, channels, 10, 6, kind="pitch")
            yield fetch(f"pitch.{format_}.{channels}", f"tex.2d.v4.{result}.f32", "2d", rows,
                        Sampling())
            if format_ in ("u8", "s8", "u16", "s16"):
                read = Sampling(as_integer=False, mode="border", border=BORDER)
                image = Image(format_, channels, **SHAPES["2d"])
                yield fetch(f"normalized.2d.{format_}.{channels}", "tex.2d.v4.f32.f32", "2d", image, read)
                yield fetch(f"normalized.linear.{format_}.{channels}", "tex.1d.v4.f32.s32", "1d", line,
                            Sampling(as_integer=False), "s32")
                yield fetch(f"normalized.array.{format_}.{channels}", "tex.1d.v4.f32.s32", "1d",
                            Image(format_, channels, **SHAPES["1d"]), Sampling(as_integer=False), "s32")
        if format_[0] != "f":
            image = Image(format_, 4, **SHAPES["2d"])
            for border in (BORDER, (-3.0, 1e10, -1e10, 2.5)):
                yield fetch(f"border.2d.{format_}.{border[0]}", f"tex.2d.v4.{result}.f32", "2d", image,
                            Sampling(mode="border", border=border))


def addressing():
    for geometry in ("1d", "2d", "3d", "a1d", "a2d"):
        image = Image("f32", 1, **SHAPES[geometry])
        for mode in MODES:
            for normalized in (False, True):
                sampling = Sampling(mode=mode, normalized=normalized, border=BORDER)
                yield fetch(f"address.{geometry}.{_short(sampling)}", f"tex.{geometry}.v4.f32.f32",
                            geometry, image, sampling)
            yield fetch(f"address.{geometry}.{mode}.s32", f"tex.{geometry}.v4.f32.s32", geometry, image,
                        Sampling(mode=mode, border=BORDER), "s32")
    for geometry in ("1d", "2d", "3d"):
        image = Image("u32", 2, **SHAPES[geometry])
        for mode in MODES:
            yield fetch(f"address.{geometry}.{mode}.u32.s32", f"tex.{geometry}.v4.u32.s32", geometry,
                        image, Sampling(mode=mode, border=BORDER), "s32")
            yield fetch(f"address.{geometry}.{mode}.s32.normalized", f"tex.{geometry}.v4.s32.s32",
                        geometry, Image("s16", 1, **SHAPES[geometry]),
                        Sampling(mode=mode, normalized=True), "s32")
    rows = Image("f32", 1, 10, 6, kind="pitch")
    for mode in MODES:
        for normalized in (False, True):
            yield fetch(f"address.pitch.{mode}.{normalized}", "tex.2d.v4.f32.f32", "2d", rows,
                        Sampling(mode=mode, normalized=normalized))


def filtering():
    for geometry in ("1d", "2d", "3d", "a1d", "a2d"):
        for mode in MODES:
            for normalized in (False, True):
                sampling = Sampling(mode=mode, normalized=normalized, linear=True, border=BORDER)
                image = Image("f32", 1, **SHAPES[geometry])
                yield fetch(f"filter.{geometry}.{_short(sampling)}", f"tex.{geometry}.v4.f32.f32",
                            geometry, image, sampling, data=moderate_data(image))
    for format_ in ("u8", "s8", "u16", "s16", "f16", "f32"):
        for channels in (1, 2, 4):
            for geometry in ("1d", "2d") if channels != 4 else ("1d", "2d", "3d"):
                image = Image(format_, channels, **SHAPES[geometry])
                sampling = Sampling(mode="clamp", linear=True, as_integer=False, normalized=channels == 2)
                yield fetch(f"filter.{geometry}.{format_}.{channels}", f"tex.{geometry}.v4.f32.f32",
                            geometry, image, sampling, data=moderate_data(image),
                            rule=HALF_BOX if (geometry, format_) == ("3d", "f16") else None)
    rows = Image("f32", 2, 10, 6, kind="pitch")
    for normalized in (False, True):
        yield fetch(f"filter.pitch.{normalized}", "tex.2d.v4.f32.f32", "2d", rows,
                    Sampling(linear=True, normalized=normalized), data=moderate_data(rows))
    image = Image("f32", 1, **SHAPES["2d"])
    yield fetch("filter.s32", "tex.2d.v4.f32.s32", "2d", image, Sampling(linear=True), "s32")


def levels():
    lods = np.array([0, 0.25, 0.5, 0.49999997, 0.75, 1, 1.5, 2, 2.5, 2.75, 3, 3.5, -1, 10, np.inf,
                     -np.inf, np.nan, 1 / 512, 1 / 1024, 0.998, 0.999, 1.25], np.float32)
    lods = np.concatenate([lods, (values.random_bits(32, 42, "lod") >> np.uint32(8)).astype(
        np.float32) / np.float32(1 << 22)]).view(np.uint32)
    shapes = {"1d": {"width": 16}, "2d": {"width": 16, "height": 8},
              "3d": {"width": 8, "height": 8, "depth": 8},
              "a2d": {"width": 8, "height": 8, "depth": 3, "layered": True}}
    for geometry, shape in shapes.items():
        image = Image("f32", 1, kind="mipmap", levels=4, **shape)
        for linear, linear_levels in ((False, False), (True, False), (False, True), (True, True)):
            sampling = Sampling(normalized=True, linear=linear, linear_levels=linear_levels,
                                level_max=3.0)
            yield fetch(f"level.{geometry}.{int(linear)}.{int(linear_levels)}",
                        f"tex.level.{geometry}.v4.f32.f32", geometry, image, sampling, tail=", %lod",
                        operands={"lod": ("f32", lods)}, data=moderate_data(image),
                        rule=TWO_BOXES if geometry == "3d" and linear and linear_levels else None)
    image = Image("f32", 1, kind="mipmap", levels=4, **shapes["2d"])
    for bias, low, high in ((0.5, 0.0, 3.0), (-0.75, 0.5, 2.25), (0.0, 1.0, 1.0), (0.3, 0.0, 0.0)):
        for linear_levels in (False, True):
            sampling = Sampling(normalized=True, linear_levels=linear_levels, level_bias=bias,
                                level_min=low, level_max=high)
            yield fetch(f"level.bias{bias}.{low}.{high}.{int(linear_levels)}",
                        "tex.level.2d.v4.f32.f32", "2d", image, sampling, tail=", %lod",
                        operands={"lod": ("f32", lods)}, data=moderate_data(image))
            yield fetch(f"implicit.bias{bias}.{low}.{high}.{int(linear_levels)}",
                        "tex.2d.v4.f32.f32", "2d", image, sampling, data=moderate_data(image))
    whole = np.array([0, 1, 2, 3, 0, 2, 1], np.uint32)
    for geometry in ("1d", "2d", "3d"):
        image = Image("u32", 2, kind="mipmap", levels=4, **shapes[geometry])
        yield fetch(f"level.{geometry}.s32", f"tex.level.{geometry}.v4.u32.s32", geometry, image,
                    Sampling(level_max=3.0, normalized=True), "s32", tail=", %lod",
                    operands={"lod": ("s32", whole)})
    single = Image("f32", 1, **SHAPES["2d"])
    yield fetch("level.single", "tex.level.2d.v4.f32.f32", "2d", single, Sampling(), tail=", %lod",
                operands={"lod": ("f32", lods)})
    # Gradients whose level is a whole number and a half, so that any exact formula agrees.
    steps = np.array([0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 1 / 64], np.float32).view(np.uint32)
    for geometry, tail, names in (("1d", ", {%gx}, {%hx}", ("gx", "hx")),
                                  ("2d", ", {%gx, %gy}, {%hx, %hy}", ("gx", "gy", "hx", "hy")),
                                  ("3d", ", {%gx, %gy, %gz, %gz}, {%hx, %hy, %hz, %hz}",
                                   ("gx", "gy", "gz", "hx", "hy", "hz"))):
        image = Image("f32", 1, kind="mipmap", levels=4, **shapes[geometry])
        # Only one of the steps is not zero per thread.
        operands = {}
        for k, register in enumerate(names):
            chosen = np.where(np.arange(COUNT) // 8 % len(names) == k, np.resize(steps, COUNT), 0)
            operands[register] = ("f32", chosen.astype(np.uint32))
        for linear_levels in (False, True):
            sampling = Sampling(normalized=True, linear_levels=linear_levels, level_max=3.0)
            yield fetch(f"grad.{geometry}.{int(linear_levels)}", f"tex.grad.{geometry}.v4.f32.f32",
                        geometry, image, sampling, tail=tail, operands=operands,
                        data=moderate_data(image),
                        rule=_differences(linear_levels) if geometry == "3d" else None)


def _differences(linear_levels):
    """ptxas makes tex.grad.3d of differences of coordinates, which cannot be told from coordinates that
    are not finite or swallow the step; the level is as exact as their logarithm."""
    places = coordinates("3d", Image("f32", 1, 8, 8, 8), "f32", True)
    defined = np.ones(COUNT, bool)
    for bits in places.values():
        with np.errstate(invalid="ignore"):
            defined &= np.abs(bits.view(np.float32)) < 1e5
    rule = Bound("f32", GUIDE, absolute=2 * 8 / 256) if linear_levels else Exact()
    return Masked(rule, np.tile(defined, 4))


def gather():
    for component in "rgba":
        for format_, channels, as_integer in (("f32", 4, True), ("u8", 4, True), ("s16", 2, True),
                                              ("u8", 4, False), ("f16", 4, True), ("u32", 1, True)):
            image = Image(format_, channels, gather=True, **SHAPES["2d"])
            result = _result(format_) if as_integer else "f32"
            yield fetch(f"tld4.{component}.{format_}.{channels}.{int(as_integer)}",
                        f"tld4.{component}.2d.v4.{result}.f32", "2d", image,
                        Sampling(as_integer=as_integer))
    for mode in MODES:
        for normalized in (False, True):
            sampling = Sampling(mode=mode, normalized=normalized, border=BORDER)
            image = Image("f32", 4, gather=True, **SHAPES["2d"])
            yield fetch(f"tld4.{_short(sampling)}", "tld4.g.2d.v4.f32.f32", "2d", image, sampling)
    image = Image("f32", 4, gather=True, **SHAPES["2d"])
    yield fetch("tld4.linear", "tld4.b.2d.v4.f32.f32", "2d", image, Sampling(linear=True))


def cubes():
    for geometry in ("cube", "acube"):
        image = Image("f32", 1, **SHAPES[geometry])
        for mode in ("clamp", "wrap", "border"):
            for linear in (False, True):
                sampling = Sampling(mode=mode, linear=linear, normalized=True, border=BORDER)
                yield fetch(f"{geometry}.{mode}.{int(linear)}", f"tex.{geometry}.v4.f32.f32", geometry,
                            image, sampling, data=moderate_data(image))


def queries():
    # .array_size and .num_mipmap_levels of a handle: the GPU's driver refuses the module.
    for geometry in ("1d", "2d", "3d", "a1d", "a2d"):
        image = Image("u16", 2, **SHAPES[geometry])
        properties = ["width"] + (["height"] if "2d" in geometry or geometry == "3d" else [])
        properties += ["depth"] if geometry == "3d" else []
        for name in properties:
            yield query(f"txq.{name}.{geometry}", f"txq.{name}.b32", image, Sampling())
            yield query(f"suq.{name}.{geometry}", f"suq.{name}.b32", image)
    mipmaps = Image("f32", 1, 16, 8, kind="mipmap", levels=3)
    yield query("txq.width.mipmap", "txq.width.b32", mipmaps, Sampling(normalized=True, level_max=3.0))
    rows = Image("f32", 2, 10, 6, kind="pitch")
    yield query("txq.height.pitch", "txq.height.b32", rows, Sampling())


def _inside(geometry, image, texel):
    """Every texel once."""
    width, height, depth = image.shape()
    index = np.arange(width * height * depth)
    places = {"c0": index % width * texel}
    if geometry in ("2d", "a2d", "3d"):
        places["c1"] = index // width % height
    if geometry == "3d":
        places["c2"] = index // (width * height)
    if geometry[0] == "a":
        places["l"] = index // (width * height)
    return places


def _outside(geometry, image, texel):
    """Texels beside and far beside the image; where clamping moves them differs for each thread."""
    width, height, depth = image.shape()
    x = [-texel, -100 * texel, width * texel, (width + 3) * texel, texel, 2 * texel, -texel,
         (width + 1) * texel, 0x7ffffff0, -0x80000000, 3 * texel, 4 * texel]
    if geometry in ("1d", "a1d"):
        # One to each side, and two inside.
        x = [-texel, (width + 1) * texel, 3 * texel, 4 * texel]
    places = {"c0": x}
    y = [1, 2, 1, 2, -1, height + 4, -3, height, 3, 3, 2, 1]
    if geometry in ("2d", "a2d", "3d"):
        places["c1"] = y
    if geometry == "3d":
        places["c2"] = [1, 1, 2, 3, 0, 0, depth + 2, -1, 1, 0, -1, depth + 1]
    if geometry == "a2d":
        places["l"] = [1, 1, 2, 0, 0, 0, 1, 1, 1, 0, depth, depth + 3]
    if geometry == "a1d":
        places["l"] = [1, 2, depth, 0]
    return places


def surfaces():
    shapes = ((8, 1, "u8", 1), (8, 2, "u8", 2), (8, 4, "s8", 4), (16, 1, "f16", 1), (16, 2, "u16", 2),
              (16, 4, "s16", 4), (32, 1, "f32", 1), (32, 2, "s32", 2), (32, 4, "u32", 4),
              (64, 1, "u32", 2), (64, 2, "f32", 4), (32, 1, "u8", 4), (16, 1, "u8", 2))
    for action in ("suld", "sust"):
        for geometry in ("1d", "2d", "3d", "a1d", "a2d"):
            for width, count, format_, channels in shapes:
                if geometry in ("a1d", "a2d") and count == 2:
                    continue
                image = Image(format_, channels, **SHAPES[geometry])
                vector = {1: "", 2: ".v2", 4: ".v4"}[count]
                for clamp in ("trap", "clamp", "zero"):
                    if clamp == "trap":
                        places = _inside(geometry, image, image.texel_bytes)
                    else:
                        places = _outside(geometry, image, image.texel_bytes)
                    name = f"{action}.{geometry}.{vector[1:]}b{width}.{format_}x{channels}.{clamp}"
                    yield surface(name, f"{action}.b.{geometry}{vector}.b{width}.{clamp}", geometry,
                                  image, places, width=width, count=count, action=action)
    # Parts of a texel.
    image = Image("u32", 4, **SHAPES["2d"])
    for action in ("suld", "sust"):
        yield surface(f"{action}.part", f"{action}.b.2d.b32.trap", "2d", image,
                      {"c0": [4, 24, 60, 128 + 8], "c1": [0, 1, 2, 3]}, width=32, count=1, action=action)


def reductions():
    for geometry in ("1d", "2d", "3d"):
        for operation, kind in (("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"),
                                ("max", "u32"), ("max", "s32"), ("and", "b32"), ("or", "b32"),
                                ("add", "u64"), ("min", "u64"), ("max", "s64")):
            width = int(kind[1:])
            image = Image("u32", width // 32, **SHAPES[geometry])
            for clamp in ("trap", "clamp", "zero"):
                places = (_inside if clamp == "trap" else _outside)(geometry, image, image.texel_bytes)
                places = {k: list(v) * 2 for k, v in places.items()}
                yield surface(f"sured.{operation}.{geometry}.{kind}.{clamp}",
                              f"sured.b.{operation}.{geometry}.{kind}.{clamp}", geometry, image, places,
                              width=width, count=1, action="sured", reduction=0x1234567)


def cases():
    yield from formats()
    yield from addressing()
    yield from filtering()
    yield from levels()
    yield from gather()
    yield from cubes()
    yield from queries()
    yield from surfaces()
    yield from reductions()
