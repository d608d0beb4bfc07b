#!/usr/bin/env python3
"""PORT REPOSITORY [anonymous]: a server that anyone could write. Each model's weights are one memory-mapped file, and the kernel
decides which pages stay; or ordinary memory. Raw floats come by POST /MODEL, and raw floats are the answer.

convert REPOSITORY: writes these files."""
import ctypes
import http.server
import json
import pathlib
import sys
import threading

import numpy
import torch

ALIGNED = 64


def convert(file):
    """The parameters and buffers of a TorchScript model one after the other, and where each is."""
    where = {}
    with file.with_suffix(".weights").open("wb") as to:
        for name, tensor in torch.jit.load(file).state_dict().items():
            to.seek(-(-to.tell() // ALIGNED) * ALIGNED)
            array = tensor.numpy()
            where[name] = (to.tell(), array.dtype.str, array.shape)
            to.write(array.tobytes())
    file.with_suffix(".json").write_text(json.dumps(where))


def with_mapped_weights(file):
    """The TorchScript model, its parameters and buffers slices of one mapping of that file."""
    net = torch.jit.load(file).eval()
    mapped = numpy.memmap(file.with_suffix(".weights"), numpy.uint8, "c")
    for name, (at, kind, shape) in json.loads(file.with_suffix(".json").read_text()).items():
        *path, last = name.split(".")
        owner = net
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, torch.from_numpy(numpy.ndarray(shape, kind, mapped, at)))
    return net


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    models, turn = {}, threading.Lock()

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(b"")

    def do_POST(self):
        image = numpy.frombuffer(self.rfile.read(int(self.headers["Content-Length"])), numpy.float32).copy()
        with self.turn, torch.inference_mode():
            output = self.models[self.path[1:]](torch.from_numpy(image.reshape(1, 3, 224, 224)))
        self.answer(output.numpy().tobytes())

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    for path in pathlib.Path(sys.argv[2]).glob("*/1/model.pt"):
        if sys.argv[1] == "convert":
            convert(path)
        else:
            Handler.models[path.parent.parent.name] = (torch.jit.load(path).eval() if "anonymous" in sys.argv
                                                       else with_mapped_weights(path))
    ctypes.CDLL(None).malloc_trim(0)  # of what torch.jit.load has allocated, and was replaced
    if sys.argv[1] != "convert":
        http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
