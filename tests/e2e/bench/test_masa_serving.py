"""bench/masa_serving.py and masa_cascades.py: jobs and when they come, the table, and which goals are missed; the servers have tests of their own."""
import argparse
import contextlib
import csv
import os
import statistics
import struct
import sys

import numpy
import pytest

import harness

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH / folder) for folder in (".", "lib", "serving", "tasks")]

import masa_jobs as jobs  # noqa: E402
import masa_cascades  # noqa: E402
import masa_serving  # noqa: E402
import masa_servers  # noqa: E402
import masa_terms  # noqa: E402


def networks():
    return [jobs.Network(name, 1000 * (i + 1), 500, "image", [b"0", b"1", b"2"]) for i, name in enumerate(jobs.NINE)]


@pytest.mark.parametrize("scenario", ["small", "one", "subset"])
def test_jobs_keep_a_server_busy_for_rho_of_the_time(scenario):
    nine = networks()
    made = jobs.make(scenario, nine, 400, 0.8, 3, lambda n: n.bytes / 1000)
    assert made == jobs.make(scenario, nine, 400, 0.8, 3, lambda n: n.bytes / 1000)
    work = sum(n.bytes / 1000 for job in made for n in job.members)
    assert work / (made[-1].at * 400 / 399) == pytest.approx(0.8, rel=0.03)
    assert all(a.at <= b.at and b.members for a, b in zip(made, made[1:]))
    sizes = {len(job.members) for job in made}
    assert sizes == ({1} if scenario == "one" else {9} if scenario == "small" else sizes) and (scenario != "subset" or len(sizes) > 4)


def test_answers_of_a_job_are_compared():
    a, b = networks()[:2]
    job = jobs.Job(0, (a, b), 1)
    assert jobs.Ensemble.is_same(job, [b"head11"]) and not jobs.Ensemble.is_same(job, [b"head12"])
    assert jobs.Raw.is_same(job, [b"x1", b"y1"]) and not jobs.Raw.is_same(job, [b"x1", b"y0"])
    assert len(jobs.Raw.requests(job, b"")) == 2 and b'"outputs": [{"name": "agenet"' in jobs.Ensemble.requests(job, b"")[0]


class Rested(contextlib.nullcontext):
    """A server that never starts."""
    ended = None

    def __init__(self, title):
        super().__init__(self)
        self.title, self.group = title, argparse.Namespace(close=lambda: None)


def test_all_servers_are_warmed_up_alike(monkeypatch):
    """TorchScript optimizes at its second call: a server that had only one would pay for it in the first job that counts."""
    place = argparse.Namespace(start=lambda policy, _: (Rested(policy), jobs.Raw))
    args = argparse.Namespace(policies=masa_serving.POLICIES, terms="whole", rounds=0, seed=1, activations=1, scenario="small", scale=1, disk=None, rho=0.8)
    bench, seen = masa_serving.Bench(args, place, networks()[:2], [b""]), []
    monkeypatch.setattr(bench, "play", lambda server, _, some: seen.extend([server.title] * len(some)) or [{"status": 200, "same": True}])
    bench.run_share(0.5)
    assert not bench.rows and {seen.count(policy) for policy in masa_serving.POLICIES} == {3 * 2}


def test_a_base_is_the_smallest_limit_that_is_enough():
    tried = []
    found = masa_terms.smallest(lambda limit: tried.append(limit) or limit >= 141, 16, 400, 4)
    assert 141 <= found < 141 + 4 and len(tried) < 10
    assert masa_terms.smallest(lambda limit: True, 16, 400, 4) < 16 + 2 * 4


class Answers(contextlib.nullcontext):
    """A server that needs so much memory, and reads all the time with less."""
    ended, port = None, 0

    def __init__(self, limit, needs):
        super().__init__(self)
        self.limit, self.needs, self.reads = limit, needs, 0
        self.group = argparse.Namespace(close=lambda: None, oom_kills=lambda: int(limit < needs / 2))

    def read_bytes(self):
        self.reads += (1 << 30) * (self.limit < self.needs)
        return self.reads


