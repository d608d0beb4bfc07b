#!/usr/bin/env python3
"""The experiments of the edge-serving paper on the real server: requests that come by themselves, one policy beside the other.

Each policy has a server of its own, in the same memory. They take turns: each trace of arrivals is played to one server after the other,
while the others rest. Rates rise until no policy answers half of its requests in time; the capacity is the rate up to which 90 % are."""
import argparse
import contextlib
import csv
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent / folder) for folder in ("lib", "serving", "edge")]

import edge_results
import open_loop
import pythons
import slow_disk
import variants
from plan import MIB

POLICIES = ("completion", "exact", "tardy", "edf", "no-batch", "batch", "dynamic", "lazy", "nexus", "symphony")
# Of the rate at which requests could be served one by one.
STEPS = (0.5, 0.8, 1.1, 1.5, 2.0, 2.7, 3.6, 4.8, 6.4, 8.5, 11, 15)
# What the server takes with these options beside the budget of its engine.
OPTIONS = ("--buffers", "32M", "--connections", "64", "--queue", "256")
BESIDE = 64 * MIB
TURNS_MOST = 32  # requests that one reading serves at most
# Of models whose requests may be joined; without it lockstep is all that there is.
JOINED = 'max_batch_size: 32 dynamic_batching { }\nparameters { key: "swapnet_bits" value { string_value: "batch" } }\n'
MODELS = Path(__file__).resolve().parent / "edge" / "edge_models.py"


def progress(text):
    print(f"edge_serving: {text}", file=sys.stderr, flush=True)


def make_models(python, repository, pixels, names, threads):
    """[Sample]. What plain PyTorch answers has the bits of as many threads as the servers have."""
    repository.mkdir()
    environment = pythons.plain_environment() | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    lines = subprocess.run([python, str(MODELS), str(repository), str(repository.parent), str(pixels), *names], check=True,
                           stdout=subprocess.PIPE, text=True, env=environment).stdout
    return [open_loop.Sample(**line, given=(repository.parent / f"{line['name']}.in").read_bytes(),
                             wanted=(repository.parent / f"{line['name']}.out").read_bytes())
            for line in map(json.loads, lines.splitlines())]


