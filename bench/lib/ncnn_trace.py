#!/usr/bin/env python3
"""A model as TorchScript, which is what pnnx takes. Run plainly, in a process of its own."""
import argparse

import torch

import models

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=models.NAMES)
    parser.add_argument("--to", required=True, help="file to write")
    args = parser.parse_args()
    with torch.no_grad():
        traced = torch.jit.trace(models.build(args.model), models.make_input(args.model, 0), check_trace=False)
        traced.save(args.to)