def test_terms_are_the_same_for_all(tmp_path, monkeypatch):
    mib = masa_terms.MIB
    needs = {"completion": 80 * mib, "mmap": 140 * mib, "swap": 60 * mib}
    monkeypatch.setattr(jobs, "play", lambda *_: [{"status": 200}])
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "0.in").write_bytes(b"")
    place = argparse.Namespace(folder=tmp_path, networks=networks()[:1], front=10 * mib, may_swap=False,
                               launch=lambda kind, limit, *_: (Answers(limit, needs[kind]), jobs.Raw))
    bases = masa_terms.Bases(place, tmp_path / "bases.json")
    own = {kind: bases.of(kind) for kind in needs}
    assert all(needs[kind] <= own[kind] <= needs[kind] + masa_terms.STEP for kind in needs)
    same = argparse.Namespace(may_swap=False, networks=networks()[:1])
    assert masa_terms.Bases(same, tmp_path / "bases.json").of("mmap") == own["mmap"]

    needs["mmap"] = 90 * mib
    place.networks = networks()[:2]
    assert masa_terms.Bases(place, tmp_path / "bases.json").of("mmap") < own["mmap"]
    place.networks = networks()[:1]
    place.may_swap = True
    assert masa_terms.Bases(place, tmp_path / "bases.json").of("mmap") < own["mmap"]

    place.may_swap = False
    each = masa_terms.Terms("weights", bases, 10 * mib)
    assert each.limits("bulk", mib, masa_servers.RIVALS) == (own["completion"] + mib, 11 * mib)
    assert [each.limits(p, mib, masa_servers.RIVALS)[0] - own[p] for p in masa_servers.RIVALS] == [mib, mib]
    whole = masa_terms.Terms("whole", bases, 10 * mib)
    assert {whole.limits(p, mib, masa_servers.RIVALS)[0] for p in masa_serving.POLICIES} == {own["mmap"] + mib}
    assert whole.limits("completion", mib, masa_servers.RIVALS)[1] == 10 * mib + own["mmap"] + mib - own["completion"]


def test_libraries_are_pinned_and_models_are_not(tmp_path):
    size = 1 << 20
    mapped = {}
    for name in "library.so", "model.weights":
        (tmp_path / name).write_bytes(b"x" * size)
        mapped[name] = numpy.memmap(tmp_path / name, numpy.uint8, "r")
    before = _locked_kib()
    pinned = masa_terms.Pinned()
    pinned.files = {line.split(None, 5)[-1] for line in open("/proc/self/maps", encoding="utf-8").read().splitlines()
                    if str(tmp_path) not in line}
    pinned.of([os.getpid()])
    assert str(tmp_path / "library.so") in pinned.files and str(tmp_path / "model.weights") not in pinned.files
    assert _locked_kib() - before == size >> 10


def _locked_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status", encoding="utf-8") if line.startswith("VmLck:"))


def test_table_and_goals(tmp_path):
    rows = [{"scenario": "small", "scale": 1.0, "memory": share, "budget_mib": "9", "disk": 0, "rho": 0.8, "policy": policy, "seed": 1,
             "job": job, "networks": "agenet", "at": 1.0, "sent": 1.0, "done": 1 + seconds + job / 100, "status": 200, "same": True,
             "processor_s": "0.5", "read_mib": "7", "note": ""}
            for share, policy, seconds in ((1.0, "completion", 0.104), (1.0, "bulk", 0.1), (0.5, "completion", 0.3), (0.5, "bulk", 0.4))
            for job in range(3)]
    masa_serving.write(tmp_path / "out.csv", rows[:6])
    masa_serving.write(tmp_path / "out.csv", rows[6:])
    with open(tmp_path / "out.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert masa_serving.means(read)["small", "0.5000", "bulk"] == pytest.approx(1e3 * statistics.mean((0.4, 0.41, 0.42)), rel=1e-3)
    assert "| completion | 3 of 3 | 310 | 0.76 |" in masa_serving.show(read)
    assert list(masa_serving.misses(read)) == ["small at 50%: 2.82 times the best other with all memory"]


def test_a_cascade_has_an_image_for_which_all_is_needed(tmp_path):
    said = {"memnet": (9, 9, 9), "tinyyolo": (1, 3, 2)}
    heavy = [jobs.Network(name, 1000, 500, "image", [struct.pack("<f", n) for n in said.get(name, (7, 8, 9))])
             for name in (member.partition("<")[0] for member in masa_cascades.JOBS["heavy"])]
    cascade = masa_cascades.Cascade("heavy", heavy)
    yes, no = cascade.job(True), cascade.job(False)
    assert (yes.image, no.image) == (1, 0)
    assert cascade.is_same(yes, [b"".join(n.outputs[1] for n in heavy)])
    assert cascade.is_same(no, [heavy[0].outputs[0] + heavy[1].outputs[0]])
    assert not cascade.is_same(yes, [b"".join(n.outputs[0] for n in heavy)])
    cascade.write(tmp_path)
    text = (tmp_path / "job" / "config.pbtxt").read_text()
    assert "condition { tensor: 'tinyyolo' max_above: 2.5 }" in text
    assert text.count("condition { tensor: 'facenet' max_above: -1e+30 }") == 3 and text.count("condition") == 4


def test_prefetch_is_compared_with_the_better_of_both():
    rows = [{"kind": "light", "memory": "0.5", "budget_mib": "9", "policy": "completion", "p": "0.5", "way": way, "seed": "1", "job": str(job),
             "s": str(seconds), "processor_s": "0.5", "read_mib": "7", "same": "True"}
            for way, seconds in (("wait", 0.2), ("preempt", 0.25), ("prefetch", 0.15)) for job in range(2)]
    shown = masa_cascades.show(rows)
    assert "| prefetch | 2 | 150 | 0.750 |" in shown and "| preempt | 2 | 250 | 1.250 |" in shown
