#!/usr/bin/env python3
"""PORT REPOSITORY LRU: LitServe with all models loaded, or, where LRU is not 0, with the last LRU that were asked for."""
import base64
import functools
import pathlib
import sys

import litserve
import numpy
import torch


class Models(litserve.LitAPI):
    def __init__(self, repository, lru):
        super().__init__()
        self.repository, self.lru = pathlib.Path(repository), lru

    def setup(self, device):
        files = {path.name: path / "1" / "model.pt" for path in self.repository.iterdir()}
        load = functools.lru_cache(self.lru or None)(lambda name: torch.jit.load(files[name]).eval())
        for name in files if not self.lru else ():
            load(name)
        self.load = load

    def decode_request(self, request):
        image = numpy.frombuffer(base64.b64decode(request["data"]), numpy.float32).copy().reshape(1, 3, 224, 224)
        return request["model"], torch.from_numpy(image)

    def predict(self, x):
        with torch.inference_mode():
            return self.load(x[0])(x[1])

    def encode_response(self, output):
        return {"data": base64.b64encode(output.numpy().tobytes()).decode()}


if __name__ == "__main__":
    server = litserve.LitServer(Models(sys.argv[2], int(sys.argv[3])), accelerator="cpu", timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)
