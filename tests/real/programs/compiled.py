"""torch.compile: one graph of an MLP, default settings."""
from _real import mlp, out, rows, torch

model = torch.compile(mlp())
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
