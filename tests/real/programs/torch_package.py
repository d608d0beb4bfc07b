"""torch.package: a module in a package of its own, and back."""
from _real import mlp, out, rows, torch

with torch.package.PackageExporter("net.pt") as exporter:
    exporter.extern(["torch.**"])
    exporter.save_pickle("net", "net.pkl", mlp())
model = torch.package.PackageImporter("net.pt").load_pickle("net", "net.pkl")
with torch.no_grad():
    for i in range(3):
        out(f"out{i}", model(rows(i)))
