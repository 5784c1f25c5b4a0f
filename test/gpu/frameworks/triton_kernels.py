"""Matrix product, softmax and attention in Triton, on torch tensors."""
import torch
import triton
import triton.language as tl
from digest import print_digest


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        inner = k * BK + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        right = tl.load(b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def softmax_kernel(x, y, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    values = tl.load(x + row * width + columns, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * width + columns, values / tl.sum(values, axis=0), mask=inside)


@triton.jit
def attention_kernel(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + depth[None, :], mask=rows[:, None] < length, other=0.0)
    greatest = tl.full((BM,), -float("inf"), dtype=tl.float32)
    divisor = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, length, BN):
        columns = start + tl.arange(0, BN)
        inside = columns < length
        keys = tl.load(k + base + columns[None, :] * D + depth[:, None], mask=inside[None, :], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(queries, keys) * scale, -float("inf"))
        new_greatest = tl.maximum(greatest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_greatest[:, None])
        correction = tl.exp(greatest - new_greatest)
        values = tl.load(v + base + columns[:, None] * D + depth[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(weights.to(values.dtype), values, total * correction[:, None])
        divisor = divisor * correction + tl.sum(weights, axis=1)
        greatest = new_greatest
    tl.store(out + base + rows[:, None] * D + depth[None, :], total / divisor[:, None], mask=rows[:, None] < length)


def main() -> None:
    torch.manual_seed(1)
    M, N, K = 500, 700, 300
    a, b = (torch.randn(*shape, device="cuda", dtype=torch.float16) for shape in ((M, K), (K, N)))
    c = torch.empty(M, N, device="cuda")
    matmul_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, c, M, N, K, BM=64, BN=64, BK=32)
    print_digest("matmul", c)

    x = torch.randn(1000, 781, device="cuda")
    y = torch.empty_like(x)
    softmax_kernel[(1000,)](x, y, 781, BLOCK=1024)
    print_digest("softmax", y)

    q, k, v = (torch.randn(8, 500, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty(8, 500, 64, device="cuda")
    attention_kernel[(triton.cdiv(500, 64), 8)](q, k, v, out, 500, 0.125, BM=64, BN=64, D=64)
    print_digest("attention", out)

    reference = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    print("right:", torch.allclose(c, a.float() @ b.float(), rtol=1e-2, atol=1e-2),
          torch.allclose(y, torch.softmax(x, 1), atol=1e-6), torch.allclose(out, reference, atol=1e-2))


main()
