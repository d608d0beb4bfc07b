#!/usr/bin/env python3
"""The Masa paper's scenarios on the real server: jobs of several networks, little memory, one policy beside the other.

    python3 bench/masa_serving.py --scenario small --csv out.csv        # one run, appended to out.csv
    python3 bench/masa_serving.py --csv out.csv --show                  # its table

Each policy has a swapnet-serve of its own; beside them there are two servers that anyone could write: `mmap`, whose weights are
memory-mapped files, and `swap`, whose weights are ordinary memory that the kernel may swap out. All have a memory cgroup by the same
--terms, with room for --memory of the weights, and take turns: a series of jobs is played to one after the other, while the others
rest. Every answer is compared with plain PyTorch's, bit by bit."""
import argparse
import contextlib
import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / folder) for folder in ("lib", "serving", "tasks")]

import bench_cgroup as cgroup
import masa_jobs
import masa_servers
import masa_terms
import pythons
import slow_disk
import table
import variants
import zoo
from plan import MIB

POLICIES = ("lookahead", "completion", "masa", "bulk", "deepeye", *masa_servers.RIVALS)
OURS = ("completion", "lookahead")  # the default first
COLUMNS = ("scenario", "memory", "MiB", "rho", "server", "jobs", "mean ms", "x best other", "p95 ms", "processor s", "read MiB",
           "limit MiB", "same bits", "note")
MODELS = HERE / "tasks" / "masa_models.py"


def progress(text):
    print(f"masa_serving: {text}", file=sys.stderr, flush=True)


def make_networks(python, folder, scale, names):
    """[Network], made once."""
    models, samples = folder / "models", folder / "samples"
    samples.mkdir(parents=True, exist_ok=True)
    missing = [n for n in names if not (samples / f"{n}.{zoo.SAMPLES - 1}.out").exists()]
    if missing:
        progress(f"makes {len(missing)} networks")
        for arguments in (("models", models, scale), ("answers", models, samples, zoo.SAMPLES)):
            subprocess.run([python, MODELS, *map(str, arguments), *missing], check=True, env=masa_servers.environment())
    found = []
    for name in names:
        about = json.loads((models / name / "about.json").read_text())
        found.append(masa_jobs.Network(name, about["bytes"], about["largest"], about["input"],
                                       [(samples / f"{name}.{k}.out").read_bytes() for k in range(zoo.SAMPLES)]))
    return found, [(samples / f"{k}.in").read_bytes() for k in range(zoo.SAMPLES)]


def budget_of(networks, share, activations):
    """A share of the weights, but what the largest layer needs at least; and room for activations."""
    return round(max(share * sum(n.bytes for n in networks), 1.1 * max(n.largest for n in networks))) + activations


class Bench:
    def __init__(self, args, place, networks, images):
        self.args, self.place, self.networks, self.images = args, place, networks, images
        self.rows = []

    def play(self, server, protocol, jobs):
        return masa_jobs.play(server.port, protocol, jobs, self.images)

    def warm_up(self, server, protocol, rounds=3):
        """Times are learned; engines divide models anew after their second request, and TorchScript optimizes at its second call."""
        jobs = [masa_jobs.Job(0, (n,), 0) for _ in range(rounds) for n in self.networks]
        for job in jobs:
            row = self.play(server, protocol, [job])[0]
            if row["status"] != 200 or not row["same"]:
                raise RuntimeError(f"{server.title}: {row}\n{server.last_words()}")

    def measure_alone(self):
        """What each network takes with all weights in memory."""
        server, protocol = self.place.start("no-batch", budget_of(self.networks, 1.2, 2 * self.args.activations * MIB))
        with contextlib.closing(server.group), server:
            self.warm_up(server, protocol)
            for n in self.networks:
                jobs = [masa_jobs.Job(0, (n,), k % zoo.SAMPLES) for k in range(3)]
                times = [self.play(server, protocol, [job])[0] for job in jobs]
                n.alone_s = statistics.median(row["done"] - row["sent"] for row in times)
        progress("alone: " + ", ".join(f"{n.name} {1e3 * n.alone_s:.0f} ms, {n.bytes / MIB:.0f} MiB" for n in self.networks))

    def run_share(self, share):
        budget = budget_of(self.networks, share, self.args.activations * MIB)
        facts = {"scenario": self.args.scenario, "scale": self.args.scale, "memory": share, "budget_mib": f"{budget / MIB:.0f}",
                 "terms": self.args.terms, "disk": self.args.disk or 0, "rho": self.args.rho}
        with contextlib.ExitStack() as stack:
            servers = {}
            for policy in self.args.policies:
                server, protocol = self.place.start(policy, budget)
                stack.callback(server.group.close)
                stack.enter_context(server)
                try:
                    if server.ended:
                        raise RuntimeError(server.ended)
                    self.warm_up(server, protocol)
                    servers[policy] = (server, protocol)
                except RuntimeError as error:
                    progress(f"{policy} at {share:.0%}: {error}")
                    self.rows.append({**facts, "policy": policy, "note": str(error).splitlines()[0][:120]})
            for seed in range(self.args.seed, self.args.seed + self.args.rounds):
                self.one_round(facts, servers, seed)

    def one_round(self, facts, servers, seed):
        jobs = masa_jobs.make(self.args.scenario, self.networks, self.args.jobs, self.args.rho, seed,
                              lambda n: n.alone_s + n.bytes / (1e6 * (self.args.disk or self.args.speed)))
        turn = seed % len(servers)
        for policy in [*servers][turn:] + [*servers][:turn]:
            server, protocol = servers[policy]
            before, spent = server.read_bytes(), masa_servers.processor_seconds(server)
            answers = self.play(server, protocol, jobs)
            cost = {"limit_mib": (server.group.limit_bytes or 0) // MIB, "read_mib": f"{max(0, server.read_bytes() - before) / MIB:.1f}",
                    "processor_s": f"{max(0, masa_servers.processor_seconds(server) - spent):.2f}"}
            note = server.how() if server.process.poll() is not None or server.group.oom_kills() else ""
            self.rows += [{**facts, "policy": policy, "seed": seed, "note": note, **cost, **answer} for answer in answers]
            mean = statistics.mean(a["done"] - a["at"] for a in answers)
            progress(f"{facts['scenario']} {facts['memory']:.0%} seed {seed} {policy}: {1e3 * mean:.0f} ms, {cost['read_mib']} MiB")


