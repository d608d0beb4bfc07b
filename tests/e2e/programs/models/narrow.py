"""A model of many layers of 100 KiB: narrow.py OUT PATH save|load."""
import torch

from _models import mlp, rows
from _record import begin

record, (path, what) = begin()
torch.manual_seed(1 if what == "load" else 7)
model = mlp(width=160, depth=400)
if what == "save":
    torch.save(model.state_dict(), path)
else:
    model.load_state_dict(torch.load(path))
    with torch.no_grad():
        record.tensor("output", model(rows(0, width=160)))
record.check("reached", True)
record.save()
