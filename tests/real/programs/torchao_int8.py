"""torchao: weights of 8 bits."""
from _real import mlp, out, rows, torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

model = mlp(depth=16)
quantize_(model, Int8WeightOnlyConfig())
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
