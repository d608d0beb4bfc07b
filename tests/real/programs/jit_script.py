"""torch.jit: scripted, frozen, saved, loaded."""
from _real import mlp, out, rows, torch

torch.jit.save(torch.jit.script(mlp()), "net.ts")
model = torch.jit.load("net.ts")
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
    frozen = torch.jit.freeze(model.eval())
    out("frozen", [frozen(rows(i)) for i in range(3)])
