"""DataLoader workers (forked) whose data set computes with the model's weights."""
import torch
from torch.utils.data import DataLoader, Dataset

from _models import mlp, rows
from _record import begin

record, _ = begin()
model = mlp()
weights = [p.detach() for p in model.parameters() if p.dim() == 2]


class FromWeights(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        """A whole weight summed as integers, and a row of another."""
        bits = weights[i].view(torch.int32).to(torch.int64).sum().reshape(1)
        return weights[-i - 1][i] * 1.0, bits


with torch.no_grad():
    for epoch in range(2):
        model(rows(epoch))
        loader = DataLoader(FromWeights(), batch_size=4, num_workers=2, multiprocessing_context="fork")
        for k, (batch, bits) in enumerate(loader):
            record.tensor(f"batch{epoch}.{k}", batch)
            record.tensor(f"bits{epoch}.{k}", bits)
            record.tensor(f"output{epoch}.{k}", model(batch))
record.save()
