"""Work under torch.profiler: Kineto wants the GPU's tracing interface for itself."""
import torch
from digest import print_digest
from torch.profiler import ProfilerActivity, profile


def main() -> None:
    x = torch.linspace(0, 1, 100 * 100, device="cuda").view(100, 100)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(3):
            x = torch.softmax(x @ x, dim=1)
        torch.cuda.synchronize()
    print_digest("x", x)
    names = " ".join(event.key for event in recorded.key_averages())
    print("saw the softmax call:", "aten::softmax" in names)


main()
