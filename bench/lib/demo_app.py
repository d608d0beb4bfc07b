#!/usr/bin/env python3
"""An ordinary torchvision program: load a checkpoint, run a few inferences, print the results."""
import argparse
import hashlib
import time

import torch
import torchvision


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a torchvision model, such as resnet101")
    parser.add_argument("checkpoint", help="its state_dict, saved with torch.save")
    parser.add_argument("--inferences", type=int, default=5)
    args = parser.parse_args()

    model = getattr(torchvision.models, args.model)(weights=None)
    model.load_state_dict(torch.load(args.checkpoint))
    model.eval()

    torch.manual_seed(0)
    outputs = hashlib.sha256()
    for number in range(args.inferences):
        image = torch.rand(1, 3, 224, 224)
        start = time.perf_counter()
        with torch.no_grad():
            output = model(image)
        print(f"inference {number + 1}: {(time.perf_counter() - start) * 1e3:.1f} ms", flush=True)
        outputs.update(output.numpy().tobytes())
    print(f"outputs sha256: {outputs.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
