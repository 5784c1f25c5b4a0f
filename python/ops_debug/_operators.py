"""From a name to something that computes: functions, modules and models behind one interface.

An operator has describe(question) and answer(inputs, attributes, float64, cotangents), with `_safetensors.Tensor`s in
and out; answer() gives (outputs, gradients by input name)."""

import importlib
import importlib.util
import inspect
import os
import sys

from ops_debug import _arrays, _modules
from ops_debug._arrays import Cannot

# The same attribute under the names of PyTorch, NumPy and ONNX.
ALIASES = [
    ("axis", "dim"),
    ("keepdims", "keepdim"),
    ("causal", "is_causal"),
    ("eps", "epsilon"),
    ("permutation", "dims"),
]


class BadRequest(Exception):
    """What does not fit together, in one line."""


def _plain(value):
    return tuple(_plain(item) for item in value) if isinstance(value, list) else value


def _alias(name, known):
    for pair in ALIASES:
        if name in pair:
            other = pair[1 - pair.index(name)]
            if other in known:
                return other
    return name


def _signature(function):
    """Parameters by name, None if nobody knows them (functions in C)."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _positional(parameters):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in parameters.values() if parameter.kind in kinds]


def _named_outputs(value, arrays, names):
    """[(name, array)] of whatever a function returned."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (tuple, list)):
        items = list(enumerate(value))
    else:
        items = [(0, value)]
    outputs = []
    for key, item in items:
        if item is None:
            continue
        if not arrays.owns(item):
            raise BadRequest(
                "it returned %s.%s where a %s array was expected"
                % (type(item).__module__, type(item).__name__, arrays.name)
            )
        name = key if isinstance(key, str) else "output%d" % len(outputs)
        if isinstance(key, int) and len(outputs) < len(names):
            name = names[len(outputs)]
        outputs.append((name, item))
    if not outputs:
        raise BadRequest("it returned nothing")
    return outputs


