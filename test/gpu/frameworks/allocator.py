"""The caching allocator's habits: blocks split, freed, reused and merged, on two streams with record_stream; nothing wrong.
PYTORCH_CUDA_ALLOC_CONF chooses the allocator. With "wrong" a kernel reads a deleted tensor.

    python allocator.py right|wrong
"""
import random
import sys

import torch
import triton
import triton.language as tl
from digest import print_digest


@triton.jit
def add(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)  # planted
    tl.store(y + i, value + 1, mask=i < count)


def plus_one(x):
    y = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def main() -> None:
    numbers = random.Random(0)
    side = torch.cuda.Stream()
    held, sums = [], []
    for round in range(300):
        count = numbers.choice((1, 7, 128, 1000, 4096, 100_001, 3_000_000))
        x = torch.full((count,), float(round), device="cuda")
        if round % 3 == 0:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = plus_one(x)
                x.record_stream(side)
            del x
            torch.cuda.current_stream().wait_stream(side)
            y.record_stream(torch.cuda.current_stream())
        else:
            y = plus_one(x)
        sums.append(y[-1].clone() + y.view(-1)[: count // 2 + 1].mean())
        held.append(y)
        if len(held) > 20:
            del held[numbers.randrange(len(held))]
        if round % 100 == 99:
            torch.cuda.empty_cache()
    if sys.argv[1] == "wrong":
        gone = torch.full((123, 45), 1.0, device="cuda")
        address = gone.data_ptr()
        out = torch.empty(123 * 45, device="cuda")
        del gone

        class Dangling:  # what a cached raw pointer is
            dtype = torch.float32

            def data_ptr(self):
                return address

        add[(6,)](Dangling(), out, 123 * 45, BLOCK=1024)
    print_digest("sums", torch.stack(sums))


main()
