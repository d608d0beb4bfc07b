"""`swapnetctl serve plan`: what-if questions about a server's models, with what it has measured or with a file."""
import csv
import io
import json
import subprocess

import pytest

import serve_front
from daemons import CTL
from harness import clean_env
from serve_front import body_of, front, repository, tensor

MS, MIB = 1_000_000, 1 << 20
MODELS = {"disk_bytes_per_s": 1000 * MIB, "models": [
    {"name": "large", "groups": [{"weight_bytes": 100 * MIB, "compute_ns": 20 * MS}] * 2},
    {"name": "small", "groups": [{"weight_bytes": 10 * MIB, "compute_ns": 2 * MS}]}]}


def plan(*args, **env):
    return subprocess.run([CTL, "serve", "plan", *map(str, args)], env=clean_env(env), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def planned(*args, **env):
    done = plan(*args, "-o", "json", **env)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return document, {m["name"]: m for m in document["models"]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "models.json"
    path.write_text(json.dumps(MODELS))
    return path


def test_memory_decides_what_is_read_and_how_long_it_takes(file):
    args = "-f", file, "large,rate=2,deadline=150", "small,rate=5"
    little, with_little = planned("-b", "100M", *args)
    enough, with_enough = planned("-b", "300M", *args)
    assert with_enough["large"]["p50_latency_s"] == pytest.approx(0.04, rel=0.01)
    assert with_enough["small"]["p50_latency_s"] == pytest.approx(0.002, rel=0.01)
    assert with_enough["large"]["resident_bytes"] > 195 * MIB and enough["read_bytes_per_s"] < 5 * MIB
    assert with_little["large"]["p50_latency_s"] >= 0.2 and little["read_bytes_per_s"] > 300 * MIB
    assert with_little["large"]["on_time"] < 0.5 < 0.95 < with_enough["large"]["on_time"]
    assert sum(m["resident_bytes"] for m in with_little.values()) <= 100 * MIB
    row = next(csv.DictReader(io.StringIO(plan("-b", "300M", *args, "-o", "csv").stdout)))
    assert row["name"] == "large" and float(row["p50_latency_s"]) == pytest.approx(with_enough["large"]["p50_latency_s"])
    none, models = planned("-b", "300M", "-d", "0.001", "-f", file, "large,rate=0.001")  # in which no request comes
    assert none["simulated_s"] == none["read_bytes_per_s"] == none["busy"] == models["large"]["requests"] == 0
    assert "reads 0.0 MiB a second" in plan("-b", "300M", "-d", "0.001", "-f", file, "large,rate=0.001").stdout
    table = plan("-b", "300M", *args).stdout.splitlines()
    assert table[0].startswith("MODEL") and table[1].split()[:2] == ["large", "2"]


def test_policy_decides_what_is_shared(file):
    args = "-b", "100M", "-f", file, "large,rate=6", "-d", "20"
    shared, alone = planned(*args)[1]["large"], planned(*args, "--policy", "no-batch")[1]["large"]
    assert shared["batch"] > 1.2 and alone["batch"] == 1 and shared["mean_latency_s"] < alone["mean_latency_s"]


@serve_front.needs_serve
def test_running_server_is_asked(place, tmp_path):
    repo = repository(tmp_path, echo="slow_ms=5", idle="")
    with front(repo, env={"XDG_RUNTIME_DIR": place}) as f:
        f.ready()
        for _ in range(3):
            assert f.infer("echo", body_of(tensor([0.0, 1.5])))[0] == 200
        _, models = planned("-f", f.process.pid, "-b", "100M", "echo,rate=3", XDG_RUNTIME_DIR=place)
        assert 0.015 <= models["echo"]["p50_latency_s"] < 1 and models["echo"]["on_time"] == 1
        done = plan("-f", f.process.pid, "-b", "100M", "idle,rate=3", XDG_RUNTIME_DIR=place)
        assert done.returncode == 1 and "has not run yet" in done.stderr


@pytest.mark.parametrize("args, code, words", [
    (["a,rate=0"], 2, "rate"), (["large"], 2, "needs a rate"), ([], 2, "from 1 to"), (["large,rate=1", "--policy", "best"], 2, "--policy 'best' is not right: use one of completion"),
    (["large,rate=1", "--turns", "501"], 2, "--turns '501' is not right: use a number from 1 to 500"),
    (["large,rate=1", "--budget", "0"], 2, "--budget '0'"), (["large,rate=1", "large,rate=2"], 2, "named twice"),
    (["large,rate=1e9"], 2, "to 1000000"),
    (["none,rate=1"], 1, "no model none"), (["large,rate=1", "--seed", "x"], 2, "--seed 'x'")])
def test_what_is_wrong_is_said(file, args, code, words):
    done = plan("-f", file, "-b", "1G", *args)
    assert done.returncode == code and words in done.stderr, done.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"models": {}}', '{"models": [7, {"name": "a"}]}',
                                  '{"disk_bytes_per_s": -1, "models": [{"name": "a", "groups": []}]}',
                                  '{"disk_bytes_per_s": 1, "models": [{"name": "a", "groups": [{"weight_bytes": 1e300, "compute_ns": 1}]}]}',
                                  '{"disk_bytes_per_s": 1, "models": [{"name": "a", "groups": [{"weight_bytes": 1, "compute_ns": null}]}]}'])
def test_file_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "models.json"
    path.write_text(text)
    done = plan("-f", path, "-b", "1G", "a,rate=1")
    assert done.returncode == 1 and done.stderr, done