class Function:
    """A callable. `backward`: its gradients by hand, backward(*cotangents, *inputs, **attributes), or None."""

    def __init__(self, spec, function, arrays, backward=None, source=None):
        self.spec = spec
        self.function = function
        self.arrays = arrays
        self.backward = backward
        self.source = source

    def description(self):
        version = ""
        if isinstance(self.arrays, _arrays.Torch):
            version = " %s on the %s" % (self.arrays.torch.__version__, self.arrays.device.upper())
        return "%s, %s%s" % (self.spec, self.arrays.name, version)

    def has_gradients(self):
        return self.backward is not None or isinstance(self.arrays, (_arrays.Torch, _arrays.Jax))

    def describe(self, question):
        attributes = question.get("attributes", {})
        given = question.get("inputs", [])
        parameters = _signature(self.function)
        names = [entry.get("name") or "input%d" % i for i, entry in enumerate(given)]
        if parameters is not None:
            wanted = [p for p in _positional(parameters) if p.name not in attributes]
            required = [p for p in wanted if p.default is p.empty]
            if len(given) == 1 and len(required) > 1:  # one shape stands for all
                given = given * len(required)
            elif len(given) < len(required):
                raise BadRequest(
                    "it takes %s, but %d shapes are given: pass --input-shape once per input"
                    % (", ".join(p.name for p in required), len(given))
                )
            names = [p.name for p in wanted[: len(given)]]
            names += ["input%d" % i for i in range(len(names), len(given))]
        inputs = [
            {"name": name, "shape": entry["shape"], "dtype": entry.get("dtype") or "float32"}
            for name, entry in zip(names, given)
        ]
        return {"inputs": inputs, "attributes": attributes, "gradients": self.has_gradients()}

    def arguments(self, inputs, attributes):
        """(positional, by name) for the call; `inputs`: [(name, array)]."""
        parameters = _signature(self.function)
        attributes = {key: _plain(value) for key, value in attributes.items()}
        if parameters is None:
            return [array for _, array in inputs], attributes
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        by_name = {}
        for key, value in attributes.items():
            name = _alias(key, parameters) if key not in parameters else key
            if name not in parameters and not open_ended:
                raise BadRequest(
                    "it takes no attribute '%s'; its parameters are %s (**attributes would take all)"
                    % (key, ", ".join(parameters) or "none")
                )
            by_name[name] = value
        nameable = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        nameable = [name for name, p in parameters.items() if p.kind in nameable]
        free = [p.name for p in _positional(parameters) if p.name not in by_name]
        positional = [array for _, array in inputs]
        if all(name in nameable for name, _ in inputs):
            by_name.update(inputs)
            positional = []
        elif len(free) >= len(inputs) and all(name in nameable for name in free[: len(inputs)]):
            by_name.update(zip(free, positional))  # an attribute may stand between them
            positional = []
        try:
            inspect.signature(self.function).bind(*positional, **by_name)
        except TypeError as error:
            raise BadRequest(
                "it takes (%s), and %d inputs are given (%s): %s"
                % (", ".join(parameters), len(inputs), ", ".join(name for name, _ in inputs), error)
            ) from None
        return positional, by_name

    def answer(self, inputs, attributes, float64, cotangents, names=()):
        arrays = self.arrays
        values = [(tensor.name, arrays.array(tensor, float64)) for tensor in inputs]
        if cotangents is None:
            positional, by_name = self.arguments(values, attributes)
            outputs = _named_outputs(self.function(*positional, **by_name), arrays, names)
            return [arrays.tensor(name, array) for name, array in outputs], {}
        gradients_of = self.by_hand
        if self.backward is None:
            gradients_of = {_arrays.Torch: self.by_torch, _arrays.Jax: self.by_jax}.get(type(arrays))
        if gradients_of is None:
            raise Cannot(
                "%s has no gradients: define %s_backward(cotangent, *inputs, **attributes) beside it, or write it with "
                "PyTorch or JAX" % (self.spec, getattr(self.function, "__name__", "NAME"))
            )
        floating = [tensor.is_floating() for tensor in inputs]
        cotangents = [arrays.array(cotangent, float64) for cotangent in cotangents]
        outputs, gradients = gradients_of(values, floating, attributes, cotangents, names)
        named = {}
        for (name, _), gradient in zip(values, gradients):
            if gradient is not None:
                named[name] = arrays.tensor("grad." + name, gradient)
        return [arrays.tensor(name, array) for name, array in outputs], named

    def by_hand(self, values, floating, attributes, cotangents, names):
        positional, by_name = self.arguments(values, attributes)
        outputs = _named_outputs(self.function(*positional, **by_name), self.arrays, names)
        parameters = _signature(self.backward) or {}
        kept = {key: _plain(value) for key, value in attributes.items()}
        kept = {_alias(key, parameters) if key not in parameters else key: value for key, value in kept.items()}
        gradients = self.backward(*cotangents, *[array for _, array in values], **kept)
        if not isinstance(gradients, (tuple, list)):
            gradients = [gradients]
        if len(gradients) > len(values):
            raise BadRequest("its backward returned %d gradients for %d inputs" % (len(gradients), len(values)))
        return outputs, [g if f else None for g, f in zip(gradients, floating)]

    def by_torch(self, values, floating, attributes, cotangents, names):
        torch = self.arrays.torch
        values = [(name, array.requires_grad_(f)) for (name, array), f in zip(values, floating)]
        positional, by_name = self.arguments(values, attributes)
        with torch.enable_grad():
            outputs = _named_outputs(self.function(*positional, **by_name), self.arrays, names)
        pairs = [(output, c) for (_, output), c in zip(outputs, cotangents) if getattr(output, "requires_grad", False)]
        if not pairs:
            raise Cannot("%s does not take part in autograd: its outputs have no grad_fn" % self.spec)
        wanted = [array for _, array in values if array.requires_grad]
        directions = [c.to(output.dtype).reshape(output.shape) for output, c in pairs]
        found = torch.autograd.grad([output for output, _ in pairs], wanted, directions, allow_unused=True)
        found = iter(torch.zeros_like(array) if g is None else g for array, g in zip(wanted, found))
        return outputs, [next(found) if f else None for f in floating]

    def by_jax(self, values, floating, attributes, cotangents, names):
        jax = self.arrays.jax
        places = [i for i, f in enumerate(floating) if f]

        def call(*varied):
            current = list(values)
            for place, array in zip(places, varied):
                current[place] = (current[place][0], array)
            positional, by_name = self.arguments(current, attributes)
            return [array for _, array in _named_outputs(self.function(*positional, **by_name), self.arrays, names)]

        outputs, pull_back = jax.vjp(call, *[values[place][1] for place in places])
        found = dict(zip(places, pull_back([c.astype(o.dtype) for o, c in zip(outputs, cotangents)])))
        outputs = _named_outputs(outputs, self.arrays, names)
        return outputs, [found.get(i) for i in range(len(values))]


