"""Asks a server for all that the REST client of KServe's SDK can ask. argv: as of triton_client.py. Runs without PyTorch."""
import asyncio
import json
import pathlib
import sys

import httpx
import numpy
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

record, port, where, *models = sys.argv[1:]
where, url = pathlib.Path(where), f"http://127.0.0.1:{port}"
done = []


def sample(name, seed):
    data = (where / f"{name}.{seed}.in").read_bytes()
    return numpy.frombuffer(data, numpy.float32).reshape(4, -1), (where / f"{name}.{seed}.out").read_bytes()


def request(name, array, binary, datatype="FP32", **more):
    x = InferInput("input", list(array.shape), datatype)
    x.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(name, [x], **more)


def equal(what, answer, want):
    got = answer.outputs[0].as_numpy()
    assert answer.outputs[0].name == "OUTPUT__0" and got.dtype == numpy.float32, (what, answer)
    assert got.tobytes() == want, what
    done.append(what)


async def refused(what, status, call):
    try:
        await call
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == status and error.response.json()["error"], (what, error)
        done.append(what)
    else:
        raise AssertionError(f"{what} was not refused")


async def infer(client, name, seed):
    array, want = sample(name, seed)
    whole = [RequestedOutput("OUTPUT__0", parameters={"binary_data": True})]
    equal(f"{name} {seed} JSON", await client.infer(url, request(name, array, False), name), want)
    equal(f"{name} {seed} binary", await client.infer(url, request(name, array, True), name), want)
    equal(f"{name} {seed} both", await client.infer(url, request(name, array, True, request_outputs=whole), name), want)
    body = {"inputs": [{"name": "input", "shape": list(array.shape), "datatype": "FP32", "data": array.tolist()}]}
    equal(f"{name} {seed} dict", await client.infer(url, body, name), want)
    headers = {}
    answer = await client.infer(url, request(name, array, True, request_id="my-9", parameters={"priority": 1}), name,
                                response_headers=headers)
    assert answer.id == "my-9" and answer.model_name == name, answer
    assert headers["content-type"], headers
    equal(f"{name} {seed} id", answer, want)


async def main():
    async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=300)) as client:
        assert await client.is_server_live(url) is True and await client.is_server_ready(url) is True
        assert await client.is_model_ready(url, "nowhere") is False
        for name in models:
            assert await client.is_model_ready(url, name) is True
            for seed in range(3):
                await infer(client, name, seed)
        await asyncio.gather(*(infer(client, name, seed) for name in models for seed in range(3)))
        array, want = sample(models[0], 0)
        await refused("unknown model", 404, client.infer(url, request("nowhere", array, True), "nowhere"))
        await refused("wrong type", 400, client.infer(url, request(models[0], array.astype("f8"), True, "FP64"), models[0]))
        equal("after errors", await client.infer(url, request(models[0], array, True), models[0]), want)


asyncio.run(main())
pathlib.Path(record).write_text(json.dumps(done), encoding="ascii")
