"""Operand values: the edges of each type and seeded random bits.

Everything is deterministic, also across numpy versions: the random bits come from SHA-256.
"""

import hashlib

import numpy as np

WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def bits_of(kind):
    """Width of a PTX type: "f16x2" 32, "b128" 128, "e4m3x2" 16."""
    special = {"pred": 8, "e4m3x2": 16, "e5m2x2": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "bf16": 16,
               "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "f32x2": 64}
    return special.get(kind) or int(kind[1:])


def random_bits(width, count, seed):
    """`count` unsigned integers of `width` bits that depend on `seed` (a text) alone."""
    data = b""
    block = 0
    while len(data) < count * width // 8:
        data += hashlib.sha256(f"{seed}/{width}/{block}".encode()).digest()
        block += 1
    return np.frombuffer(data[:count * width // 8], WIDTHS[width]).copy()


def _integer_edges(width):
    top = 1 << (width - 1)
    values = [0, 1, 2, 3, 5, 7, 10, 31, 32, 33, 63, 64, 100, 127, 128, 129, 255,
              top - 2, top - 1, top, top + 1, top + 2, 2 * top - 3, 2 * top - 2, 2 * top - 1]
    if width > 8:
        values += [256, 0xff00 % (2 * top), 1 << (width // 2), (1 << (width // 2)) - 1,
                   (1 << (width // 2)) + 1, (2 * top - (1 << (width // 2)))]
    if width > 16:
        values += [0xffff, 0x10000, 0x7fffff, 0x800000, 0xffffff, 0x1000000, 0x12345678,
                   0xdeadbeef, 0x55555555, 0xaaaaaaaa, 0x00ff00ff, 0x80808080]
    if width > 32:
        values += [0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x1fffffffffffff,
                   0x20000000000001, 0x123456789abcdef0, 0xffffffff00000000, 0xffffffff80000000,
                   0x7fffffff80000000, 0x4000000000000001]
    else:
        values += [(1 << k) % (2 * top) for k in range(4, width, max(width // 8, 1))]
    return [v % (2 * top) for v in values]


def _float_edges(fraction, exponent):
    """Bit patterns of a format with a sign, `exponent` and `fraction` bits, IEEE specials."""
    bias = (1 << (exponent - 1)) - 1
    one = bias << fraction
    infinity = ((1 << exponent) - 1) << fraction
    sign = 1 << (exponent + fraction)
    half = 1 << (fraction - 1)
    smallest = 1 << fraction  # smallest normal number

    def power(k):
        return (bias + k) << fraction

    positive = [0, one, infinity, infinity | half, infinity | 1, infinity | (half - 1),
                infinity | half | 1, infinity | (smallest - 1), 1, 2, 3, smallest - 1, smallest,
                smallest + 1, half, infinity - 1, infinity - 2, one + 1, one - 1, power(1),
                power(-1), one | half, power(1) | half, power(-1) | half, power(2),
                power(fraction), power(fraction) + 1, power(fraction + 1), power(fraction - 1) + 1,
                power(-fraction), power(-fraction - 1), one | (half - 1), one | (half + 1)]
    if exponent == 8:  # limits of integers and of the narrower formats, and near halves
        positive += [power(7), power(8), power(15), power(16), power(31), power(31) - 1, power(32),
                     power(63), power(64), power(-14), power(-15), power(-24), power(-25),
                     power(-126 + 24), power(bias - 1)]
        if fraction == 23:
            positive += [0x477fe000, 0x477ff000, 0x477fefff, 0x477ff001, 0x3f801000, 0x3f803000,
                         0x3f800fff, 0x3f801001, 0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                         0x7f7f8000, 0x7f7f7fff, 0x33000000, 0x33000001, 0x38800000, 0x387fffff,
                         0x387fe000, 0x387ff000, 0x43e00000, 0x43e80000, 0x43e7ffff, 0x43f00000,
                         0x47600000, 0x47680000, 0x4767ffff, 0x3c800000, 0x3b000000, 0x3a800000,
                         0x37800000, 0x37000000, 0x40490fdb, 0x3fc90fdb, 0x42b17218, 0x3fb8aa3b]
    if exponent == 5:
        positive += [power(14), power(15), power(-7), power(-10)]
    if exponent == 11:
        positive += [power(31), power(32), power(63), power(64), power(127), power(128),
                     power(128) - 1, power(-126), power(-127), power(-149), power(-150), power(52),
                     power(53), 0x47efffffe0000000, 0x47effffff0000000, 0x47efffffefffffff,
                     0x3ff0000010000000, 0x3ff0000030000000, 0x3ff000000fffffff,
                     0x36a0000000000001, 0x3690000000000000, 0x3690000000000001,
                     0x41dfffffffc00000, 0x41dfffffffe00000, 0x41efffffffe00000,
                     0x400921fb54442d18, 0x43dfffffffffffff]
    values = []
    for v in positive:
        values += [v, v | sign]
    return values




def edges(kind):
    """Edge values of a type, the most telling first."""
    if kind == "pred":
        return np.array([0, 1], np.uint8)
    if kind in ("f16x2", "bf16x2"):
        half = edges(kind[:-2]).astype(np.uint32)
        return half | (np.roll(half, 7) << np.uint32(16))
    if kind == "f32x2":
        half = edges("f32").astype(np.uint64)
        return half | (np.roll(half, 7) << np.uint64(32))
    if kind in ("u16x2", "s16x2"):
        half = edges("u16").astype(np.uint32)
        return half | (np.roll(half, 5) << np.uint32(16))
    width = bits_of(kind)
    if kind == "f16":
        values = _float_edges(10, 5)
    elif kind == "bf16":
        values = _float_edges(7, 8)
    elif kind in ("f32", "tf32"):
        values = _float_edges(23, 8)
    elif kind == "f64":
        values = _float_edges(52, 11)
    else:
        values = _integer_edges(width)
    return np.array(list(dict.fromkeys(values)), WIDTHS[width])


def random_values(kind, count, seed):
    """Random bits; of floating-point types every second value has an exponent near that of 1, so
    that operands meet instead of one swallowing the other, and integers have all lengths."""
    width = bits_of(kind)
    if width == 128:
        raise ValueError("compose 128-bit values of 64-bit ones")
    bits = random_bits(width, count, f"{seed}/{kind}")
    if kind in ("f16", "f32", "f64", "bf16", "tf32"):
        fraction, exponent = {"f16": (10, 5), "bf16": (7, 8), "f64": (52, 11)}.get(kind, (23, 8))
        spread = max(3, min(exponent, 5) - 1)
        bias = (1 << (exponent - 1)) - 1
        near = (bits >> bits.dtype.type(fraction)) % bits.dtype.type(1 << spread)
        moved = (near + bits.dtype.type(bias - (1 << (spread - 1)))) << bits.dtype.type(fraction)
        keep = bits.dtype.type((1 << fraction) - 1 + (1 << (fraction + exponent)))
        tamed = (bits & keep) | moved
        return np.where(np.arange(count) % 4 != 3, tamed, bits)
    if kind in ("f16x2", "bf16x2"):
        return random_values(kind[:-2], 2 * count, seed).view(np.uint32)
    if kind == "f32x2":
        return random_values("f32", 2 * count, seed).view(np.uint64)
    if kind[0] in "usb" and "x" not in kind and width > 8:
        lengths = random_bits(16, count, f"{seed}/length") % np.uint16(width)
        shorter = (bits >> lengths.astype(bits.dtype))
        return np.where(np.arange(count) % 2 == 0, bits, shorter)
    return bits


def _nan_operands(kinds):
    """All combinations of a number, a quiet and a signalling NaN, with payloads that differ between
    the operands: which NaN survives?"""
    arrays = []
    for k, kind in enumerate(kinds):
        pair = kind.endswith("x2")
        name = kind[:-2] if pair else kind
        fraction, exponent = {"f16": (10, 5), "bf16": (7, 8), "f64": (52, 11)}.get(name, (23, 8))
        infinity = ((1 << exponent) - 1) << fraction
        one = ((1 << (exponent - 1)) - 1) << fraction
        choice = [one, infinity | (1 << (fraction - 1)) | (k + 2),
                  (1 << (fraction + exponent)) | infinity | (k + 5)]
        stride = 3 ** (len(kinds) - 1 - k)
        picked = np.array(choice, WIDTHS[bits_of(name)])[np.arange(3 ** len(kinds)) // stride % 3]
        if pair:
            wide = picked.astype(WIDTHS[2 * bits_of(name)])
            picked = wide | (np.roll(wide, 4) << wide.dtype.type(bits_of(name)))
        arrays.append(picked)
    return arrays


def operands(kinds, count, seed):
    """One array of `count` values per kind: first all combinations of the foremost edges and of
    NaNs, then edges drawn at random beside edges, then random values."""
    if len(kinds) == 1:
        e = edges(kinds[0])[:count]
        return [np.concatenate([e, random_values(kinds[0], count - len(e), seed)])]
    lists = [edges(k) for k in kinds]
    per = {2: 12, 3: 5, 4: 3}[len(kinds)]
    pools = [e[:per] for e in lists]
    product = 1
    for pool in pools:
        product *= len(pool)
    product = min(product, count // 2)
    index = np.arange(product)
    is_float = all("f" in k for k in kinds)
    nans = _nan_operands(kinds) if is_float else [np.zeros(0, e.dtype) for e in lists]
    product += len(nans[0])
    result = []
    third = (count - product) // 2
    for k, kind in enumerate(kinds):
        stride = 1
        for pool in pools[k + 1:]:
            stride *= len(pool)
        first = np.concatenate([pools[k][index // stride % len(pools[k])], nans[k]])
        pick = random_bits(32, third, f"{seed}/pick/{k}") % np.uint32(len(lists[k]))
        drawn = lists[k][pick]
        rest = count - product - third
        rand = random_values(kind, rest, f"{seed}/{k}")
        if kind == "pred":
            rand = rand & np.uint8(1)
        result.append(np.concatenate([first, drawn, rand]).astype(lists[k].dtype))
    return result