class ModuleClass(Function):
    """A class of torch.nn: the first inputs go into forward(), the others are its parameters."""

    def __init__(self, spec, cls, arrays, source=None):
        super().__init__(spec, None, arrays, source=source)
        self.cls = cls

    def forward_inputs(self):
        return [p.name for p in _positional(inspect.signature(self.cls.forward).parameters)[1:] if p.default is p.empty]

    def split(self, names, module_parameters):
        """Names of data inputs, and the parameter that each of the others is."""
        known = [name for name in names if name in module_parameters]
        if known:
            return [name for name in names if name not in module_parameters], {name: name for name in known}
        count = max(1, len(self.forward_inputs()))
        return names[:count], dict(zip(names[count:], module_parameters))

    def module(self, shapes, attributes):
        try:
            return _modules.construct(self.cls, shapes, {key: _plain(value) for key, value in attributes.items()})
        except KeyError as error:
            raise BadRequest("the shape of %s is not known" % error) from None
        except (TypeError, ValueError, IndexError) as error:
            raise BadRequest(str(error).replace("__init__()", self.spec)) from None

    def shapes_by_name(self, names, shapes):
        """Inputs under the names that constructors are derived from: input, weight, bias."""
        usual = ["input", "weight", "bias"]
        known = [name for name in names[1:] if name in ("weight", "bias")]
        if known:
            return {name if name in known else "input": shape for name, shape in zip(names, shapes)}
        return dict(zip(usual, shapes))

    def describe(self, question):
        attributes = question.get("attributes", {})
        given = question.get("inputs", [])
        if not given:
            raise BadRequest("pass --input-shape: the shape of its input")
        names = [entry.get("name") or "input%d" % i for i, entry in enumerate(given)]
        module = self.module(self.shapes_by_name(names, [entry["shape"] for entry in given]), attributes)
        parameters = dict(module.named_parameters())
        data, _ = self.split(names, parameters)
        forward = self.forward_inputs() or ["input"]
        dtype = given[0].get("dtype") or "float32"
        inputs = []
        for i, entry in enumerate(given[: len(data)]):
            name = forward[i] if i < len(forward) else names[i]
            inputs.append({"name": name, "shape": entry["shape"], "dtype": entry.get("dtype") or dtype})
        for name, parameter in parameters.items():
            inputs.append({"name": name, "shape": list(parameter.shape), "dtype": dtype})
        return {"inputs": inputs, "attributes": attributes, "gradients": True}

    def answer(self, inputs, attributes, float64, cotangents, names=()):
        torch = self.arrays.torch
        shapes = self.shapes_by_name([t.name for t in inputs], [t.shape for t in inputs])
        module = self.module(shapes, attributes).to(self.arrays.device)
        parameters = dict(module.named_parameters())
        data, role = self.split([tensor.name for tensor in inputs], parameters)
        missing = [name for name in parameters if name not in role.values()]
        if missing:
            raise BadRequest("its parameters %s are not among the inputs" % ", ".join(missing))
        for tensor in inputs:
            wanted = tuple(parameters[role[tensor.name]].shape) if tensor.name in role else None
            if wanted is not None and wanted != tensor.shape:
                raise BadRequest("%s is %s, but must be %s" % (tensor.name, list(tensor.shape), list(wanted)))
        floating = [tensor for tensor in inputs if tensor.is_floating()]
        if floating:
            dtype = torch.float64 if float64 else getattr(torch, floating[0].dtype)
            for buffer_owner in module.modules():
                for key, buffer in list(buffer_owner.named_buffers(recurse=False)):
                    if buffer.is_floating_point():
                        buffer_owner._buffers[key] = buffer.to(dtype)

        def call(*arrays):
            named = dict(zip([tensor.name for tensor in inputs], arrays))
            own = {role[name]: array for name, array in named.items() if name in role}
            return torch.func.functional_call(module, own, tuple(named[name] for name in data))

        inner = Function(self.spec, call, self.arrays)
        return inner.answer(inputs, {}, float64, cotangents, names)


