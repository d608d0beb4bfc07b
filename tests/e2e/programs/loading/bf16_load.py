"""A float32 state_dict loaded into a bfloat16 model, and a bfloat16 model of its own."""
import torch

from _models import mlp, rows
from _record import begin

record, _ = begin()
source = mlp(depth=16)
torch.save(source.state_dict(), "float32.pth")
with torch.no_grad():
    record.tensor("float32", source(rows(0)))
    del source
    model = mlp(depth=16).to(torch.bfloat16)
    model.load_state_dict(torch.load("float32.pth"))
    for i in range(4):
        record.tensor(f"output{i}", model(rows(i).to(torch.bfloat16)))
record.module("model", model)
record.save()
