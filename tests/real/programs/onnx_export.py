"""torch.onnx: a model's file, and its bytes."""
import onnx
from _real import mlp, np, out, rows, torch

torch.onnx.export(mlp(depth=8), (rows(),), "net.onnx", dynamo=True, verbose=False)
model = onnx.load("net.onnx")
weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
out("weights", [np.ascontiguousarray(weights[name]) for name in sorted(weights)])
