"""Copies of a model: deepcopy, clone, pickle, to another dtype; a copy must not follow its source nor the reverse."""
import copy
import pickle

import torch

from _models import convnet, image, mlp, rows
from _record import begin

record, _ = begin()
with torch.no_grad():
    model = mlp(depth=16)
    for i in range(3):
        record.tensor(f"first{i}", model(rows(i)))
    twin = copy.deepcopy(model)
    for p in model.parameters():
        p.mul_(0.9)
    for i in range(3):
        record.tensor(f"twin{i}", twin(rows(i)))
        record.tensor(f"changed{i}", model(rows(i)))
    record.module("twin", twin)
    del twin
    again = pickle.loads(pickle.dumps(model))
    record.tensor("unpickled", again(rows(1)))
    del again
    clones = [p.clone() for p in model.parameters()]
    model[0].weight.zero_()
    for k, clone in enumerate(clones):
        record.tensor(f"clone{k}", clone)
    del clones
    record.tensor("double", copy.deepcopy(model).double()(rows(2).double()))
    network = convnet(depth=8).to(memory_format=torch.channels_last)
    for i in range(3):
        record.tensor(f"channels last{i}", network(image(i)))
record.save()
