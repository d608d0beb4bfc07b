#!/usr/bin/env python3
"""A model as ONNX with its weights in a file beside it, and as OpenVINO's own form. Run plainly, in a process of its own."""
import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "lib"))

import models  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=models.NAMES)
    parser.add_argument("--to", required=True, type=Path, help="an empty directory")
    args = parser.parse_args()
    model, example = models.build(args.model), models.make_input(args.model, 0)
    with torch.no_grad():
        torch.onnx.export(model, (example,), str(args.to / "model.onnx"), dynamo=True, external_data=True,
                          input_names=["in0"], output_names=["out0"], verbose=False)
        import openvino
        openvino.save_model(openvino.convert_model(model, example_input=example), str(args.to / "model.xml"),
                            compress_to_fp16=False)


if __name__ == "__main__":
    main()
