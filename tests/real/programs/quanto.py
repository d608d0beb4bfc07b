"""optimum-quanto: weights of 8 bits, frozen."""
from _real import mlp, out, rows, torch
from optimum.quanto import freeze, qint8, quantize

model = mlp()
quantize(model, weights=qint8)
freeze(model)
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