class Server:
    def __init__(self, args, python, repository, samples, policy, memory):
        where = repository.parent
        command = [str(args.build / "bin" / "swapnet-serve"), "--model-repository", str(repository), "--memory",
                   str(memory), "--http-port", "0", "--threads", str(args.threads), "--policy", policy, *OPTIONS, *args.option]
        env = pythons.plain_environment() | {"SWAPNET_PYTHON": python, "SWAPNET_STORE": str(where / "store")}
        self.samples = samples
        self.policy = policy + ("" if repository.name == "models" else f", {repository.name}")
        self.may_differ = repository.name == "joined"
        self.log = open(where / f"{self.policy}.log", "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        for line in self.process.stderr:
            self.log.write(line)
            if found := re.search(r"listening on .*, port (\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise RuntimeError(f"swapnet-serve --policy {policy} ended before it listened")
        os.set_blocking(self.process.stderr.fileno(), False)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/{path}", timeout=300) as answer:
            return answer.read()

    def is_ready(self):
        with contextlib.suppress(urllib.error.URLError):
            self.get("health/ready")
            return True
        return self.process.poll() is not None

    def alone(self, sample, count=1):
        """Seconds of requests that are alone in the server."""
        rows = [open_loop.play(self.port, [(0, sample)])[0] for _ in range(count)]
        assert all(row["status"] == 200 and (row["same"] or self.may_differ) for row in rows), (self.policy, rows)
        return [row["done"] - row["sent"] for row in rows]

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.write(self.process.stderr.read() or "")
        self.log.close()


def warm_up(server):
    """Times are learned, also of requests that share what is read; engines divide models anew after their second request."""
    while not server.is_ready():
        time.sleep(0.05)
    for sample in server.samples:
        sample.input = json.loads(server.get(f"models/{sample.name}"))["inputs"][0]["name"]
        server.alone(sample, 4)
    for sample in server.samples:
        open_loop.play(server.port, [(0, sample)] * 4)
        server.alone(sample, 2)


def alone_seconds(servers, rounds=3):
    """{server: mean over models of what a request takes alone}, measured in turns."""
    times = {server: {sample.name: [] for sample in server.samples} for server in servers}
    for _ in range(rounds):
        for i in range(len(servers[0].samples)):
            for server in servers:
                times[server][server.samples[i].name] += server.alone(server.samples[i])
    return {server: statistics.mean(statistics.median(t) for t in of.values()) for server, of in times.items()}


def one_step(args, servers, step, alone, rows):
    """Plays the traces of one rate to each server. {policy: part that was in time}"""
    rate, deadline, found = step / alone, args.deadline * alone, {}
    for seed in range(args.seeds):
        times = [t / rate for t in open_loop.arrivals(args.arrivals, args.requests, seed)]
        for server in servers[seed % len(servers):] + servers[:seed % len(servers)]:
            if server.process.poll() is not None:
                raise RuntimeError(f"the server of {server.policy} has ended")
            plan = [(t, server.samples[i % len(server.samples)]) for i, t in enumerate(times)]
            answers = open_loop.play(server.port, plan, None if args.no_timeout else deadline)
            for number, answer in enumerate(answers):
                rows.append({"step": step, "policy": server.policy, "seed": seed, "number": number, "rate": f"{rate:.4f}",
                             "deadline": f"{deadline:.4f}", **answer})
            found.setdefault(server.policy, []).extend(edge_results.is_on_time(answer, deadline) for answer in answers)
    return {policy: statistics.mean(values) for policy, values in found.items()}


def measure(args, python, where):
    samples = make_models(python, where / "models", args.pixels, args.models.split(","), args.threads)
    kinds = [(where / "models", samples)]
    if args.apart:
        kinds.append((where / "apart", make_models(python, where / "apart", args.pixels, args.apart.split(","), args.threads)))
    if args.join:
        kinds.append((where / "joined", make_models(python, where / "joined", args.pixels, args.models.split(","), args.threads)))
        for sample in samples:
            (where / "joined" / sample.name / "config.pbtxt").write_text(JOINED)
    weights = sum(sample.bytes for sample in samples)
    memory = int(weights * args.part) + args.activations * MIB + BESIDE
    all_same = True
    with contextlib.ExitStack() as stack:
        def start(policy, memory, repository, samples):
            server = Server(args, python, repository, samples, policy, memory)
            stack.callback(server.end)
            warm_up(server)
            return server

        free = start("no-batch", weights + 2 * args.activations * MIB + BESIDE, *kinds[0])
        servers = [start(policy, memory, *kind) for policy in args.policies.split(",") for kind in kinds]
        times = alone_seconds([free, *servers])
        alone = statistics.median(times[server] for server in servers)
        facts = {"models": args.models, "weights_mib": weights / MIB, "memory_mib": memory / MIB, "disk": args.disk or 0,
                 "arrivals": args.arrivals, "alone_s": alone, "computing_s": times[free], "share": alone / times[free],
                 "deadline_s": args.deadline * alone, "turns_most": TURNS_MOST}
        progress(f"{args.models}: alone {alone:.3f} s, with all in memory {times[free]:.3f} s: n* {facts['share']:.1f}")
        for step in args.steps:
            on_time = one_step(args, servers, step, alone, rows := [])
            write(args.csv, facts, rows)  # now: what was measured is there if the rest is not
            may_differ = {server.policy for server in servers if server.may_differ}
            all_same = all_same and all(row["same"] is not False or row["policy"] in may_differ for row in rows)
            progress(f"{step} of one by one: " + ", ".join(f"{p} {v:.2f}" for p, v in on_time.items()))
            servers = [server for server in servers if on_time[server.policy] >= 0.5]
            if not servers:
                break
    return all_same


def write(path, facts, rows):
    new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8") as file:
        columns = [*facts, *rows[0]]
        out = csv.DictWriter(file, columns)
        if new:
            out.writeheader()
        for row in rows:
            out.writerow({**{k: f"{v:.4f}" if isinstance(v, float) else v for k, v in {**facts, **row}.items()}})


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="bench/edge_serving.py", description=__doc__)
    parser.add_argument("--csv", type=Path, required=True, help="every request of every trace; a run is appended")
    parser.add_argument("--show", action="store_true", help="run nothing: print the tables of --csv")
    parser.add_argument("--plot", type=Path, help="run nothing: draw on-time ratios and completion times of --csv")
    parser.add_argument("--publish", type=Path, metavar="STEM",
                        help="run nothing: --plot STEM.svg, and STEM.csv with the points of its lines, which is small")
    parser.add_argument("--models", default="resnet101", help="that requests are for in turns, with a comma between them")
    parser.add_argument("--apart", help="as many models, which a second server of each policy has")
    parser.add_argument("--join", action="store_true",
                        help="a second server for each policy, in which requests are joined whatever becomes of their bits")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--part", type=float, default=0.25, help="of the weights that has room in memory")
    parser.add_argument("--activations", type=int, default=64, help="MiB that the budget has for them and for states")
    parser.add_argument("--disk", type=int, help="reads are throttled to so many MB/s")
    parser.add_argument("--arrivals", choices=("poisson", "pareto", "constant"), default="poisson")
    parser.add_argument("--requests", type=int, default=60, help="of a trace")
    parser.add_argument("--seeds", type=int, default=1, help="traces at each rate")
    parser.add_argument("--steps", type=lambda text: [float(s) for s in text.split(",")], default=STEPS)
    parser.add_argument("--deadline", type=float, default=4, help="times what a request takes alone")
    parser.add_argument("--no-timeout", action="store_true", help="requests do not say their deadline")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="of swapnet-serve")
    parser.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on the disk that is measured")
    parser.add_argument("--build", type=Path, default=variants.DEFAULT_LIBRARY.parent.parent)
    parser.add_argument("--python", help="interpreter with torch and torchvision")
    args = parser.parse_args()
    if args.show or args.plot or args.publish:
        rows = edge_results.read(args.csv)
        if args.show:
            print(edge_results.tables(rows))
        if args.plot:
            edge_results.draw(rows, args.plot)
        if args.publish:
            edge_results.summary(rows, f"{args.publish}.csv")
            edge_results.draw(rows, f"{args.publish}.svg")
        return 0
    args.build = args.build.resolve()
    where = args.dir.resolve() / f"edge-{os.getpid()}"
    (where / "store").mkdir(parents=True)
    slow_disk.throttle(where, args.disk)
    try:
        all_same = measure(args, pythons.with_torchvision(args.python), where)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())
