"""A captured graph of torch.cuda.graphs, replayed.

    python torch_graph.py right|deleted|emptied|triton

deleted  the input's tensor is deleted after capture: its block lies free in the pool when the graph reads it
emptied  the same, and the pool gives its segment back to the driver
triton   like "deleted", read by a Triton kernel
"""
import sys

import torch
import triton
import triton.language as tl
from digest import print_digest


@triton.jit
def add_one(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < count) + 1, mask=i < count)  # planted


def main() -> None:
    what = sys.argv[1]
    x = torch.full((3000, 1111), 2.0, device="cuda")  # larger than 10 MiB: a segment of its own
    y, z = torch.zeros_like(x), torch.zeros_like(x)

    def work():
        if what in ("triton", "right"):
            add_one[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        if what != "triton":
            torch.mul(x, 3, out=z)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    print_digest("first", y, z)
    if what == "right":
        x.fill_(5)
    else:
        del x
        if what == "emptied":
            torch.cuda.empty_cache()
    graph.replay()
    torch.cuda.synchronize()
    print_digest("second", y, z)


main()
