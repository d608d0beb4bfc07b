"""Swapped-out weights leaving the process: torch.save, tofile, write, sendfile-like copies, socket sends, pickle."""
import hashlib
import io
import os
import pickle
import socket
import threading

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, _ = begin()
model = mlp()
weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)]


def swap_out(seed):
    """Two passes: afterwards most weights are not in memory."""
    with torch.no_grad():
        for i in range(2):
            record.tensor(f"pass{seed}.{i}", model(rows(seed + i)))


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def received(send):
    """The hash of what `send(socket)` sends."""
    ours, theirs = socket.socketpair()
    result = []

    def receive():
        sha = hashlib.sha256()
        while chunk := theirs.recv(1 << 16):
            sha.update(chunk)
        result.append(sha.hexdigest())

    thread = threading.Thread(target=receive)
    thread.start()
    send(ours)
    ours.close()
    thread.join()
    theirs.close()
    return result[0]


swap_out(0)
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
record.data("torch.save to memory", buffer.getvalue())
del buffer
swap_out(2)
torch.save(model.state_dict(), "model.pth")
record.value("torch.save to a file", file_digest("model.pth"))
swap_out(4)
weights[3].numpy().tofile("weight.bin")
record.value("tofile", file_digest("weight.bin"))
with open("raw.bin", "wb", buffering=0) as raw:
    for weight in weights:
        os.write(raw.fileno(), memoryview(weight.numpy()).cast("B"))
    os.pwritev(raw.fileno(), [memoryview(weights[0].numpy()), memoryview(weights[5].numpy())], 0)
record.value("write", file_digest("raw.bin"))
swap_out(6)
record.value("sendall", received(lambda s: [s.sendall(memoryview(w.numpy()).cast("B")) for w in weights]))
record.value("sendmsg", received(lambda s: s.sendmsg([memoryview(w.numpy()[0]) for w in weights])))
swap_out(8)
record.data("pickle", pickle.dumps(weights[7].numpy()))
record.data("bytes", bytes(memoryview(weights[9].numpy()).cast("B")))
record.module("model", model)
record.save()
