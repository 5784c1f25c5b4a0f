"""Two processes of torchrun on one GPU: data-parallel gradients over gloo.

    torchrun --nproc-per-node 2 distributed.py right|wrong      ("wrong": rank 1 writes past a tensor)
"""
import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from digest import print_digest


@triton.jit
def fill(out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, i * 0.5, mask=i < count)  # planted


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.cuda.set_device(0)
    model = torch.nn.Linear(40, 3, device="cuda")
    with torch.no_grad():
        model.weight.copy_(torch.linspace(-1, 1, 120).view(3, 40))
        model.bias.zero_()
    x = torch.empty(8, 40, device="cuda")
    fill[(2,)](x, x.numel() + (rank == 1 and sys.argv[1] == "wrong"), BLOCK=256)
    model(x / 100 + rank).pow(2).mean().backward()
    dist.all_reduce(model.weight.grad)
    if rank == 0:
        print_digest("gradient", model.weight.grad)
    dist.destroy_process_group()


main()
