"""What once made a program exceed its budget, or write to the disk what was there already: over_budget.py OUT SCENARIO
DIRECTORY."""
import os
import time

import torch
from torch.nn.functional import linear

from _record import anonymous_bytes, begin

record, (scenario, directory) = begin()
torch.set_num_threads(1)
torch.set_grad_enabled(False)
WIDTH = 2048  # 16 MiB a layer


def rows_then_whole():
    """A tensor larger than the budget, whose rows were used as weights, is written to in place as a whole."""
    flat, x = torch.randn(8 * WIDTH * WIDTH), torch.ones(2, WIDTH)
    for part in flat.view(8, WIDTH, WIDTH):
        record.tensor(f"rows at {part.storage_offset()}", linear(x, part))
    flat.mul_(0.999)
    record.tensor("written", flat)


def run(layers, x):
    for layer in layers.values():
        x = linear(x, layer) / 45
    return x


def replaced():
    """A loaded weight makes way for a new tensor while all of the budget has a use, and everything is saved."""
    from safetensors.torch import load_file, save_file
    path = os.path.join(directory, "model.safetensors")
    save_file({f"l{i}": torch.randn(WIDTH, WIDTH) for i in range(8)}, path)
    layers, x = load_file(path), torch.randn(4, WIDTH)
    for i in range(4):
        record.tensor(f"before {i}", run(layers, x))
    layers["l0"] = layers["l0"] * 2
    for i in range(4):
        record.tensor(f"after {i}", run(layers, x))
    save_file(layers, path + "2")
    for name, layer in load_file(path + "2").items():
        record.tensor(name, layer)


def make():
    """What idle_model loads."""
    torch.save({f"l{i}": torch.randn(WIDTH, WIDTH) for i in range(6)}, os.path.join(directory, "idle.pth"))
    record.value("made", True)


def idle_model():
    """One model has computed and is idle, clean and loaded from a file, while the next one is made and used."""
    idle, x = torch.load(os.path.join(directory, "idle.pth")), torch.randn(4, WIDTH)
    for i in range(8):
        record.tensor(f"idle {i}", run(idle, x))
    busy = {f"l{i}": torch.full((WIDTH, WIDTH), i / WIDTH) for i in range(2)}
    for i in range(8):
        record.tensor(f"busy {i}", run(busy, x))


def made_anew():
    """96 MiB, each time in new tensors: what leaves memory is written to new places."""
    tensors = [torch.full((WIDTH, WIDTH // 4), float(i)) for i in range(24)]
    for _ in range(8):
        tensors = [tensor * 0.999 for tensor in tensors]
    for i, tensor in enumerate(tensors):
        record.tensor(f"{i}", tensor)


def written_aside():
    """96 MiB, updated by numpy in place, as a compiled optimizer updates its state: no operator ever uses them."""
    tensors = [torch.full((WIDTH, WIDTH // 4), float(i)) for i in range(24)]
    layer, x = torch.eye(WIDTH), torch.ones(2, WIDTH)
    for _ in range(3):
        for tensor in tensors:
            array = tensor.numpy()
            array += 1
            linear(x, layer)
    found = []
    for _ in range(150):  # a look now and then, and rarely where the last ones have found nothing
        linear(x, layer)
        time.sleep(0.02)
        found.append(anonymous_bytes())
    record.notes["anonymous_bytes"] = min(found)
    for i, tensor in enumerate(tensors):
        record.tensor(f"{i}", tensor)


globals()[scenario]()
record.save()
