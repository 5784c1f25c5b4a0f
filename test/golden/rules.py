"""When does a result agree with the recorded one?

A rule gets both arrays as unsigned integers (the bits) and returns a mask of the elements that
disagree. Everything that the PTX ISA defines exactly is `Exact`; a bound names its source.
"""

from dataclasses import dataclass

import numpy as np

# fraction bits, exponent bits, bits of the element
FORMATS = {"f16": (10, 5, 16), "bf16": (7, 8, 16), "f32": (23, 8, 32), "f64": (52, 11, 64)}


def split_pairs(bits, name):
    """(bits, element format): packed pairs as an array of their halves."""
    if name.endswith("x2"):
        return bits.view(np.uint16) if name != "f32x2" else bits.view(np.uint32), name[:-2]
    return bits, name


def to_float64(bits, name):
    """Values of f16, bf16, f32 or f64 bit patterns."""
    if name == "f64":
        return bits.view(np.float64)
    if name == "f32":
        return bits.view(np.float32).astype(np.float64)
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(np.float16).astype(np.float64)


def is_nan(bits, name):
    fraction, exponent, _ = FORMATS[name]
    magnitude = bits & bits.dtype.type((1 << (fraction + exponent)) - 1)
    return magnitude > bits.dtype.type(((1 << exponent) - 1) << fraction)


def ordered(bits, name):
    """Integers in the order of the numbers, one step per representable value; -0 equals +0."""
    fraction, exponent, width = FORMATS[name]
    sign = bits >> bits.dtype.type(width - 1)
    magnitude = (bits & bits.dtype.type((1 << (width - 1)) - 1)).astype(np.int64)
    return np.where(sign != 0, -magnitude, magnitude)


def _whole(mask, bits):
    """Disagreement of halves as disagreement of the elements that hold them."""
    per = len(mask) // len(bits) if len(bits) else 1
    return mask.reshape(-1, per).any(axis=1) if per > 1 else mask


@dataclass(frozen=True)
class Exact:
    def mismatches(self, expected, got):
        return expected != got

    def __str__(self):
        return "bit for bit"


@dataclass(frozen=True)
class AnyNan:
    """Bit for bit, but where both are NaN the ISA leaves the payload open."""

    format: str
    source: str

    def mismatches(self, expected, got):
        x, name = split_pairs(expected, self.format)
        y, _ = split_pairs(got, self.format)
        return _whole((x != y) & ~(is_nan(x, name) & is_nan(y, name)), expected)

    def __str__(self):
        return f"bit for bit, any NaN payload ({self.source})"


@dataclass(frozen=True)
class Bound:
    """|expected - got| at most `ulp` units in the last place, or `relative` * |expected|, or
    `absolute` (a number or one per element): the widest counts. NaNs, infinities and the signs of
    zeros are compared bit for bit. With `flush`, all results below the smallest normal number are
    the same."""

    format: str
    source: str
    ulp: float = 0
    relative: float = 0
    absolute: object = 0
    flush: bool = False

    def mismatches(self, expected, got):
        x, name = split_pairs(expected, self.format)
        y, _ = split_pairs(got, self.format)
        fraction, exponent, width = FORMATS[name]
        with np.errstate(invalid="ignore", over="ignore"):
            a, b = to_float64(x, name), to_float64(y, name)
            distance = np.abs(a - b)
            near = np.abs(ordered(x, name) - ordered(y, name)) <= self.ulp
            near |= distance <= np.abs(a) * self.relative
            near |= distance <= np.asarray(self.absolute)
        infinite = np.isinf(a) | np.isinf(b)
        zeros = (a == 0) & (b == 0)
        if self.flush:
            smallest = 2.0 ** (2 - (1 << (exponent - 1)))
            near |= (np.abs(a) < smallest) & (np.abs(b) < smallest)
        bad = np.where(np.isnan(a) | np.isnan(b) | infinite | zeros, x != y, ~near)
        return _whole(bad, expected)

    def __str__(self):
        parts = []
        if self.ulp:
            parts.append(f"{self.ulp:g} ulp")
        if self.relative:
            parts.append(f"relative {self.relative:g}")
        if np.any(np.asarray(self.absolute)):
            parts.append("absolute " + (f"{self.absolute:g}" if np.ndim(self.absolute) == 0
                                        else "per element"))
        return f"within {', '.join(parts)} ({self.source})"


@dataclass(frozen=True)
class Masked:
    """`rule`, only where `defined` is set: the rest of the output is undefined by the ISA."""

    rule: object
    defined: object

    def mismatches(self, expected, got):
        return self.rule.mismatches(expected, got) & self.defined

    def __str__(self):
        return f"{self.rule}, where defined"
