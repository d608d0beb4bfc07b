#!/usr/bin/env python3
"""The two programs that demo_serve.py starts.

models REPOSITORY SAMPLES NAME...: makes a model repository of torchvision networks as TorchScript files with random
weights, and what each answers alone in plain PyTorch, NAME.in and NAME.out, raw floats. Prints name and bytes of each.

client PORT SAMPLES ROUNDS NAME...: sends requests by tritonclient, one model after the other in turns, and prints a line
of JSON for each: the model, the seconds, and whether the answer has the bits of NAME.out.
"""
import json
import pathlib
import sys
import time


def models(repository, samples, *names):
    import torch
    import torchvision
    for name in names:
        torch.manual_seed(1)
        file = pathlib.Path(repository) / name / "1" / "model.pt"
        file.parent.mkdir(parents=True, exist_ok=True)
        image = torch.randn(1, 3, 224, 224)
        model = getattr(torchvision.models, name)().eval()
        torch.nn.init.normal_(list(model.parameters())[-2], std=0.02)  # some heads begin as zeros, as would all outputs
        with torch.no_grad():
            torch.jit.trace(model, image, check_trace=False).save(str(file))
            del model
            answer = torch.jit.load(str(file)).eval()(image)
        for end, tensor in (("in", image), ("out", answer)):
            (pathlib.Path(samples) / f"{name}.{end}").write_bytes(tensor.numpy().tobytes())
        print(name, file.stat().st_size, flush=True)


def client(port, samples, rounds, *names):
    import numpy
    import tritonclient.http as triton
    with triton.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=300, connection_timeout=300) as server:
        inputs, wanted = {}, {}
        for name in names:
            image = numpy.fromfile(f"{samples}/{name}.in", numpy.float32).reshape(1, 3, 224, 224)
            described = server.get_model_metadata(name)["inputs"]
            inputs[name] = triton.InferInput(described[0]["name"], image.shape, described[0]["datatype"])
            inputs[name].set_data_from_numpy(image)
            wanted[name] = pathlib.Path(f"{samples}/{name}.out").read_bytes()
        for _ in range(int(rounds)):
            for name in names:
                began = time.monotonic()
                answer = server.infer(name, [inputs[name]])
                seconds = time.monotonic() - began
                output = answer.get_response()["outputs"][0]["name"]
                print(json.dumps({"model": name, "seconds": seconds,
                                  "same": answer.as_numpy(output).tobytes() == wanted[name]}), flush=True)


if __name__ == "__main__":
    {"models": models, "client": client}[sys.argv[1]](*sys.argv[2:])
