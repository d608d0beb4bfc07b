"""torch.export: exported, saved, loaded."""
from _real import mlp, out, rows, torch

torch.export.save(torch.export.export(mlp(), (rows(),)), "net.pt2")
model = torch.export.load("net.pt2").module()
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