def write(path, rows):
    if not rows:
        return
    columns = ("scenario", "scale", "terms", "memory", "budget_mib", "limit_mib", "disk", "rho", "policy", "seed", "job",
               "networks", "at", "sent", "done", "status", "same", "processor_s", "read_mib", "note")
    new = not path.exists()
    if not new and path.read_text(encoding="utf-8").splitlines()[:1] != [",".join(columns)]:
        raise SystemExit(f"masa: {path} has other columns; name another file")
    with open(path, "a", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, columns, restval="")
        if new:
            out.writeheader()
        out.writerows({k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def _groups(rows, *keys):
    found = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in keys), []).append(row)
    return found


def _line(head, policy, own, others):
    jobs = [row for row in own if row["job"] != ""]
    ms = sorted(1e3 * (float(row["done"]) - float(row["at"])) for row in jobs if row["status"] == "200")
    series = {row["seed"]: row for row in jobs}.values()
    note = next((row["note"] for row in own if row["note"]), "")
    scenario, share, mib, rho = head
    cells = [scenario, f"{float(share):.0%}", mib, f"{float(rho):g}", policy, f"{len(ms)} of {len(jobs)}"]
    if not ms:
        return (*cells, "", "", "", "", "", "", "", note)
    best = min(others, default=None)
    return (*cells, f"{statistics.mean(ms):.0f}", f"{statistics.mean(ms) / best:.2f}" if best else "",
            f"{ms[min(len(ms) - 1, int(0.95 * len(ms)))]:.0f}", f"{sum(float(r['processor_s']) for r in series):.1f}",
            f"{sum(float(r['read_mib']) for r in series):.0f}", next((r.get("limit_mib") or "" for r in jobs), ""),
            table.same_bits(all(row["same"] == "True" for row in jobs if row["status"] == "200")), note)


def means(rows):
    """{(scenario, memory, policy): mean response in ms} of those that answered all."""
    found = {}
    for key, own in _groups([row for row in rows if row["job"] != ""], "scenario", "memory", "policy").items():
        if all(row["status"] == "200" for row in own):
            found[key] = 1e3 * statistics.mean(float(row["done"]) - float(row["at"]) for row in own)
    return found


def show(rows):
    lines, mean = [], means(rows)
    for head, same in _groups(rows, "scenario", "memory", "budget_mib", "rho").items():
        others = {p: m for (s, share, p), m in mean.items() if (s, share) == head[:2]}
        for policy, own in _groups(same, "policy").items():
            lines.append(_line(head, policy[0], own, [m for p, m in others.items() if p != policy[0] and p not in OURS]))
    return table.markdown_grid(COLUMNS, lines)


