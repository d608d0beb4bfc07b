"""What net_model.py imports."""
import torch


def network():
    return torch.nn.Sequential(*[layer for _ in range(10) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())])
