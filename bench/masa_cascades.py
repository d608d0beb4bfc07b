#!/usr/bin/env python3
"""The Masa paper's cascades on the real server: networks that are needed only if another one says so, by how often it does.

    python3 bench/masa_cascades.py --csv out.csv            # a run, appended to out.csv
    python3 bench/masa_cascades.py --csv out.csv --show     # its table

A job is one image for an ensemble whose steps have conditions. Jobs come one after the other; a share --probability of them, in random
order, has an image for which all networks are needed. A swapnet-serve for each way of --cascades plays the same jobs, in turns. Every
answer is compared with plain PyTorch's, bit by bit."""
import argparse
import contextlib
import csv
import os
import random
import shutil
import signal
import statistics
import struct
import sys
from pathlib import Path

import masa_serving as serving

import bench_cgroup as cgroup
import masa_jobs
import masa_servers
import pythons
import slow_disk
import table
import variants
import zoo
from plan import MIB

# NETWORK<UPSTREAM: needed if that one says so.
JOBS = {"light": ("facenet", "agenet<facenet", "gendernet<facenet"),
        "heavy": ("memnet", "tinyyolo", "facenet<tinyyolo", "agenet<facenet", "gendernet<facenet", "emotionnet<facenet")}
WAYS = ("wait", "preempt", "prefetch")
FIELDS = ("kind", "scale", "memory", "budget_mib", "disk", "policy", "p", "way", "seed", "job", "is_needed", "s", "processor_s",
          "read_mib", "same")


class Cascade:
    """The ensemble of a kind of job, and which image says yes."""

    def __init__(self, kind, networks):
        self.networks, self.upstream = networks, dict(m.partition("<")[::2] for m in JOBS[kind])
        root = next(up for up in self.upstream.values() if up and not self.upstream[up])
        outputs = next(n for n in networks if n.name == root).outputs
        most = [max(struct.unpack(f"<{len(data) // 4}f", data)) for data in outputs]
        self.images = sorted(range(zoo.SAMPLES), key=most.__getitem__)
        self.thresholds = {root: (most[self.images[-1]] + most[self.images[-2]]) / 2}

    def write(self, repository):
        text = "platform: 'ensemble'\ninput { name: 'image' data_type: TYPE_FP32 dims: [1, 3, 224, 224] }\n"
        text += "".join(f"output {{ name: '{n.name}' data_type: TYPE_FP32 dims: [1, -1] }}\n" for n in self.networks)
        steps = ""
        for n in self.networks:
            up = self.upstream[n.name]
            # What is behind the first one is needed whenever that is.
            condition = f"condition {{ tensor: '{up}' max_above: {self.thresholds.get(up, -1e30)!r} }}" if up else ""
            steps += (f"  step {{ model_name: '{n.name}' model_version: -1 input_map {{ key: '{n.input}' value: 'image' }} "
                      f"output_map {{ key: 'OUTPUT__0' value: '{n.name}' }} {condition} }}\n")
        (repository / "job" / "1").mkdir(parents=True)
        (repository / "job" / "config.pbtxt").write_text(f"{text}ensemble_scheduling {{\n{steps}}}\n")

    def job(self, is_needed):
        return masa_jobs.Job(0, tuple(self.networks), self.images[-1 if is_needed else 0])

    def requests(self, job, image):
        return masa_jobs.Ensemble.requests(job, image)

    def is_same(self, job, answers):
        ran = [n for n in self.networks if job.image == self.images[-1] or not self.upstream[n.name]]
        return answers[0].endswith(b"".join(n.outputs[job.image] for n in ran))


class Place(masa_servers.Place):
    def __init__(self, cascade, *args):
        super().__init__(*args)
        self.cascade = cascade

    def repository(self, kind):
        path = self.folder / "repository"
        if not path.exists():
            for n in self.networks:
                (path / n.name / "1").mkdir(parents=True)
                os.link(self.folder / "models" / n.name / "1" / "model.pt", path / n.name / "1" / "model.pt")
            self.cascade.write(path)
        return path


def play(server, cascade, is_needed, images):
    row = masa_jobs.play(server.port, cascade, [cascade.job(is_needed)], images)[0]
    if row["status"] != 200:
        raise RuntimeError(f"{server.title}: {row}\n{server.last_words()}")
    return {"is_needed": int(is_needed), "s": row["done"] - row["sent"], "same": row["same"]}


