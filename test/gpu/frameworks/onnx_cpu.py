"""An ONNX Runtime session on the CPU: no GPU work at all."""
import numpy
import onnx
import onnxruntime
from digest import print_digest
from onnx import TensorProto, helper


def main() -> None:
    random = numpy.random.default_rng(0)
    weights = helper.make_tensor("w", TensorProto.FLOAT, (16, 8), random.standard_normal(128).astype(numpy.float32))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 16))],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, (4, 8))], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    print_digest("z", session.run(None, {"x": random.standard_normal((4, 16)).astype(numpy.float32)})[0])


main()
