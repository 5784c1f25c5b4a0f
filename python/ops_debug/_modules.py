"""Constructors of torch.nn's modules from what a request knows: attributes and the shapes of input and parameters.

A kernel that is held against torch.nn.Conv2d has an input, a weight and maybe a bias, not in_channels, out_channels and
kernel_size; this is what follows from what."""

import inspect


def _channels_of_convolution(shapes, attributes, dimensions, transposed):
    given = {}
    channels = shapes["input"][1]
    weight = shapes.get("weight")
    given["in_channels"] = channels
    if weight is None:
        given["out_channels"] = attributes.get("out_channels", channels)
        given["kernel_size"] = attributes.get("kernel_size", 3)
    else:
        groups = attributes.get("groups")
        if groups is None:
            groups = 1 if transposed else max(1, channels // max(1, weight[1]))
        given["groups"] = groups
        given["out_channels"] = weight[1] * groups if transposed else weight[0]
        given["kernel_size"] = tuple(weight[2:])
        given["bias"] = "bias" in shapes
    if len(shapes["input"]) != dimensions + 2:
        raise ValueError(
            "input %s must have %d dimensions: batch, channels and %d more"
            % (list(shapes["input"]), dimensions + 2, dimensions)
        )
    return given


def _linear(shapes, attributes):
    weight = shapes.get("weight")
    given = {"in_features": shapes["input"][-1]}
    given["out_features"] = attributes.get("out_features", given["in_features"]) if weight is None else weight[0]
    if weight is not None:
        given["bias"] = "bias" in shapes
    return given


def _norm(shapes, attributes, has_bias):
    weight = shapes.get("weight")
    given = {"normalized_shape": tuple(weight) if weight is not None else shapes["input"][-1]}
    if "normalized_shape" in attributes:
        given["normalized_shape"] = attributes["normalized_shape"]
    if weight is None and len(shapes) > 1:
        raise ValueError("bias without weight")
    if has_bias and weight is not None:
        given["bias"] = "bias" in shapes
    return given


def derived(name, shapes, attributes):
    """Arguments of torch.nn.<name>; `shapes` by input and parameter name."""
    for dimensions in (1, 2, 3):
        if name == "Conv%dd" % dimensions:
            return _channels_of_convolution(shapes, attributes, dimensions, False)
        if name == "ConvTranspose%dd" % dimensions:
            return _channels_of_convolution(shapes, attributes, dimensions, True)
        if name in ("BatchNorm%dd" % dimensions, "InstanceNorm%dd" % dimensions):
            return {"num_features": shapes["input"][1]}
    if name == "Linear":
        return _linear(shapes, attributes)
    if name in ("LayerNorm", "RMSNorm"):
        return _norm(shapes, attributes, name == "LayerNorm")
    if name == "GroupNorm":
        return {"num_channels": shapes["input"][1]}
    if name == "Embedding" and "weight" in shapes:
        return {"num_embeddings": shapes["weight"][0], "embedding_dim": shapes["weight"][1]}
    if name in ("Softmax", "LogSoftmax", "Softmin"):
        return {"dim": -1}
    return {}


def construct(cls, shapes, attributes):
    """The module. TypeError or ValueError: what does not fit, as the constructor says it."""
    parameters = inspect.signature(cls.__init__).parameters
    arguments = {key: value for key, value in derived(cls.__name__, shapes, attributes).items() if key in parameters}
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key, value in attributes.items():
        if key == "training":
            continue
        if key == "bias" and "weight" in shapes and "bias" in arguments:
            continue  # whether there is one is known
        if key not in parameters and not open_ended:
            known = [name for name in parameters if name not in ("self", "device", "dtype")]
            raise ValueError("no attribute '%s'; it has %s" % (key, ", ".join(known) or "none"))
        arguments[key] = value
    module = cls(**arguments)
    module.train(bool(attributes.get("training", False)))
    return module
