"""Every way of looking at, or storing into, a tensor whose bytes have not been read yet: deferred_bytes.py OUT
read|write PTH. Each gets a weight that nothing has touched."""
import copy
import io
import os
import socket
import threading

import torch

from _models import mlp, rows
from _record import begin

record, (what, path) = begin()
model = mlp()
model.load_state_dict(torch.load(path))
weights = [layer.weight for layer in model if isinstance(layer, torch.nn.Linear)]
fresh = iter(weights)


def sent(weight):
    ours, theirs = socket.socketpair()
    got = bytearray()

    def receive():
        while part := theirs.recv(1 << 20):
            got.extend(part)

    thread = threading.Thread(target=receive)
    thread.start()
    ours.sendall(memoryview(weight.detach().numpy()).cast("B"))
    ours.close()
    thread.join()
    return bytes(got)


def saved(weight):
    buffer = io.BytesIO()
    torch.save({"w": weight}, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()))["w"]


def to_file(weight):
    weight.detach().numpy().tofile("weight.bin")
    with open("weight.bin", "rb") as file:
        return file.read()


def in_child(weight):
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        with os.fdopen(theirs, "wb") as out:
            out.write(weight.detach().numpy().tobytes())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        got = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return got


def in_thread(weight):
    got = []
    thread = threading.Thread(target=lambda: got.append(weight.detach().numpy().tobytes()))
    thread.start()
    thread.join()
    return got[0]


def resized(weight):
    flat = weight.detach()
    flat.resize_(1024, 1025)
    return flat.reshape(-1)[:1024 * 1024].clone()


def replaced(weight):
    weight.data = torch.ones(3, 3)
    return weight.detach()


def stepped(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.5).step()
    weight.grad = None
    return weight.detach()


def stored(weight):
    weight.detach().numpy()[5, 7] = 3.5
    return weight.detach()


def added(weight):
    with torch.no_grad():
        return weight.add_(1)


def read_into(weight):
    """The head from elsewhere, the rest from the checkpoint."""
    memory = memoryview(weight.detach().numpy()).cast("B")
    with open(path, "rb") as file:
        # Where the storage is: its first bytes, which are no others.
        head = bytes(memory[:64])
        data = file.read()
        at = data.find(head)
        assert at > 0
        memory[:4096] = bytes(4096)
        file.seek(at + 4096)
        assert file.raw.readinto(memory[4096:]) == len(memory) - 4096
    return weight.detach()


READS = {"print": lambda w: str(w).encode(), "numpy": lambda w: w.detach().numpy().tobytes(),
         "tolist": lambda w: str(w[3].tolist()).encode(), "item": lambda w: str(w[1000, 1000].item()).encode(),
         "clone": lambda w: w.detach().clone(), "save": saved, "tofile": to_file, "socket": sent, "fork": in_child,
         "deepcopy": lambda w: copy.deepcopy(w).detach(), "thread": in_thread, "sum": lambda w: w.detach().sum(),
         "transposed": lambda w: w.detach().t().contiguous(), "double": lambda w: w.detach().double()}
WRITES = {"add": added, "numpy": stored, "step": stepped, "resize": resized, "data": replaced, "head": read_into}
for name, act in (READS if what == "read" else WRITES).items():
    weight = next(fresh)
    got = act(weight)
    (record.tensor if torch.is_tensor(got) else record.data)(name, got)
    if name not in ("resize", "data"):
        record.tensor(f"{name} after", weight)
kept = [layer for layer in model if not isinstance(layer, torch.nn.Linear) or layer.weight.shape == (1024, 1024)]
with torch.no_grad():
    for i in range(3):
        record.tensor(f"output{i}", torch.nn.Sequential(*kept)(rows(i)))
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
for name, tensor in torch.load(io.BytesIO(buffer.getvalue())).items():
    record.tensor(f"saved {name}", tensor)
record.save()
