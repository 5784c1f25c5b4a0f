"""What the operators of this folder compute, in NumPy, whatever the type of the inputs."""
import numpy as np


def nearest(input):
    return input[:, ::4, ::4].copy()


def sample_points(input, points):
    channels, height, width = input.shape
    out = np.zeros((channels, points.shape[1]), input.dtype)
    y = (points[..., 0] + 1) / 2 * height - 0.5
    x = (points[..., 1] + 1) / 2 * width - 0.5
    for channel in range(channels):
        for point in range(points.shape[1]):
            top, left = int(np.floor(y[channel, point])), int(np.floor(x[channel, point]))
            for row in (top, top + 1):
                for col in (left, left + 1):
                    if 0 <= row < height and 0 <= col < width:
                        weight = (1 - abs(y[channel, point] - row)) * (1 - abs(x[channel, point] - col))
                        out[channel, point] += weight * input[channel, row, col]
    return out


def padded_linear(x, weight, used):
    out = x @ weight.T
    out[used:] = 0
    return out


def scale(x, factor=2.0):
    return x * factor


def scale_wrong(x, factor=2.0):
    out = x * factor
    out[..., 3::8] *= 1.5
    return out
