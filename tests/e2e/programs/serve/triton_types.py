"""Sends every element type with tritonclient's HTTP clients, and compares what comes back with what was sent: as binary
data and as JSON, compressed and not, awaited and not. argv: the record, the port, MODEL:INPUT:OUTPUT:TYPE of models that
give back what they get. Runs without PyTorch."""
import asyncio
import itertools
import json
import pathlib
import sys

import ml_dtypes
import numpy
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import triton_to_np_dtype

record, port, *models = sys.argv[1:]
url = f"127.0.0.1:{port}"
NOT_IN_JSON = ("FP16", "BF16")
done = []


def integers(kind):
    limits = numpy.iinfo(kind)
    return numpy.array([[limits.min, limits.max, 0, 1, 7, limits.max - 1]], kind)


def samples(datatype):
    """Arrays of this type and how they are compressed: its extremes, more of them, and none."""
    kind = numpy.dtype(triton_to_np_dtype(datatype))
    if datatype == "BYTES":
        few = numpy.array([[b"", b"a", "\u00e9\U0001f600".encode(), b"x" * 3000, b'"\\\n', b"0"]], object)
    elif datatype == "BOOL":
        few = numpy.array([[True, False, False, True, True, False]])
    elif datatype in ("BF16", "FP16", "FP32", "FP64"):
        limits = ml_dtypes.finfo(kind)
        few = numpy.array([[limits.min, limits.max, limits.tiny, -0.0, 1 / 3, limits.smallest_subnormal]], kind)
    else:
        few = integers(kind)
    many = numpy.tile(few, (1, 300))
    return (few, None), (many, "gzip"), (many, "deflate"), (few[:, :0], None)


def asked(client, name, datatype, array, binary):
    x = client.InferInput(name, list(array.shape), datatype)
    x.set_data_from_numpy(array, binary_data=binary)
    return [x]


def equal(what, array, got):
    assert got is not None and got.shape == array.shape, (what, got)
    if array.dtype == object:  # from JSON, tritonclient makes text of strings
        same = [one.encode() if isinstance(one, str) else one for one in got.flat] == list(array.flat)
    else:
        same = got.dtype == array.dtype and got.tobytes() == array.tobytes()
    assert same, (what, array, got)
    done.append(what)


def ways(client, spec):
    """(words, arguments of infer, the output's name, the array)."""
    model, given, taken, datatype = spec.split(":")
    for array, packed in samples(datatype):
        for binary, binary_back in itertools.product((True, False), repeat=2):
            if datatype in NOT_IN_JSON and not (binary and binary_back):
                continue
            yield f"{model} {datatype} {array.size} {binary} {binary_back} {packed}", {
                "model_name": model, "inputs": asked(client, given, datatype, array, binary),
                "outputs": [client.InferRequestedOutput(taken, binary_data=binary_back)],
                "request_compression_algorithm": packed, "response_compression_algorithm": packed}, taken, array


async def await_all():
    async with triton_aio.InferenceServerClient(url) as client:
        for spec in models:
            for what, arguments, taken, array in ways(triton_aio, spec):
                equal(f"{what} aio", array, (await client.infer(**arguments)).as_numpy(taken))


with triton.InferenceServerClient(url, concurrency=2, network_timeout=300, connection_timeout=300) as client:
    for spec in models:
        for what, arguments, taken, array in ways(triton, spec):
            later = client.async_infer(**arguments)
            equal(what, array, client.infer(**arguments).as_numpy(taken))
            equal(f"{what} async", array, later.get_result().as_numpy(taken))
asyncio.run(await_all())
pathlib.Path(record).write_text(json.dumps(done), encoding="ascii")
