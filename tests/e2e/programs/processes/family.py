"""A DNN that becomes something else when it is told to on standard input: family.py REPORT.

"exec COMMAND...": becomes that. "fork": a child computes the same, does what the rest of the line says, and waits; so "fork
fork" makes a child of a child. Any other line ends it. REPORT gets the process and the bits of its inferences, the child's
REPORT.child, and its child's REPORT.child.child.
"""
import hashlib
import json
import os
import sys

import torch

report = sys.argv[1]
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(*[m for _ in range(16) for m in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())])
data = torch.randn(4, 1024)


def infer(path):
    global data
    bits = set()
    data = data + torch.zeros(1 << 20)[:1]  # memory of its own, in a child
    with torch.inference_mode():
        for _ in range(4):
            bits.add(hashlib.sha256(model(data).numpy().tobytes()).hexdigest())
    with open(path + ".new", "w") as f:
        json.dump({"pid": os.getpid(), "bits": sorted(bits)}, f)
    os.replace(path + ".new", path)


def obey(words, path):
    """Whether this is the process that was told so."""
    if words[:1] == ["exec"]:
        os.execvp(words[1], words[1:])
    if words[:1] != ["fork"]:
        return False
    if os.fork():
        return True
    infer(path + ".child")
    obey(words[1:], path + ".child")
    os.read(0, 1000)
    os._exit(0)


infer(report)
while obey(os.read(0, 1000).decode().split(), report):
    pass
