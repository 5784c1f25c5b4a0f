"""A Triton kernel on a torch tensor in the middle of a pool segment; with "wrong" it writes one element past it.

    python pool_overflow_triton.py right|wrong ROWS COLUMNS
"""
import sys

import torch
import triton
import triton.language as tl
from digest import print_digest


@triton.jit
def fill(out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, i * 0.5, mask=i < count)  # planted


def main() -> None:
    rows, columns = int(sys.argv[2]), int(sys.argv[3])
    tensors = [torch.zeros(rows, columns, device="cuda") for _ in range(9)]
    middle = tensors[4]
    count = middle.numel() + (sys.argv[1] == "wrong")
    fill[(triton.cdiv(count, 256),)](middle, count, BLOCK=256)
    print_digest("tensors", *tensors)


main()
