#!/usr/bin/env python3
"""Save a checkpoint with random weights, as training would have left one."""
import sys

import torch
import torchvision


def main():
    name, path = sys.argv[1:]
    torch.manual_seed(1)
    torch.save(getattr(torchvision.models, name)(weights=None).state_dict(), path)


if __name__ == "__main__":
    main()
