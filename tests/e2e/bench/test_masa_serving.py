"""bench/masa_serving.py: jobs and when they come, the table, and which goals are missed; the servers have tests of their own."""
import csv
import statistics
import sys

import pytest

import cgroup  # noqa: F401 - the tests' own, for all of them: masa_serving imports the bench's under the same name
import harness

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH / folder) for folder in (".", "lib", "serving", "tasks")]  # behind our own: both have a cgroup.py

import masa_jobs as jobs  # noqa: E402
import masa_serving  # noqa: E402


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


def test_table_and_goals(tmp_path):
    rows = [{"scenario": "small", "scale": 1.0, "memory": share, "budget_mib": "9", "disk": 0, "rho": 0.8, "policy": policy, "seed": 1,
             "job": job, "networks": "agenet", "at": 1.0, "sent": 1.0, "done": 1 + seconds + job / 100, "status": 200, "same": True,
             "processor_s": "0.5", "read_mib": "7", "note": ""}
            for share, policy, seconds in ((1.0, "lookahead", 0.104), (1.0, "bulk", 0.1), (0.5, "lookahead", 0.3), (0.5, "bulk", 0.4))
            for job in range(3)]
    masa_serving.write(tmp_path / "out.csv", rows[:6])
    masa_serving.write(tmp_path / "out.csv", rows[6:])
    with open(tmp_path / "out.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert masa_serving.means(read)["small", "0.5000", "bulk"] == pytest.approx(1e3 * statistics.mean((0.4, 0.41, 0.42)), rel=1e-3)
    assert "| lookahead | 3 of 3 | 310 | 0.76 |" in masa_serving.show(read)
    assert list(masa_serving.misses(read)) == ["small at 50%: 2.82 times the best other with all memory"]
