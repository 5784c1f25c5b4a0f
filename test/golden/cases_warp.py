"""Operations between the lanes of a warp (PTX ISA 9.0, 9.7.9.5 to 7 and 9.7.13): shfl, vote, match,
redux, elect, activemask, for whole warps and for subsets of the lanes."""

import numpy as np

import values
from element import element

WARPS = 12
COUNT = 32 * WARPS
MASKS = (0xffffffff, 0x0000ffff, 0xaaaaaaaa, 0x80000001, 0x00f0ff0f)


def _few(seed):
    """Values with many repetitions, equal within every fourth warp."""
    bits = values.random_bits(32, COUNT, seed) % np.uint32(5)
    warp = np.arange(COUNT) // 32
    return np.where(warp % 4 == 3, bits[warp * 32], bits).astype(np.uint32)


def _uniform(array):
    return array[np.arange(COUNT) // 32 * 32]


def _subset(mask, text):
    """`text` for the lanes of `mask` only; the others keep zeros. %m holds the mask."""
    if mask == 0xffffffff:
        return f"mov.u32 %m, -1; {text}"
    return (f"mov.u32 %m, {mask:#x}; mov.u32 %l, %laneid; shr.u32 %l, %m, %l; and.b32 %l, %l, 1;"
            f" setp.ne.u32 %w, %l, 0; @!%w bra SKIP; {text} SKIP:")


REGISTERS = (".b32 %m", ".b32 %l", ".pred %w", ".pred %v")


def _case(name, text, results, sources, inputs, mask=0xffffffff, instruction=None):
    clear = {"pred": "setp.ne.u32 %{}, 0, 0;"}
    start = " ".join(clear.get(k, "mov.b32 %{}, 0;").format(r) for r, k in zip("dqrs", results))
    end = "" if mask == 0xffffffff else f".{mask:08x}"
    return element(name + end, f"{start} {_subset(mask, text)}", results, sources,
                   inputs=inputs, registers=REGISTERS, instruction=instruction or text, block=128)


def shuffles():
    a = values.random_bits(32, COUNT, "shuffle a")
    lane = values.random_bits(32, COUNT, "shuffle b") % np.uint32(40)
    lanes = np.where(np.arange(COUNT) // 32 % 2 == 0, _uniform(lane), lane).astype(np.uint32)
    widths = values.random_bits(32, COUNT, "shuffle width") % np.uint32(6)
    for mode in ("up", "down", "bfly", "idx"):
        # c = clamp in the low bits, segment mask in bits 8 to 12, as the manual's shfl widths make it.
        width = np.uint32(1) << _uniform(widths)
        segment = (np.uint32(32) - width) << np.uint32(8)
        c = segment | (np.uint32(0) if mode == "up" else np.uint32(31))
        text = f"shfl.sync.{mode}.b32 %d|%v, %a, %b, %c, %m; selp.u32 %q, 1, 0, %v;"
        yield _case(f"shfl.sync.{mode}.b32", text, ("b32", "b32"), ("b32",) * 3, [a, lanes, c])
        # Arbitrary segments and clamps per lane: what the formula of the manual makes of them.
        any_c = values.random_bits(32, COUNT, "shuffle any c") & np.uint32(0x1f1f)
        yield _case(f"shfl.sync.{mode}.b32.any", text, ("b32", "b32"), ("b32",) * 3,
                    [a, lanes, any_c])
        text = f"shfl.sync.{mode}.b32 %d, %a, 1, {'0' if mode == 'up' else '0x1f'}, %m;"
        yield _case(f"shfl.sync.{mode}.b32.one", text, ("b32",), ("b32",), [a])
    # Within a subset, each lane reads a lane of the subset.
    for mask in MASKS[1:]:
        members = np.array([k for k in range(32) if mask >> k & 1], np.uint32)
        source = members[values.random_bits(32, COUNT, "subset") % np.uint32(len(members))]
        yield _case("shfl.sync.idx.b32.member", "shfl.sync.idx.b32 %d, %a, %b, 0x1f, %m;", ("b32",),
                    ("b32", "b32"), [a, source], mask)


def votes():
    p = (values.random_bits(8, COUNT, "votes") & np.uint8(1))
    warp = np.arange(COUNT) // 32
    p = np.where(warp % 3 == 0, p, (warp % 3 == 1)).astype(np.uint8)
    for mask in MASKS:
        for mode in ("all", "any", "uni"):
            for sign in ("", "!"):
                text = f"vote.sync.{mode}.pred %d, {sign}%a, %m;"
                yield _case(f"vote.sync.{mode}{'.not' if sign else ''}", text, ("pred",), ("pred",),
                            [p], mask)
        yield _case("vote.sync.ballot", "vote.sync.ballot.b32 %d, %a, %m;", ("b32",), ("pred",), [p],
                    mask)
        yield _case("activemask", "activemask.b32 %d;", ("b32",), ("pred",), [p], mask)
        text = "elect.sync %d|%v, %m; selp.u32 %q, 1, 0, %v;"
        yield _case("elect.sync", text, ("b32", "b32"), ("pred",), [p], mask)


def matches():
    a = _few("match")
    wide = a.astype(np.uint64) | (_few("match high").astype(np.uint64) << np.uint64(32))
    for mask in MASKS:
        for kind, operand in (("b32", a), ("b64", wide)):
            yield _case(f"match.any.sync.{kind}", f"match.any.sync.{kind} %d, %a, %m;", ("b32",),
                        (kind,), [operand], mask)
            text = f"match.all.sync.{kind} %d|%v, %a, %m; selp.u32 %q, 1, 0, %v;"
            yield _case(f"match.all.sync.{kind}", text, ("b32", "b32"), (kind,), [operand], mask)


def reductions():
    a = values.operands(["b32"], COUNT, "redux")[0]
    for mask in MASKS:
        for op, kinds in (("add", "us"), ("min", "us"), ("max", "us"), ("and", "b"), ("or", "b"),
                          ("xor", "b")):
            for kind in kinds:
                name = f"redux.sync.{op}.{kind}32"
                yield _case(name, f"{name} %d, %a, %m;", ("b32",), ("b32",), [a], mask)


def cases():
    yield from shuffles()
    yield from votes()
    yield from matches()
    yield from reductions()
