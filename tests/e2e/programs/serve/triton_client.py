"""Asks a server for all that tritonclient's HTTP clients can ask. argv: the record, the port, a directory with NAME.SEED.in
and NAME.SEED.out, names of models that take and give one matrix. Runs without PyTorch."""
import asyncio
import json
import pathlib
import sys

import numpy
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

record, port, where, *models = sys.argv[1:]
where, url = pathlib.Path(where), f"127.0.0.1:{port}"
done = []


def sample(name, seed):
    data = (where / f"{name}.{seed}.in").read_bytes()
    return numpy.frombuffer(data, numpy.float32).reshape(4, -1), (where / f"{name}.{seed}.out").read_bytes()


def one_input(client, array, binary=True):
    x = client.InferInput("input", list(array.shape), "FP32")
    x.set_data_from_numpy(array, binary_data=binary)
    return [x]


def equal(what, result, want):
    got = result.as_numpy("OUTPUT__0")
    assert got is not None and got.tobytes() == want, what
    done.append(what)


def refused(what, call, *words):
    try:
        call()
    except InferenceServerException as error:
        assert all(word in str(error) for word in words), (what, str(error))
        done.append(what)
    else:
        raise AssertionError(f"{what} was not refused")


def ask_about(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.get_server_metadata()["name"]
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    for name in models:
        assert client.is_model_ready(name) and client.is_model_ready(name, "1")
        described = client.get_model_metadata(name)
        assert described["name"] == name and described["versions"] == ["1"], described
        assert [t["name"] for t in described["inputs"]] == ["input"], described
        assert [t["name"] for t in described["outputs"]] == ["OUTPUT__0"], described
        assert client.get_model_config(name)["name"] == name
    assert {m["name"] for m in client.get_model_repository_index()} >= set(models)
    done.append("metadata")


def infer(client):
    for name in models:
        for seed in range(3):
            array, want = sample(name, seed)
            equal(f"{name} {seed} binary", client.infer(name, one_input(triton, array)), want)
            equal(f"{name} {seed} JSON", client.infer(name, one_input(triton, array, binary=False), outputs=[
                triton.InferRequestedOutput("OUTPUT__0", binary_data=False)]), want)
    array, want = sample(models[0], 0)
    for way in ("gzip", "deflate"):
        equal(way, client.infer(models[0], one_input(triton, array), request_compression_algorithm=way,
                                response_compression_algorithm=way), want)
    equal("options", client.infer(models[0], one_input(triton, array), model_version="1", request_id="my-7", priority=1,
                                  timeout=60_000_000), want)
    assert client.infer(models[0], one_input(triton, array), request_id="my-8").get_response()["id"] == "my-8"
    waiting = [(name, seed, client.async_infer(name, one_input(triton, sample(name, seed)[0])))
               for name in models for seed in range(3) for _ in range(4)]
    for name, seed, later in waiting:
        equal(f"{name} {seed} async", later.get_result(), sample(name, seed)[1])


def errors(client):
    array, _ = sample(models[0], 0)
    refused("unknown model", lambda: client.infer("nowhere", one_input(triton, array)), "nowhere")
    refused("unknown version", lambda: client.infer(models[0], one_input(triton, array), model_version="9"))
    refused("wrong shape", lambda: client.infer(models[0], one_input(triton, array[:, :3].copy())))
    refused("wrong type", lambda: client.infer(models[0], [_typed(array)]))
    refused("no input", lambda: client.infer(models[0], []))
    refused("unknown output", lambda: client.infer(models[0], one_input(triton, array), outputs=[
        triton.InferRequestedOutput("nothing")]))
    _, want = sample(models[0], 0)
    equal("after errors", client.infer(models[0], one_input(triton, array)), want)


def _typed(array):
    x = triton.InferInput("input", list(array.shape), "FP64")
    x.set_data_from_numpy(array.astype(numpy.float64))
    return x


def statistics(client):
    found = client.get_inference_statistics(models[0])["model_stats"][0]
    assert found["name"] == models[0] and found["inference_stats"]["success"]["count"] > 8, found
    done.append("statistics")


async def with_aio():
    async with triton_aio.InferenceServerClient(url) as client:
        assert await client.is_server_live()
        asked = [(name, seed) for name in models for seed in range(3)]
        answers = await asyncio.gather(*(client.infer(name, one_input(triton_aio, sample(name, seed)[0])) for name, seed in asked))
        for (name, seed), answer in zip(asked, answers):
            equal(f"{name} {seed} aio", answer, sample(name, seed)[1])


with triton.InferenceServerClient(url, concurrency=8, network_timeout=300, connection_timeout=300) as client:
    ask_about(client)
    infer(client)
    errors(client)
    statistics(client)
asyncio.run(with_aio())
pathlib.Path(record).write_text(json.dumps(done))
