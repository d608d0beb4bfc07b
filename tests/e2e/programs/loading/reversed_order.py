"""A checkpoint whose tensors are in the reverse of the order in which they are used: reversed_order.py OUT PATH save|load."""
import torch

from _models import mlp, rows
from _record import begin

record, (path, what) = begin()
torch.manual_seed(1)
model = mlp().eval()
if what == "save":
    torch.save(dict(reversed(list(model.state_dict().items()))), path)
else:
    model.load_state_dict(torch.load(path))
    with torch.no_grad():
        for i in range(8):
            record.tensor(f"output{i}", model(rows(i)))
record.notes["layers"] = [name for name, module in model.named_modules() if list(module.parameters(recurse=False))]
record.check("reached", True)
record.save()
