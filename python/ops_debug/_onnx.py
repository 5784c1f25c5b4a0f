"""ONNX models through ONNX Runtime, or, without it, through the reference evaluator of the onnx package."""

import numpy

from ops_debug import _arrays
from ops_debug._arrays import Cannot

# ONNX Runtime's names of element types.
TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(bool)": "bool",
}


def _dtype(text):
    return TYPES.get(text, text[len("tensor(") : -1])


class _Runtime:
    def __init__(self, runtime, path):
        self.session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs = [(i.name, list(i.shape), _dtype(i.type)) for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.description = "ONNX Runtime %s on the CPU" % runtime.__version__

    def run(self, feeds):
        return self.session.run(None, feeds)


class _Reference:
    def __init__(self, onnx, path):
        from onnx.reference import ReferenceEvaluator

        model = onnx.load(path)
        self.evaluator = ReferenceEvaluator(model)
        weights = {weight.name for weight in model.graph.initializer}
        self.inputs = []
        for entry in model.graph.input:
            if entry.name in weights:
                continue
            kind = entry.type.tensor_type
            shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
            self.inputs.append((entry.name, shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name))
        self.outputs = [entry.name for entry in model.graph.output]
        self.description = "onnx %s, reference evaluator" % onnx.__version__

    def run(self, feeds):
        return self.evaluator.run(None, feeds)


class Model:
    def __init__(self, path):
        self.spec = path
        self.source = path
        self.arrays = _arrays.Numpy()
        self.engine = self._open(path)

    @staticmethod
    def _open(path):
        try:
            import onnxruntime
        except ImportError:
            onnxruntime = None
        if onnxruntime is not None:
            return _Runtime(onnxruntime, path)
        try:
            import onnx
        except ImportError:
            raise Cannot("%s needs the package onnxruntime (or onnx): pip install onnxruntime" % path) from None
        return _Reference(onnx, path)

    def description(self):
        return "%s, %s" % (self.spec, self.engine.description)

    def describe(self, question):
        given = question.get("inputs", [])
        by_name = {entry["name"]: entry["shape"] for entry in given if entry.get("name")}
        inputs = []
        for i, (name, shape, dtype) in enumerate(self.engine.inputs):
            asked = by_name.get(name) or (given[i]["shape"] if i < len(given) else None)
            free = any(not isinstance(size, int) for size in shape)
            if asked is None and free:
                raise ValueError("the shape of input %s is %s: pass --input-shape once per input" % (name, shape))
            inputs.append({"name": name, "shape": asked or shape, "dtype": dtype})
        return {"inputs": inputs, "attributes": question.get("attributes", {}), "gradients": False}

    def answer(self, inputs, attributes, float64, cotangents, names=()):
        """Computes in the model's own types, whatever was asked for; `float64` only widens the answer."""
        if cotangents is not None:
            raise Cannot("%s has no gradients: an ONNX model is evaluated forwards only" % self.spec)
        known = [name for name, _, _ in self.engine.inputs]
        if len(inputs) != len(known):
            raise ValueError("%d inputs are given, the model takes %s" % (len(inputs), ", ".join(known)))
        by_name = {tensor.name: tensor for tensor in inputs}
        if set(by_name) != set(known):
            by_name = dict(zip(known, inputs))
        feeds = {}
        for name, _, dtype in self.engine.inputs:
            feeds[name] = self.arrays.array(by_name[name], False).astype(dtype, copy=False)
        outputs = []
        for i, array in enumerate(self.engine.run(feeds)):
            array = numpy.asarray(array)
            if float64 and array.dtype.kind == "f":
                array = array.astype(numpy.float64)
            name = names[i] if i < len(names) else self.engine.outputs[i]
            outputs.append(self.arrays.tensor(name, array))
        return outputs, {}
