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
    args = argparse.Namespace(policies=masa_serving.POLICIES, rounds=0, seed=1, activations=1, scenario="small", scale=1, disk=None, rho=0.8)
    bench, seen = masa_serving.Bench(args, place, networks()[:2], [b""]), []
    monkeypatch.setattr(bench, "play", lambda server, _, some: seen.extend([server.title] * len(some)) or [{"status": 200, "same": True}])
    bench.run_share(0.5)
    assert not bench.rows and {seen.count(policy) for policy in masa_serving.POLICIES} == {3 * 2}


def test_libraries_count_as_base_and_weights_do_not(tmp_path):
    before, size = masa_servers.file_pages(os.getpid()), 8 << 20
    mapped = {}
    for name in "library.so", "model.weights":
        (tmp_path / name).write_bytes(b"x" * size)
        mapped[name] = numpy.memmap(tmp_path / name, numpy.uint8, "c")
        assert mapped[name][::4096].sum() > 0
        assert abs(masa_servers.file_pages(os.getpid()) - before - size) < size // 4
    mapped["library.so"][::4096] = 1  # its own copies: anonymous memory, which is counted as such
    assert abs(masa_servers.file_pages(os.getpid()) - before) < size // 4


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
