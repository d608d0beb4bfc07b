"""Asks a server for all that the client made from the protocol's OpenAPI file can ask. That client compares each answer with
the file's schemas. argv: as of triton_client.py. Runs without PyTorch."""
import asyncio
import json
import pathlib
import sys

import numpy
from open_inference.openapi.client import AsyncOpenInferenceClient, OpenInferenceClient
from open_inference.openapi.core.api_error import ApiError
from open_inference.openapi.errors import BadRequestError
from open_inference.openapi.types import InferenceRequest, RequestInput, RequestOutput, TensorData

record, port, where, *models = sys.argv[1:]
where, url = pathlib.Path(where), f"http://127.0.0.1:{port}"
done = []


def sample(name, seed):
    data = (where / f"{name}.{seed}.in").read_bytes()
    return numpy.frombuffer(data, numpy.float32).reshape(4, -1), (where / f"{name}.{seed}.out").read_bytes()


def request(array, datatype="FP32", **more):
    data = TensorData.parse_obj(array.tolist())
    return InferenceRequest(inputs=[RequestInput(name="input", shape=list(array.shape), datatype=datatype, data=data)], **more)


def equal(what, answer, want):
    one, = answer.outputs
    assert one.name == "OUTPUT__0" and one.datatype == "FP32", answer
    flat = [each.__root__ if hasattr(each, "__root__") else each for each in one.data.__root__]
    assert numpy.array(flat, numpy.float32).reshape(one.shape).tobytes() == want, what
    done.append(what)


def refused(what, kind, status, call):
    try:
        call()
    except kind as error:
        assert error.status_code == status and "error" in str(error.body), (what, error)
        done.append(what)
    else:
        raise AssertionError(f"{what} was not refused")


def describe(client):
    client.check_server_liveness()
    client.check_server_readiness()
    assert client.read_server_metadata().extensions
    for name in models:
        client.check_model_readiness(name)
        client.check_model_version_readiness(name, "1")
        for described in (client.read_model_metadata(name), client.read_model_version_metadata(name, "1")):
            assert described.name == name and described.versions == ["1"], described
            assert [t.name for t in described.inputs] == ["input"], described
            assert [t.name for t in described.outputs] == ["OUTPUT__0"], described
        done.append(f"{name} metadata")


def infer(client):
    for name in models:
        for seed in range(3):
            array, want = sample(name, seed)
            answer = client.model_infer(name, request=request(array, id=f"n{seed}", outputs=[RequestOutput(name="OUTPUT__0")]))
            assert answer.id == f"n{seed}" and answer.model_name == name, answer
            equal(f"{name} {seed}", answer, want)
            equal(f"{name} {seed} version", client.model_version_infer(name, "1", request=request(array)), want)


def errors(client):
    array, _ = sample(models[0], 0)
    refused("unknown model", ApiError, 404, lambda: client.model_infer("nowhere", request=request(array)))
    refused("unknown version", ApiError, 404, lambda: client.model_version_infer(models[0], "9", request=request(array)))
    refused("wrong type", BadRequestError, 400, lambda: client.model_infer(models[0], request=request(array, "FP64")))
    refused("nobody's metadata", ApiError, 404, lambda: client.read_model_metadata("nowhere"))


async def with_async():
    client = AsyncOpenInferenceClient(base_url=url, timeout=300)
    asked = [(name, seed) for name in models for seed in range(3)]
    answers = await asyncio.gather(*(client.model_infer(name, request=request(sample(name, seed)[0])) for name, seed in asked))
    for (name, seed), answer in zip(asked, answers):
        equal(f"{name} {seed} async", answer, sample(name, seed)[1])


client = OpenInferenceClient(base_url=url, timeout=300)
describe(client)
infer(client)
errors(client)
asyncio.run(with_async())
pathlib.Path(record).write_text(json.dumps(done), encoding="ascii")
