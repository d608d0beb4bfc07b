"""Requests that come when they come, whether or not earlier ones are answered: arrivals, and a client that sends them."""
import asyncio
import json
import random
import time
from dataclasses import dataclass

from http_exchange import exchange


@dataclass
class Sample:
    """What one model is asked, and the bytes that it answers."""
    name: str
    bytes: int
    shape: list
    datatype: str
    given: bytes
    wanted: bytes
    input: str = ""  # its name, which the server says


def arrivals(kind, count, seed):
    """Times of `count` requests, one a second on average: poisson, pareto (heavy tail, alpha 1.5) or constant."""
    chance, now, times = random.Random(seed), 0.0, []
    for _ in range(count):
        # A Pareto of alpha 1.5 has the mean 3.
        now += {"poisson": lambda: chance.expovariate(1), "pareto": lambda: chance.paretovariate(1.5) / 3,
                "constant": lambda: 1.0}[kind]()
        times.append(now)
    return [t * count / now for t in times]


def request_of(sample, timeout_s):
    parameters = {"binary_data_output": True}
    if timeout_s:
        parameters["timeout"] = int(timeout_s * 1e6)
    head = json.dumps({"inputs": [{"name": sample.input, "datatype": sample.datatype, "shape": sample.shape,
                                   "parameters": {"binary_data_size": len(sample.given)}}],
                       "parameters": parameters}).encode()
    return (f"POST /v2/models/{sample.name}/infer HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
            f"Inference-Header-Content-Length: {len(head)}\r\nContent-Type: application/octet-stream\r\n"
            f"Content-Length: {len(head) + len(sample.given)}\r\n\r\n").encode() + head + sample.given


async def _ask(port, sample, request):
    """(status, whether the bits are right)"""
    status, answer = await exchange(port, request)
    return status, answer.endswith(sample.wanted) if status == 200 else None


async def _play(port, plan, timeout_s, patience_s):
    requests = {sample.name: request_of(sample, timeout_s) for _, sample in plan}
    began = time.monotonic()

    async def one(at, sample):
        await asyncio.sleep(max(0, began + at - time.monotonic()))
        sent = time.monotonic() - began
        try:
            status, same = await asyncio.wait_for(_ask(port, sample, requests[sample.name]), patience_s)
        except (OSError, ValueError, asyncio.TimeoutError):
            status, same = 0, None
        return {"model": sample.name, "at": at, "sent": sent, "done": time.monotonic() - began, "status": status, "same": same}

    return await asyncio.gather(*(one(at, sample) for at, sample in plan))


def play(port, plan, timeout_s=None, patience_s=300):
    """[{model, at, sent, done, status, same}] for the plan [(seconds from now, sample)]."""
    return asyncio.run(_play(port, plan, timeout_s, patience_s))
