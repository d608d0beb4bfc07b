"""torch.ao: dynamic quantization."""
from _real import mlp, nn, out, rows, torch

model = mlp()
out("plain", model(rows()))
small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
for i in range(3):
    out(f"out{i}", small(rows(i)))
