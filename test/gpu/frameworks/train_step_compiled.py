"""The shared training step (train_step.py), its model compiled by torch.compile.

    python train_step_compiled.py FOLDER_OF_TRAIN_STEP [steps, default 20] [mode, default "default"]
"""
import sys

from torch import nn


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import train_step

    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    mode = sys.argv[3] if len(sys.argv) > 3 else "default"

    # The model goes to the GPU as a whole, its inner Sequentials with it: so this compiles the whole model once.
    def cuda(self):
        nn.Module.cuda(self)
        self.compile(mode=mode)
        return self

    nn.Sequential.cuda = cuda
    train_step.main(steps)


if __name__ == "__main__":  # Inductor's workers may import this file
    main()
