"""bench/masa.py and the simulator that it runs: arrivals that are written and read again give the same result, an experiment
gives a row for each policy, and what is wrong on the command line is said."""
import csv
import io
import subprocess
import sys

import harness
import pytest

SIMULATOR = harness.BUILD / "bin" / "swapnet-sched-sim"
LAYERS = """network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes
a,0,4000000,20000000,1000000,500000,0
a,1,9000000,1000000,100000,0,0
b,0,2000000,30000000,2000000,1000000,0
b,0,3000000,30000000,2000000,0,0
"""


def simulate(*words, code=0):
    done = subprocess.run([SIMULATOR, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(name="table")
def _table(tmp_path):
    path = tmp_path / "networks.csv"
    path.write_text(LAYERS)
    return path


def test_arrivals_that_are_written_are_read_again(table, tmp_path):
    load = ("--networks", table, "--scenario", "geometric", "--spacing", "poisson", "--jobs", 40, "--rho", 1.1, "--seed", 5)
    trace = tmp_path / "trace.csv"
    trace.write_text(simulate("arrivals", *load).stdout)
    machine = ("--memory", "14M", "--divide-disk")
    made = simulate("run", *load, *machine).stdout
    assert simulate("run", "--networks", table, "--arrivals", trace, *machine).stdout == made
    rows = {row["policy"]: row for row in csv.DictReader(io.StringIO(made))}
    assert len(rows) == 7
    assert all(int(row["jobs"]) == 40 for row in rows.values())
    assert rows["lookahead"]["over_commits"] == "0" and int(rows["lookahead"]["peak_bytes"]) <= 14 << 20


def test_no_schedule_is_shorter_than_the_exact_one(table):
    machine = ("--networks", table, "--memory", "13M", "--workers", 2)
    best = int(simulate("exact", *machine).stdout.split()[1])
    found = simulate("run", *machine, "--jobs", 1, "--objective", "makespan", "--private", "--policy", "lookahead").stdout
    end = int(next(csv.DictReader(io.StringIO(found)))["end_ns"])
    assert best <= end <= 1.22 * best


@pytest.mark.parametrize("words, said", [
    (("run",), "--networks is missing"),
    (("run", "--networks", "TABLE", "--policy", "mas"), "there is no 'mas'"),
    (("run", "--networks", "TABLE", "--memory", "-1"), "not a value of this option: '-1'"),
    (("run", "--networks", "TABLE", "--arrivals", "TABLE"), "line 1 is not one of a table of arrivals"),
    (("run", "--networks", "TABLE", "--members", "a,b<c"), "is not a list of networks")])
def test_what_is_wrong_is_said(table, words, said):
    done = simulate(*[str(table) if word == "TABLE" else word for word in words], code=2)
    assert said in done.stderr and not done.stdout.count("\n") > 1


def test_an_experiment_has_a_row_for_each_policy(tmp_path):
    out = tmp_path / "out.csv"
    done = subprocess.run([sys.executable, harness.REPO / "bench" / "masa.py", "estimates", "--jobs", "3", "--csv", out,
                           "--simulator", SIMULATOR], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(out.open(encoding="utf-8")))
    assert len(rows) == 5 * 5 and len({row["policy"] for row in rows}) == 5
    assert all(row["over-commits"] == "0" for row in rows if row["policy"].startswith("lookahead"))
    assert "## estimates" in done.stdout
