#!/usr/bin/env python3
"""Sends requests by tritonclient, one model after the other in turns, and prints a line of JSON for each: the model, the
seconds, and whether the answer has the bits of NAME.out. Arguments: port, directory of samples, rounds, names."""
import json
import pathlib
import sys
import time

import numpy
import tritonclient.http as triton


def main():
    port, samples, rounds, names = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    with triton.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=300, connection_timeout=300) as client:
        inputs, wanted = {}, {}
        for name in names:
            image = numpy.fromfile(samples / f"{name}.in", numpy.float32).reshape(1, 3, 224, 224)
            described = client.get_model_metadata(name)["inputs"]
            inputs[name] = triton.InferInput(described[0]["name"], image.shape, described[0]["datatype"])
            inputs[name].set_data_from_numpy(image)
            wanted[name] = (samples / f"{name}.out").read_bytes()
        for _ in range(rounds):
            for name in names:
                began = time.monotonic()
                answer = client.infer(name, [inputs[name]])
                seconds = time.monotonic() - began
                output = answer.get_response()["outputs"][0]["name"]
                print(json.dumps({"model": name, "seconds": seconds,
                                  "same": answer.as_numpy(output).tobytes() == wanted[name]}), flush=True)


if __name__ == "__main__":
    main()
