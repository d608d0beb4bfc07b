"""numpy views of weights: taken before, between and inside inferences, read and written through, outliving the model."""
import hashlib

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, _ = begin()
model = mlp()
linears = [m for m in model if isinstance(m, nn.Linear)]
early = [m.weight.detach().numpy() for m in linears]
during = {}


def take(module, inputs):
    """A forward pre-hook: the view is taken while other layers of the model are in the pool."""
    for k in (0, 5, 23):
        during.setdefault((linears.index(module), k), linears[k].weight.detach().numpy())


hook = linears[10].register_forward_pre_hook(take)
with torch.no_grad():
    for i in range(4):
        record.tensor(f"output{i}", model(rows(i)))
    hook.remove()
    late = [m.weight.detach().numpy() for m in linears]
    for i in range(4, 8):
        record.tensor(f"output{i}", model(rows(i)))
        early[i][i * 10, :] = 0.5
        late[i + 4][:, 3] *= 2
        during[(10, 5)][1] -= 0.25
    for i in range(8, 11):
        record.tensor(f"output{i}", model(rows(i)))
for name, views in (("early", early), ("late", late), ("during", list(during.values()))):
    for k, view in enumerate(views):
        record.data(f"{name}{k}", view)
kept = early[7][::2]
del early, late, during, model, linears, take, hook, view, views
record.value("outlives the model", hashlib.sha256(kept.tobytes()).hexdigest())

# Weights that are overwritten from their own memory, which numpy's array hides from PyTorch: what is read has been written to.
model = mlp()
threads = torch.get_num_threads()
torch.set_num_threads(1)  # several read and write in any order
with torch.no_grad():
    for i in range(2):
        record.tensor(f"own{i}", model(rows(i)))
    for k in (0, 10, 23):
        weight = [m for m in model if isinstance(m, nn.Linear)][k].weight.data
        array = weight.numpy()
        weight.copy_(torch.from_numpy(array.T))
        record.tensor(f"transposed{k}", weight)
        model(rows(0))
        weight.copy_(torch.from_numpy(array.reshape(-1)[1:1025]).expand(1024, 1024))
        record.tensor(f"shifted{k}", weight)
        record.tensor(f"after shifted{k}", model(rows(0)))
torch.set_num_threads(threads)
del model, weight, array

# The other way round: a weight that lives in numpy's memory.
import numpy as np

arrays = [np.random.default_rng(k).standard_normal((1024, 1024), dtype=np.float32) for k in range(8)]
with torch.no_grad():
    for i in range(3):
        x = rows(i)
        for array in arrays:
            x = torch.tanh(x @ torch.from_numpy(array))
        record.tensor(f"from numpy{i}", x)
record.save()
