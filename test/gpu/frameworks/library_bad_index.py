"""Kernels of libraries, of which there is only machine code, fed an index or a size that they do not check.

    python library_bad_index.py embedding|sparse|cublas right|wrong

embedding  the gradient of an embedding table of 1000 rows, for row 1000
sparse     a sparse matrix whose column index is one too large, times a dense one (cuSPARSE)
cublas     copying 1001 elements into 1000 (cuBLAS, called as a C library)
"""
import ctypes
import sys

import torch
from digest import print_digest


def in_the_middle(*shape):
    """A tensor of this shape with neighbours of the same size on both sides."""
    neighbours = [torch.zeros(*shape, device="cuda") for _ in range(9)]
    return neighbours[4], neighbours


def embedding(wrong: bool):
    indices = torch.tensor([3, 5, 999, 1000 if wrong else 7], device="cuda")
    gradient = torch.ones(4, 1, device="cuda")
    place, neighbours = in_the_middle(1000, 1)
    del place, neighbours[4]  # the gradient table takes its place
    return [torch.ops.aten.embedding_dense_backward(gradient, indices, 1000, -1, False), *neighbours]


def sparse(wrong: bool):
    dense, neighbours = in_the_middle(100, 40)
    dense.copy_(torch.arange(4000, device="cuda").view(100, 40))
    rows = torch.tensor([0, 1, 2, 3], device="cuda", dtype=torch.int32)
    columns = torch.tensor([5, 99, 100 if wrong else 50], device="cuda", dtype=torch.int32)
    matrix = torch.sparse_csr_tensor(rows, columns, torch.ones(3, device="cuda"), (3, 100), check_invariants=False)
    result = matrix @ dense
    return [result[:2] if wrong else result]


def cublas(wrong: bool):
    target, neighbours = in_the_middle(10, 100)
    source = torch.arange(1024, device="cuda", dtype=torch.float32)
    library = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcublas.so" in line))
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    status = library.cublasScopy_v2(handle, 1000 + wrong, ctypes.c_void_p(source.data_ptr()), 1,
                                    ctypes.c_void_p(target.data_ptr()), 1)
    print("status", status)
    return neighbours


torch.cuda.init()
print_digest(sys.argv[1], *{"embedding": embedding, "sparse": sparse, "cublas": cublas}[sys.argv[1]](sys.argv[2] == "wrong"))
