"""The jitted gradient of a small network in JAX, a few steps of descent."""
import jax
import jax.numpy as jnp
from digest import print_digest


def loss(parameters, x, y):
    for weights, bias in parameters[:-1]:
        x = jax.nn.gelu(x @ weights + bias)
    weights, bias = parameters[-1]
    return jnp.mean((jax.nn.softmax(x @ weights + bias) - y) ** 2)


@jax.jit
def step(parameters, x, y):
    value, gradient = jax.value_and_grad(loss)(parameters, x, y)
    return jax.tree.map(lambda p, g: p - 0.5 * g, parameters, gradient), value


def main() -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    widths = (100, 257, 64, 10)
    parameters = [(jax.random.normal(key, (a, b)) / a**0.5, jnp.zeros(b)) for key, a, b in zip(keys, widths, widths[1:])]
    x = jax.random.normal(keys[3], (300, 100))
    y = jax.nn.one_hot(jax.random.randint(keys[4], (300,), 0, 10), 10)
    for _ in range(5):
        parameters, value = step(parameters, x, y)
    print(f"loss {float(value):.6f}")
    print_digest("weights", *[jax.device_get(array) for pair in parameters for array in pair])


main()
