"""Asks with tritonclient's HTTP clients under TLS. argv: the port, the certificate that is trusted. The server has a model
`echo` that takes INPUT0 and gives OUTPUT0. A client that does not trust the certificate has to refuse. Runs without
PyTorch."""
import asyncio
import ssl
import sys

import numpy
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

url, certificate = f"127.0.0.1:{sys.argv[1]}", sys.argv[2]
array = numpy.arange(6000, dtype=numpy.float32).reshape(1, -1)


def inputs(client):
    x = client.InferInput("INPUT0", list(array.shape), "FP32")
    x.set_data_from_numpy(array)
    return [x]


def check(answer):
    assert answer.as_numpy("OUTPUT0").tobytes() == array.tobytes()


async def ask_aio():
    context = ssl.create_default_context(cafile=certificate)
    async with triton_aio.InferenceServerClient(url, ssl=True, ssl_context=context) as client:
        assert await client.is_server_live()
        for answer in await asyncio.gather(*(client.infer("echo", inputs(triton_aio)) for _ in range(5))):
            check(answer)


with triton.InferenceServerClient(url, concurrency=3, ssl=True, ssl_options={"ca_certs": certificate}) as one:
    later = [one.async_infer("echo", inputs(triton)) for _ in range(6)]
    for request in later:
        check(request.get_result())
    for way in ("gzip", "deflate"):
        check(one.infer("echo", inputs(triton), request_compression_algorithm=way, response_compression_algorithm=way))
print("sync", end=" ")
asyncio.run(ask_aio())
print("aio", end=" ")
try:
    with triton.InferenceServerClient(url, ssl=True) as one:
        one.is_server_live()
except ssl.SSLError:
    print("refused")
