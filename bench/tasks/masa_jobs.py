"""Jobs of the Masa paper for a real server: when they come, which networks each needs, and a client that sends them."""
import asyncio
import json
import random
import time
from dataclasses import dataclass

from http_exchange import exchange
import zoo

SMALL = ("agenet", "gendernet", "tinyyolo")
MIXED = ("agenet", "emotionnet", "facenet")
LIFELOGGING = ("tinyyolo", "emotionnet", "memnet", "scenenet", "sos")
NINE = ("agenet", "gendernet", "facenet", "sos", "googlenet", "tinyyolo", "emotionnet", "memnet", "scenenet")
# The networks of a scenario. small, mixed and lifelogging: each job needs all of them, and one comes after the other. one: each job needs
# one of nine. subset: it needs some of nine.
SCENARIOS = {"small": SMALL, "mixed": MIXED, "lifelogging": LIFELOGGING, "one": NINE, "subset": NINE}
# Of the time between two arrivals of scenario I: the paper has 200 ms at means of some seconds.
SPREAD = 0.2


@dataclass
class Network:
    name: str
    bytes: int
    largest: int
    input: str
    outputs: list    # of bytes, for each image
    alone_s: float = 0.0


@dataclass
class Job:
    at: float
    members: tuple   # of Network
    image: int


def make(scenario, networks, count, rho, seed, cold_s):
    """[Job]. cold_s(network): how long it takes alone, reading included. rho: a job's mean of that over the mean time between two."""
    chance, jobs, now = random.Random(seed), [], 0.0
    for number in range(count):
        if scenario == "one":
            members = (chance.choice(networks),)
        elif scenario == "subset":
            members = tuple(n for n in networks if chance.random() < 0.5) or (chance.choice(networks),)
        else:
            members = tuple(networks)
        jobs.append(Job(0.0, members, number % zoo.SAMPLES))
    mean = sum(cold_s(n) for job in jobs for n in job.members) / count / rho
    for job in jobs:
        job.at = now
        now += max(0.0, chance.gauss(mean, SPREAD * mean)) if scenario == "one" else mean
    return jobs


def _post(path, body, headers):
    lines = [f"POST {path} HTTP/1.1", "Host: bench", "Connection: close", f"Content-Length: {len(body)}",
             "Content-Type: application/octet-stream", *(f"{key}: {value}" for key, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Ensemble:
    """A job is one request for an ensemble of all networks, which names the outputs that it wants; other steps do not run."""

    @staticmethod
    def requests(job, image):
        head = json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": zoo.SHAPE,
                                       "parameters": {"binary_data_size": len(image)}}],
                           "outputs": [{"name": n.name, "parameters": {"binary_data": True}} for n in job.members]}).encode()
        return [_post("/v2/models/job/infer", head + image, {"Inference-Header-Content-Length": len(head)})]

    @staticmethod
    def is_same(job, answers):
        return answers[0].endswith(b"".join(n.outputs[job.image] for n in job.members))


class Raw:
    """A job is a request for each of its networks, all at once."""

    @staticmethod
    def requests(job, image):
        return [_post(f"/{n.name}", image, {}) for n in job.members]

    @staticmethod
    def is_same(job, answers):
        return all(answer.endswith(n.outputs[job.image]) for n, answer in zip(job.members, answers))


async def _play(port, protocol, jobs, images, patience_s):
    began = time.monotonic()

    async def one(number, job):
        await asyncio.sleep(max(0, began + job.at - time.monotonic()))
        sent = time.monotonic() - began
        try:
            answers = await asyncio.wait_for(
                asyncio.gather(*(exchange(port, r) for r in protocol.requests(job, images[job.image]))), patience_s)
            status = max(status for status, _ in answers)
        except (OSError, ValueError, asyncio.TimeoutError):
            status, answers = 0, []
        why = next((answer[-200:].decode(errors="replace") for code, answer in answers if code != 200), "")
        return {"job": number, "networks": "+".join(n.name for n in job.members), "at": job.at, "sent": sent,
                "done": time.monotonic() - began, "status": status,
                "same": protocol.is_same(job, [answer for _, answer in answers]) if status == 200 else None,
                **({"why": why} if why else {})}

    return await asyncio.gather(*(one(number, job) for number, job in enumerate(jobs)))


def play(port, protocol, jobs, images, patience_s=200):
    """[{job, networks, at, sent, done, status, same}]"""
    return asyncio.run(_play(port, protocol, jobs, images, patience_s))
