#!/usr/bin/env python3
"""The demo of serving: six networks behind one port, in a hard memory limit that holds two of them. Requests come by curl
and by tritonclient.

Exit code 0 only if all answers have the bits that the model gives alone in plain PyTorch, and nothing was killed."""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "lib"))

import bench_cgroup as cgroup
import pythons
import table
import variants
from plan import MIB
from sampler import Sampler

MODELS = ("resnet50", "densenet161", "efficientnet_b4", "convnext_tiny", "resnet101", "vit_b_16")
ROUNDS = 5
# What an engine process weighs beside tensors (libtorch, its code, OpenBLAS's buffers), and the server.
BESIDE = 170 * MIB
TIMEOUT_SECONDS = 600
COLUMNS = ("model", "size MiB", "requests", "first ms", "median ms", "same bits")
PROGRAMS = variants.HERE / "serve_programs.py"
CLIENTS = variants.HERE.parent.parent / ".deps" / "clients" / "bin" / "python"


def progress(text):
    print(f"demo: {text}", file=sys.stderr, flush=True)


def make_models(python, repository, samples):
    """{name: bytes}"""
    lines = subprocess.run([python, str(PROGRAMS), "models", str(repository), str(samples), *MODELS],
                           check=True, stdout=subprocess.PIPE, text=True, env=variants.plain_environment()).stdout
    return {name: int(size) for name, size in map(str.split, lines.splitlines())}


@contextlib.contextmanager
def serving(python, build, repository, memory, group, store):
    """(port, process) of a server in the group."""
    command = [str(build / "bin" / "swapnet-serve"), "--model-repository", str(repository), "--memory", str(memory),
               "--http-port", "0"]
    env = variants.plain_environment() | {"SWAPNET_PYTHON": python, "SWAPNET_STORE": str(store)}
    process = subprocess.Popen(group.command(command), stderr=subprocess.PIPE, text=True, env=env)
    group.started(process.pid)
    try:
        for line in process.stderr:
            progress(f"  {line.rstrip()}")
            if found := re.search(r"listening on .*, port (\d+)", line):
                break
        else:
            raise RuntimeError("swapnet-serve ended before it listened")
        os.set_blocking(process.stderr.fileno(), False)
        yield int(found[1]), process
    finally:
        process.terminate()
        process.wait(60)
        for line in process.stderr.read().splitlines():
            progress(f"  {line}")


def by_curl(port, name, samples):
    """Whether curl's answer has the right bits: one input of raw bytes, and outputs likewise."""
    url = f"http://127.0.0.1:{port}/v2/models/{name}"
    described = json.loads(_curl(url))["inputs"][0]
    image = (samples / f"{name}.in").read_bytes()
    head = json.dumps({"inputs": [{"name": described["name"], "datatype": "FP32", "shape": [1, 3, 224, 224],
                                   "parameters": {"binary_data_size": len(image)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    request = samples / "request"
    request.write_bytes(head + image)
    answer = _curl("-H", f"Inference-Header-Content-Length: {len(head)}", "-H", "Content-Type: application/octet-stream",
                   "--data-binary", f"@{request}", f"{url}/infer")
    return answer.endswith((samples / f"{name}.out").read_bytes())


def _curl(*arguments):
    return subprocess.run(["curl", "-sS", "--fail-with-body", "--retry", "8", "--retry-all-errors", "--max-time", "300",
                           *arguments], check=True, stdout=subprocess.PIPE).stdout


def by_client(port, samples):
    """[{model, seconds, same}] of tritonclient's requests."""
    lines = subprocess.run([str(CLIENTS), str(PROGRAMS), "client", str(port), str(samples), str(ROUNDS),
                            *MODELS], check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS).stdout
    return [json.loads(line) for line in lines.splitlines()]


def rows_of(sizes, curl, answers):
    for name in MODELS:
        own = [a for a in answers if a["model"] == name]
        same = curl[name] and all(a["same"] for a in own)
        yield (name, f"{sizes[name] / MIB:.0f}", str(len(own) + 1), f"{own[0]['seconds'] * 1e3:.0f}",
               f"{statistics.median(a['seconds'] for a in own) * 1e3:.0f}", table.same_bits(same))


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="scripts/demo serve", description=__doc__)
    parser.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on a real disk; default: bench/out")
    parser.add_argument("--build", type=Path, default=variants.DEFAULT_LIBRARY.parent.parent)
    parser.add_argument("--python", help="interpreter with torch; default: this or the system's")
    args = parser.parse_args()
    work = args.dir.resolve() / "serve"
    shutil.rmtree(work, ignore_errors=True)
    repository, samples, store = (work / part for part in ("models", "samples", "store"))
    for path in (repository, samples, store):
        path.mkdir(parents=True)
    python = pythons.with_torchvision(args.python)
    progress(f"making a repository of {len(MODELS)} networks with random weights")
    sizes = make_models(python, repository, samples)
    memory = sum(sorted(sizes.values())[-2:])
    group_kind, no_limit = cgroup.find()
    progress(f"{no_limit}: running WITHOUT a memory limit" if no_limit else
             f"{sum(sizes.values()) / MIB:.0f} MiB of models in {memory / MIB:.0f} MiB, hard limit {(memory + BESIDE) / MIB:.0f} MiB")
    sampler = Sampler()
    with group_kind("swapnet-demo-serve", memory + BESIDE) as group:
        sampler.watch(group)
        with serving(python, args.build.resolve(), repository, memory, group, store) as (port, process):
            _curl("--silent", "--no-show-error", f"http://127.0.0.1:{port}/v2/health/ready")
            progress("one request for each by curl")
            curl = {name: by_curl(port, name, samples) for name in MODELS}
            progress(f"{ROUNDS} rounds by tritonclient")
            answers = by_client(port, samples)
        sampler.watch(None)
        peak, kills = sampler.peaks(group)["held"], group.oom_kills()
    shutil.rmtree(work, ignore_errors=True)
    print(table.grid(COLUMNS, list(rows_of(sizes, curl, answers))))
    print(f"\nmodels {sum(sizes.values()) / MIB:.0f} MiB, memory {memory / MIB:.0f} MiB, peak of all processes {peak / MIB:.0f} MiB")
    good = all(curl.values()) and all(a["same"] for a in answers) and not kills and process.returncode == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
