#!/usr/bin/env python3
"""Makes a model repository of torchvision networks as TorchScript files with random weights, and what each answers alone in
plain PyTorch: NAME.in and NAME.out, raw floats, in the second directory. Arguments: the two directories, names."""
import pathlib
import sys

import torch
import torchvision


def main():
    repository, samples = map(pathlib.Path, sys.argv[1:3])
    for name in sys.argv[3:]:
        torch.manual_seed(1)
        file = repository / name / "1" / "model.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        image = torch.randn(1, 3, 224, 224)
        model = getattr(torchvision.models, name)().eval()
        torch.nn.init.normal_(list(model.parameters())[-2], std=0.02)  # some heads begin as zeros, as would all outputs
        with torch.no_grad():
            torch.jit.trace(model, image, check_trace=False).save(str(file))
            del model
            answer = torch.jit.load(str(file)).eval()(image)
        (samples / f"{name}.in").write_bytes(image.numpy().tobytes())
        (samples / f"{name}.out").write_bytes(answer.numpy().tobytes())
        print(name, file.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