def run(args, place, cascade, images, budget, p):
    rows = []
    facts = {"kind": args.kind, "scale": args.scale, "memory": args.memory, "budget_mib": budget // MIB, "disk": args.disk or 0,
             "policy": args.policy, "p": p}
    with contextlib.ExitStack() as stack:
        servers = {}
        for way in args.ways:
            server, _ = place.start(args.policy, budget, f"-{way}", ("--cascades", way))
            stack.callback(server.group.close)
            stack.enter_context(server)
            # Times are learned; engines divide models anew after their second request. Conditions are learned as they are then.
            for is_needed in [True, True, *([True, False] if 0 < p < 1 else [p == 1] * 4)]:
                play(server, cascade, is_needed, images)
            servers[way] = server
        for seed in range(args.seed, args.seed + args.rounds):
            needed = [k < round(p * args.jobs) for k in range(args.jobs)]
            random.Random(seed).shuffle(needed)
            costs = {way: [-server.read_bytes(), -masa_servers.processor_seconds(server)] for way, server in servers.items()}
            found = {way: [] for way in servers}
            # Job by job: what the machine does meanwhile hits all of them.
            for k, is_needed in enumerate(needed):
                for way in [*servers][(seed + k) % len(servers):] + [*servers][:(seed + k) % len(servers)]:
                    found[way].append(play(servers[way], cascade, is_needed, images))
            for way, server in servers.items():
                cost = {"read_mib": f"{(costs[way][0] + server.read_bytes()) / MIB:.1f}",
                        "processor_s": f"{costs[way][1] + masa_servers.processor_seconds(server):.2f}"}
                rows += [{**facts, "way": way, "seed": seed, "job": k, **cost, **answer} for k, answer in enumerate(found[way])]
                serving.progress(f"{args.kind} p {p} {way}: {1e3 * statistics.mean(a['s'] for a in found[way]):.0f} ms, {cost}")
    return rows


def measure(args, where):
    kind, why = cgroup.find()
    if why:
        serving.progress(f"{why}: there is NO memory limit")
    names = [member.partition("<")[0] for member in JOBS[args.kind]]
    networks, images = serving.make_networks(args.python, where, args.scale, names)
    cascade = Cascade(args.kind, networks)
    place = Place(cascade, args.build.resolve(), args.python, where, networks, kind)
    budget = serving.budget_of(networks, args.memory, args.activations * MIB)
    for p in args.probability:
        rows = run(args, place, cascade, images, budget, p)
        new = not args.csv.exists()
        with open(args.csv, "a", newline="", encoding="utf-8") as file:
            out = csv.DictWriter(file, FIELDS)
            if new:
                out.writeheader()
            out.writerows({k: f"{v:.4f}" if isinstance(v, float) and k == "s" else v for k, v in row.items()} for row in rows)


def show(rows):
    lines, mean = [], {}
    for row in rows:
        mean.setdefault((row["kind"], row["memory"], row["policy"], row["p"], row["way"]), []).append(row)
    ms = {key: 1e3 * statistics.mean(float(r["s"]) for r in own) for key, own in mean.items()}
    for key, own in mean.items():
        series = {r["seed"]: r for r in own}.values()
        better = min((ms[key[:4] + (way,)] for way in ("wait", "preempt") if key[:4] + (way,) in ms), default=None)
        lines.append((key[0], f"{float(key[1]):.0%}", own[0]["budget_mib"], key[2], key[3], key[4], str(len(own)), f"{ms[key]:.0f}",
                      f"{ms[key] / better:.3f}" if better else "", f"{sum(float(r['processor_s']) for r in series):.1f}",
                      f"{sum(float(r['read_mib']) for r in series):.0f}", table.same_bits(all(r["same"] == "True" for r in own))))
    return table.markdown_grid(("job", "memory", "MiB", "policy", "p", "cascades", "jobs", "mean ms", "x better of wait, preempt",
                                "processor s", "read MiB", "same bits"), lines)


def parse():
    parser = argparse.ArgumentParser(prog="bench/masa_cascades.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True, help="every job; a run is appended")
    parser.add_argument("--show", action="store_true", help="run nothing: print the table of --csv")
    parser.add_argument("--kind", choices=JOBS, default="light")
    parser.add_argument("--policy", default="completion", help="of swapnet-serve")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), help="of --cascades")
    parser.add_argument("--probability", type=lambda text: [float(p) for p in text.split(",")], default=[0.0, 0.5, 1.0])
    parser.add_argument("--memory", type=float, default=0.5, help="share of the weights")
    parser.add_argument("--scale", type=float, default=1.0, help="of the networks' weights")
    parser.add_argument("--jobs", type=int, default=10, help="of a series")
    parser.add_argument("--rounds", type=int, default=1, help="series, each with a seed of its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--activations", type=int, default=24, help="MiB that memory has room for beside weights")
    parser.add_argument("--disk", type=int, help="reads are throttled to so many MB/s")
    parser.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on the disk that is measured")
    parser.add_argument("--build", type=Path, default=variants.DEFAULT_LIBRARY.parent.parent)
    parser.add_argument("--python", default=pythons.PYTHON_113, help="interpreter whose PyTorch all servers use")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = parse()
    if not args.show:
        where = args.dir.resolve() / f"cascades-{args.scale}-{os.getpid()}"
        where.mkdir(parents=True)
        slow_disk.throttle(where, args.disk)
        try:
            measure(args, where)
        finally:
            shutil.rmtree(where, ignore_errors=True)
    with open(args.csv, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    print(show(rows))
    return 0 if all(row["same"] == "True" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
