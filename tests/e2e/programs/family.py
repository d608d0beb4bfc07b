"""A DNN that becomes something else when it is told to on standard input: family.py REPORT.

"exec COMMAND...": becomes that. "fork": a child computes the same, and waits. Any other line ends it. REPORT gets the
process and the bits of its inferences, the child's REPORT.child.
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
    bits = set()
    with torch.inference_mode():
        for _ in range(4):
            bits.add(hashlib.sha256(model(data).numpy().tobytes()).hexdigest())
    with open(path + ".new", "w") as f:
        json.dump({"pid": os.getpid(), "bits": sorted(bits)}, f)
    os.replace(path + ".new", path)


infer(report)
while True:
    words = os.read(0, 1000).decode().split()
    if words[:1] == ["exec"]:
        os.execvp(words[1], words[1:])
    if words != ["fork"]:
        break
    if os.fork() == 0:
        data = data + torch.zeros(1 << 20)[:1]  # memory of its own
        infer(report + ".child")
        os.read(0, 1000)
        break