def _framework_of(target, spec):
    """The arrays that a function works on: what its module or its own type says."""
    roots = [spec.partition(":")[0].partition(".")[0]]
    for name in (getattr(target, "__module__", None), type(target).__module__):
        roots.append((name or "").partition(".")[0])
    names = getattr(target, "__globals__", None) or {}
    if not names and callable(getattr(type(target), "__call__", None)):
        names = getattr(type(target).__call__, "__globals__", {})
    used = set()
    for value in names.values():
        owner = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        used.add(str(owner or "").partition(".")[0])
    for framework in ("torch", "jax", "cupy"):
        if framework in roots or framework in used:
            return framework
    return "numpy"


def _arrays_of(framework, spec):
    device = os.environ.get("OPS_DEBUG_PROVIDER_DEVICE", "cpu")
    try:
        if framework == "torch":
            return _arrays.Torch(device)
        return {"jax": _arrays.Jax, "cupy": _arrays.Cupy, "numpy": _arrays.Numpy}[framework]()
    except ImportError as error:
        raise Cannot("%s needs %s: %s" % (spec, framework, error)) from None


def _import(name, spec):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise Cannot(
            "%s needs the package %s, which %s does not have: install it, or pass --python with a Python that has it"
            % (spec, missing or error.name, sys.executable)
        ) from None


def _member(holder, path, spec):
    for part in path.split("."):
        try:
            holder = getattr(holder, part)
        except (AttributeError, RuntimeError) as error:
            public = [name for name in dir(holder) if not name.startswith("_")]
            near = [name for name in public if part.lower() in name.lower() or name.lower() in part.lower()]
            hint = "; near it: %s" % ", ".join(near[:8]) if near else ""
            place = getattr(holder, "__name__", type(holder).__name__)
            text = "%s has no %s%s" % (place, part, hint)
            if not isinstance(error, AttributeError):
                text += " (%s)" % str(error).splitlines()[0]
            raise BadRequest(text) from None
    return holder


def _load_file(path):
    if not os.path.exists(path):
        raise BadRequest("no such file: %s (in %s)" % (path, os.getcwd()))
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    module_spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise Cannot(
            "%s needs the package %s, which %s does not have: install it, or pass --python with a Python that has it"
            % (path, error.name, sys.executable)
        ) from None
    return module


def _dotted(spec):
    """(holder, last name): the longest prefix that is a module, then attributes."""
    parts = spec.split(".")
    holder = _import(parts[0], spec)
    taken = 1
    while taken < len(parts) - 1 and not hasattr(holder, parts[taken]):
        try:
            holder = importlib.import_module(".".join(parts[: taken + 1]))
        except ImportError:
            break
        taken += 1
    for part in parts[taken:-1]:
        holder = _member(holder, part, spec)
    if len(parts) == 1:
        raise BadRequest("it is a module; name a function in it, as %s:FUNCTION" % spec)
    return holder, parts[-1]


def resolve(spec):
    """The operator behind `spec`: FILE.onnx, FILE.py:NAME, MODULE:NAME, or a dotted name."""
    if spec.endswith(".onnx"):
        from ops_debug import _onnx

        return _onnx.Model(spec)
    place, colon, path = spec.rpartition(":")
    source = None
    if colon and place.endswith(".py"):
        holder, source = _load_file(place), place
    elif colon:
        holder = _import(place, spec)
        if path.startswith("torch.ops."):  # the module registered it
            holder, path = _dotted(path)
    else:
        holder, path = _dotted(spec)
    if "." in path:
        before, _, path = path.rpartition(".")
        holder = _member(holder, before, spec)
    target = _member(holder, path, spec)
    if not callable(target):
        raise BadRequest("it is a %s, which cannot be called" % type(target).__name__)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, type) and issubclass(target, torch.nn.Module):
        return ModuleClass(spec, target, _arrays_of("torch", spec), source)
    if isinstance(target, type):
        raise BadRequest("it is a class: name a function, an instance, or a class of torch.nn")
    is_module = torch is not None and isinstance(target, torch.nn.Module)
    framework = "torch" if is_module else _framework_of(target, spec)
    backward = getattr(target, "backward", None) if not is_module else None
    if not callable(backward):
        backward = getattr(holder, path + "_backward", None)
    return Function(spec, target, _arrays_of(framework, spec), backward if callable(backward) else None, source)
