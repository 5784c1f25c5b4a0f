"""Triton kernels on PyTorch tensors, compared with PyTorch on the CPU. Tensors are made on the CPU and copied, because
PyTorch's own kernels are machine code for GPUs, which the CPU device cannot run.

    python triton_kernels.py matmul|softmax|layer_norm|attention|overflow|freed
"""
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def softmax_kernel(x, y, columns, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    values = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * columns + i, powers / tl.sum(powers, axis=0), mask=i < columns)


@triton.jit
def layer_norm_kernel(x, weight, bias, y, columns, epsilon, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    values = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(i < columns, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    w, b = tl.load(weight + i, mask=i < columns), tl.load(bias + i, mask=i < columns)
    tl.store(y + row * columns + i, centred * scale * w + b, mask=i < columns)


@triton.jit
def attention_kernel(q, k, v, out, length, scale, B: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    depth = tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + depth[None, :], mask=rows[:, None] < length, other=0.0)
    highest = tl.full((B,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((B,), dtype=tl.float32)
    mixed = tl.zeros((B, D), dtype=tl.float32)
    for start in range(0, length, B):
        keys = start + tl.arange(0, B)
        key = tl.load(k + keys[:, None] * D + depth[None, :], mask=keys[:, None] < length, other=0.0)
        value = tl.load(v + keys[:, None] * D + depth[None, :], mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale
        scores = tl.where((keys[None, :] <= rows[:, None]) & (keys[None, :] < length), scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        powers = tl.exp(scores - higher[:, None])
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(powers, axis=1)
        mixed = mixed * shrink[:, None] + tl.dot(powers.to(tl.float16), value)
        highest = higher
    tl.store(out + rows[:, None] * D + depth[None, :], mixed / total[:, None], mask=rows[:, None] < length)


@triton.jit
def fill_kernel(y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, 1.0, mask=i < n)  # the planted store


def device_empty(*shape):
    return torch.empty(*shape, device="cuda")


def report(name, got, wanted):
    difference = (got.cpu().double() - wanted.double()).abs().max().item()
    print(f"{name} {'ok' if difference < 2e-2 else 'WRONG'} {difference:.1e}")


def matmul():
    a, b = torch.randn(70, 100, dtype=torch.float16), torch.randn(100, 90, dtype=torch.float16)
    c = device_empty(70, 90)
    matmul_kernel[(3, 3)](a.cuda(), b.cuda(), c, 70, 90, 100, BM=32, BN=32, BK=32)
    report("matmul", c, a.double() @ b.double())


def softmax():
    x = torch.randn(37, 200)
    y = device_empty(37, 200)
    softmax_kernel[(37,)](x.cuda(), y, 200, B=256)
    report("softmax", y, x.softmax(dim=1))


def layer_norm():
    x, weight, bias = torch.randn(20, 300), torch.randn(300), torch.randn(300)
    y = device_empty(20, 300)
    layer_norm_kernel[(20,)](x.cuda(), weight.cuda(), bias.cuda(), y, 300, 1e-5, B=512)
    report("layer_norm", y, torch.nn.functional.layer_norm(x, (300,), weight, bias))


def attention():
    q, k, v = (torch.randn(75, 32, dtype=torch.float16) for _ in range(3))
    out = device_empty(75, 32)
    attention_kernel[(3,)](q.cuda(), k.cuda(), v.cuda(), out, 75, 32**-0.5, B=32, D=32)
    wanted = torch.nn.functional.scaled_dot_product_attention(*(t.double()[None] for t in (q, k, v)), is_causal=True)
    report("attention", out, wanted[0])


def overflow():
    tensors = [device_empty(10, 100) for _ in range(3)]
    fill_kernel[(4,)](tensors[1], 1001, B=256)


def freed():
    tensor = device_empty(3, 1000)
    stays = device_empty(7)  # its segment is not given back
    address = tensor.data_ptr()
    del tensor

    class Stale:
        dtype = torch.float32

        def data_ptr(self):
            return address

    fill_kernel[(12,)](Stale(), 3000, B=256)
    return stays


def main(name: str) -> None:
    torch.manual_seed(0)
    globals()[name]()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main(sys.argv[1])
