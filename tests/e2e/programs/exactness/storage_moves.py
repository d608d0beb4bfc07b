"""A storage changed under its tensors between and inside inferences: resize_, set_, .data =, several views of one."""
import torch
import torch.nn.functional as F
from torch import nn

from _models import mlp, rows
from _record import begin

record, _ = begin()
model = mlp()
linears = [m for m in model if isinstance(m, nn.Linear)]


def infer(name, passes=2):
    for i in range(passes):
        record.tensor(f"{name}{i}", model(rows(i)))


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def replace_data(module, inputs):
    module.weight.data = module.weight.data.clone()


def grow_and_shrink(module, inputs):
    weight = module.weight.data
    weight.resize_(1536, 1024)
    weight.resize_(1024, 1024)
    module.weight.data = weight


with torch.no_grad():
    infer("learn", 3)
    # set_ to another layer's storage, and back again; between two passes.
    original = linears[2].weight.data
    linears[2].weight.data = torch.empty(0).set_(storage_of(linears[3].weight), 0, (1024, 1024))
    infer("set_")
    linears[2].weight.data = original
    infer("set back")
    # Hooks change the storage of a layer that is just about to run, and of one that has just run.
    hooks = [linears[4].register_forward_pre_hook(replace_data),
             linears[6].register_forward_hook(lambda m, i, o: replace_data(m, i)),
             linears[8].register_forward_pre_hook(grow_and_shrink)]
    infer("hooks", 3)
    for hook in hooks:
        hook.remove()
    # A storage given up: zero bytes, then filled again.
    storage = storage_of(linears[9].weight)
    saved = linears[9].weight.data.clone()
    storage.resize_(0)
    storage.resize_(1024 * 1024 * (4 if hasattr(torch.Tensor, "untyped_storage") else 1))
    linears[9].weight.data.copy_(saved)
    infer("resized storage")
    # Several weights in one storage, as slices.
    joint = torch.cat([m.weight.data.reshape(-1) for m in linears[12:18]])
    for k, m in enumerate(linears[12:18]):
        m.weight.data = joint[k << 20:(k + 1) << 20].view(1024, 1024)
    infer("slices", 3)
    joint[5::1000] += 0.5
    infer("slices written")
    # The last reference dropped while a view lives on.
    view = linears[20].weight.data[10:20]
    linears[20].weight.data = torch.ones(1024, 1024) * 0.001
    infer("dropped")
    record.tensor("view", view)
    # Views of views as weights, transposed and strided.
    for i in range(3):
        record.tensor(f"strided{i}", F.linear(rows(i, width=512), linears[0].weight[:, ::2]))
        record.tensor(f"transposed{i}", rows(i) @ linears[1].weight.t()[:, 5:900])
        record.tensor(f"expanded{i}", (linears[3].weight[:1].expand(4, 1024) * rows(i)))
record.module("model", model)
record.save()