def misses(rows):
    """What falls short of the goals: ours first, at most 1.05 of the best where memory is ample, and with half of it as good as others
    with all of it."""
    mean = means(rows)
    for scenario, share in sorted({key[:2] for key in mean}):
        own = mean.get((scenario, share, OURS[0]))
        others = {p: m for (s, h, p), m in mean.items() if (s, h) == (scenario, share) and p not in OURS}
        if own is None or not others:
            continue
        best, limit = min(others, key=others.get), 1.05 if float(share) >= 1 else 1.0
        if own > limit * others[best]:
            yield f"{scenario} at {float(share):.0%}: {own / others[best]:.2f} times {best}"
        ample = {p: m for (s, h, p), m in mean.items() if s == scenario and float(h) >= 1 and p not in OURS}
        if float(share) == 0.5 and ample and own > min(ample.values()):
            yield f"{scenario} at 50%: {own / min(ample.values()):.2f} times the best other with all memory"


def parse():
    parser = argparse.ArgumentParser(prog="bench/masa_serving.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True, help="every job; a run is appended")
    parser.add_argument("--show", action="store_true", help="run nothing: print the table of --csv")
    parser.add_argument("--scenario", choices=masa_jobs.SCENARIOS, default="small")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=list(POLICIES), help="of swapnet-serve; mmap and swap")
    parser.add_argument("--memory", type=lambda text: [float(s) for s in text.split(",")], default=[1.0, 0.5, 0.25],
                        help="shares of the weights")
    parser.add_argument("--terms", choices=masa_terms.TERMS, default="whole", help="whole: the same limit for each server as a whole; "
                        "weights: the same room for weights beside what each program needs")
    parser.add_argument("--bases", type=Path, help="a file that keeps what programs need, for later runs of the same build")
    parser.add_argument("--scale", type=float, default=1.0, help="of the networks' weights")
    parser.add_argument("--jobs", type=int, default=10, help="of a series")
    parser.add_argument("--rounds", type=int, default=1, help="series, each with a seed of its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rho", type=float, default=0.8, help="a job's time alone, reading included, over the time between two jobs")
    parser.add_argument("--activations", type=int, default=24, help="MiB that memory has room for beside weights")
    parser.add_argument("--disk", type=int, help="reads are throttled to so many MB/s")
    parser.add_argument("--speed", type=int, default=2000, help="MB/s that the disk gives where it is not throttled, for --rho")
    parser.add_argument("--dir", type=Path, default=variants.OUT, help="work directory, on the disk that is measured")
    parser.add_argument("--build", type=Path, default=variants.DEFAULT_LIBRARY.parent.parent)
    parser.add_argument("--python", default=pythons.PYTHON_113, help="interpreter whose PyTorch all servers use")
    return parser.parse_args()


def find_terms(args, where, kind):
    names, folder = masa_jobs.SCENARIOS[args.scenario], where / "hardly"
    networks, _ = make_networks(args.python, folder, masa_terms.HARDLY, names)
    bases = masa_terms.Bases(masa_servers.Place(args.build.resolve(), args.python, folder, networks, kind, "swap" in args.policies),
                             args.bases)
    own = next((p for p in args.policies if p not in masa_servers.RIVALS), None)
    kinds = [*(["completion"] if own else []), *(p for p in masa_servers.RIVALS if p in args.policies or p == "mmap")]
    bases.pin(kinds)
    progress("programs need " + ", ".join(f"{k} {bases.of(k) / MIB:.0f} MiB" for k in kinds))
    return masa_terms.Terms(args.terms, bases, masa_servers.FRONT)


def measure(args, where):
    kind, why = cgroup.find()
    if why:
        progress(f"{why}: there is NO memory limit")
    networks, images = make_networks(args.python, where, args.scale, masa_jobs.SCENARIOS[args.scenario])
    with contextlib.ExitStack() as stack:
        if "swap" in args.policies:
            none = stack.enter_context(masa_servers.swap_file(where, 4 * sum(n.bytes for n in networks) + 1024 * MIB))
            if none:
                progress(f"no server with swap: {none}")
                args.policies.remove("swap")
        place = masa_servers.Place(args.build.resolve(), args.python, where, networks, kind, "swap" in args.policies)
        bench = Bench(args, place, networks, images)
        place.terms = find_terms(args, where, kind)
        bench.measure_alone()
        for share in args.memory:
            try:
                bench.run_share(share)
            finally:
                write(args.csv, bench.rows)
                bench.rows = []


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = parse()
    if not args.show:
        where = args.dir.resolve() / f"masa-{args.scale}-{os.getpid()}"
        where.mkdir(parents=True)
        slow_disk.throttle(where, args.disk)
        began = time.monotonic()
        try:
            measure(args, where)
        finally:
            shutil.rmtree(where, ignore_errors=True)
        progress(f"{time.monotonic() - began:.0f} s")
    with open(args.csv, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for (terms,), same in _groups([{"terms": "", **row} for row in rows], "terms").items():
        print(f"{terms}:\n{show(same)}")
        for text in misses(same):
            print(f"missed: {text}", file=sys.stderr)
    return 0 if all(row["same"] in ("True", "") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
