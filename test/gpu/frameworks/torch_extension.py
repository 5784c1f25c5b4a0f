"""A CUDA extension made by torch.utils.cpp_extension.load_inline; with "wrong" its kernel writes one element past a
tensor in the middle of a pool segment. TORCH_CUDA_ARCH_LIST decides whether it carries PTX.

    python torch_extension.py right|wrong
"""
import sys

import torch
from digest import print_digest
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
__global__ void scale_kernel(const float* in, float* out, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = factor * (i + 1);
  out[i] = value;  // planted
}
void scale(torch::Tensor in, torch::Tensor out, double factor, int64_t count) {
  scale_kernel<<<(count + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(in.data_ptr<float>(), out.data_ptr<float>(),
                                                                               float(factor), int(count));
}
"""


def main() -> None:
    extension = load_inline("scale_extension", cpp_sources="void scale(torch::Tensor, torch::Tensor, double, int64_t);",
                            cuda_sources=CUDA, functions=["scale"], extra_cuda_cflags=["-lineinfo"])
    tensors = [torch.ones(7, 131, device="cuda") for _ in range(9)]
    middle = tensors[4]
    extension.scale(tensors[0], middle, 0.25, middle.numel() + (sys.argv[1] == "wrong"))
    print_digest("tensors", *tensors, middle @ middle.T)


main()
