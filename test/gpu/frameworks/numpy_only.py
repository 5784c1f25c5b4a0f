"""NumPy alone: a tool for GPUs must not touch it."""
import numpy
from digest import print_digest

random = numpy.random.default_rng(0)
a = random.standard_normal((300, 200))
print_digest("svd", numpy.linalg.svd(a, compute_uv=False), a.T @ a)
