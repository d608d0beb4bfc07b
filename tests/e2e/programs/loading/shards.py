"""A model in many files, none of which is large: shards.py OUT DIRECTORY save|load."""
import pathlib

import torch

from _models import mlp, rows
from _record import begin

record, (directory, what) = begin()
torch.manual_seed(1)
model = mlp().eval()
state = model.state_dict()
shards = {}
for name in state:
    shards.setdefault(name.split(".")[0], []).append(name)
for number, names in shards.items():
    path = pathlib.Path(directory) / f"shard-{number}.pth"
    if what == "save":
        torch.save({name: state[name] for name in names}, path)
    else:
        model.load_state_dict(torch.load(path), strict=False)
if what == "load":
    with torch.no_grad():
        for i in range(3):
            record.tensor(f"output{i}", model(rows(i)))
record.check("reached", True)
record.save()
