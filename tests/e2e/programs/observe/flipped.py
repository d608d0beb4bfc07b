"""Loads a checkpoint that is larger than the budget, and computes; then something happens to its store, and it computes again:
flipped.py OUT bytes|cut|emptied|replaced|removed|closed. Its bytes change on the disk; it is cut in the middle, or emptied; another
file takes its name; it has none any more; nobody may read it."""
import glob
import os
import sys

import torch

from _record import begin

record, (what,) = begin()
layers = 12
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(layers)])
path = os.path.join(os.path.dirname(sys.argv[1]), "model.pth")


def invert(store):
    """More than the budget holds: the plan may keep any weight, and what it keeps is not read again."""
    with open(store, "r+b") as f:
        f.seek(16 << 20)
        held = f.read(24 << 20)
        f.seek(16 << 20)
        f.write(held.translate(bytes(range(255, -1, -1))))
        os.fsync(f.fileno())


def replace(store):
    with open(f"{store}.new", "wb") as f:
        f.write(b"another" * 1000)
    os.rename(f"{store}.new", store)


happens = {"bytes": invert, "cut": lambda store: os.truncate(store, 16 << 20), "emptied": lambda store: os.truncate(store, 0),
           "replaced": replace, "removed": os.unlink, "closed": lambda store: os.chmod(store, 0)}
torch.manual_seed(1)
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.02)
torch.save(model.state_dict(), path)
model.load_state_dict(torch.load(path))
x = torch.ones(1, 1024)
with torch.no_grad():
    for _ in range(5):
        y = model(x)
    print("computed", flush=True)
    for store in glob.glob(os.environ.get("SWAPNET_STORE", "/nowhere") + "/*.swnstore"):
        happens[what](store)
    for _ in range(5):
        y = model(x)
    print("computed", flush=True)
record.tensor("y", y)
record.save()
