"""`swapnetctl status` shows a server with its engines and models, and `set` changes its budget, with and without a daemon."""
import json
import os
import signal
import socket
import subprocess
import threading

import pytest

import serve_front
from daemons import CTL, daemon
from harness import HANG_S, MIB, clean_env, patience
from serve_front import body_of, front, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

BODY = body_of(tensor([0.0, 1.5]))


def ctl(place, *args):
    return subprocess.run([CTL, *map(str, args)], env=clean_env(patience(args) | {"XDG_RUNTIME_DIR": place}), capture_output=True,
                          text=True, timeout=HANG_S, stdin=subprocess.DEVNULL)


def status(place, f):
    document = json.loads(ctl(place, "status", "-o", "json", f.process.pid).stdout)
    process, = document["processes"]
    return process


def test_models_engines_and_requests_are_shown(place, tmp_path):
    repo = repository(tmp_path, echo="weights=60", slow=f"wait_for={tmp_path / 'flag'}", broken="refuse=no_graph", sick="fail=no")
    (repo / "python" / "1").mkdir(parents=True)
    (repo / "python" / "1" / "model.py").write_text("weights=3")
    with front(repo, "--strict-readiness=false", env={"XDG_RUNTIME_DIR": place}) as f:
        f.ready()  # the status socket is there from then on
        wait_for(lambda: {m["state"] for m in status(place, f)["serve"]["models"]} == {"READY", "UNAVAILABLE"})
        for _ in range(2):
            assert f.infer("echo", BODY)[0] == 200
        assert f.infer("sick", BODY)[0] == 500
        c = f.connection()
        c.request("POST", "/v2/models/slow/infer", BODY)
        wait_for(lambda: sum(m["running"] for m in status(place, f)["serve"]["models"]))
        process = status(place, f)
        serve, models = process["serve"], {m["name"]: m for m in process["serve"]["models"]}
        assert process["name"] == "swapnet-serve" and process["budget_bytes"] == 200 * MIB and process["torch_version"]
        assert serve["port"] == f.port and serve["policy"] == "completion" and serve["requests"] == 1
        assert serve["engine_budget_bytes"] == int(f.metric("swapnet_serve_engine_budget_bytes"))
        assert {e["pid"] for e in serve["engines"]} == set(f.engines())
        assert [e["kind"] for e in serve["engines"]] == ["shared", "worker"]
        assert models["echo"]["succeeded"] == 2 and models["echo"]["weight_bytes"] == 60 * MIB
        assert models["echo"]["engine"] == 0 and models["python"]["engine"] == 1
        assert models["sick"]["failed"] == 1 and models["slow"]["running"] == 1
        assert models["broken"]["state"] == "UNAVAILABLE" and "no_graph" in models["broken"]["reason"]
        assert len(models["echo"]["groups"]) == 3 and all(g["compute_ns"] > 0 for g in models["echo"]["groups"])
        table = ctl(place, "status", f.process.pid).stdout
        line = next(words for words in map(str.split, table.splitlines()) if words[:1] == ["echo"])
        assert line == ["echo", "1", "READY", "0", "60.0", "MiB", line[6], "MiB", "2", "0", "0", "0"], line
        (tmp_path / "flag").touch()
        assert c.getresponse().status == 200
        c.close()
        assert ctl(place, "status", "-o", "csv", f.process.pid).stdout.splitlines()[1].startswith(f"{f.process.pid},swapnet-serve,")
    assert not os.path.exists(f"{place}/swapnet/{f.process.pid}.sock")


def test_budget_is_set_without_a_daemon(place, tmp_path):
    log = tmp_path / "log"
    repo = repository(tmp_path / "repo", echo="weights=400")
    with front(repo, env={"XDG_RUNTIME_DIR": place, "FAKE_LOG": str(log)}) as f:
        f.ready()
        pid, most = f.process.pid, int(f.metric("swapnet_serve_engine_budget_bytes"))
        fixed = 200 * MIB - most
        assert ctl(place, "set", pid, "budget=150M").returncode == 0
        wait_for(lambda: int(f.metric("swapnet_serve_engine_budget_bytes")) == 150 * MIB - fixed)
        wait_for(lambda: f"BUDGET {150 * MIB - fixed}" in log.read_text())
        done = ctl(place, "set", pid, "budget=8M")
        assert done.returncode == 1 and "at least" in done.stderr
        assert status(place, f)["budget_bytes"] == 150 * MIB
        assert ctl(place, "set", pid, "budget=auto").returncode == 0
        wait_for(lambda: int(f.metric("swapnet_serve_engine_budget_bytes")) == most)


def test_engines_start_again_within_the_least_budget(place, tmp_path):
    """A part of what a worker has of --memory may be less than the library takes, and no engine may run without the library."""
    repo = repository(tmp_path, echo="weights=400")
    (repo / "python" / "1").mkdir(parents=True)
    (repo / "python" / "1" / "model.py").write_text("weights=100")
    with front(repo, env={"XDG_RUNTIME_DIR": place}) as f:
        f.ready()
        done = ctl(place, "set", f.process.pid, "budget=8M")
        assert done.returncode == 1 and "at least" in done.stderr
        most = int(f.metric("swapnet_serve_engine_budget_bytes"))
        least = 200 * MIB - most + 2 * 8 * MIB  # as swapnet-serve(8) has it
        assert ctl(place, "set", f.process.pid, f"budget={least}").returncode == 0
        wait_for(lambda: int(f.metric("swapnet_serve_engine_budget_bytes")) == 2 * 8 * MIB)
        wait_for(lambda: sum(e["budget_bytes"] for e in status(place, f)["serve"]["engines"]) == 2 * 8 * MIB)
        for engine in status(place, f)["serve"]["engines"]:
            os.kill(engine["pid"], signal.SIGKILL)
        for name in "python", "echo":
            assert f.infer(name, BODY)[0] == 200
        f.ready()
        assert [e["budget_bytes"] for e in status(place, f)["serve"]["engines"]] == [8 * MIB] * 2


def test_engine_of_its_own_has_what_the_library_takes(place, tmp_path):
    repo = repository(tmp_path, bad="die=6")
    with front(repo, "--buffers", "24M", memory="64M", env={"XDG_RUNTIME_DIR": place}) as f:
        f.ready()
        assert f.metric("swapnet_serve_engine_budget_bytes") < 32 * MIB
        assert f.infer("bad", BODY)[0] == 500
        wait_for(lambda: "get" in f.said("engines died under it.*")[0])
        wait_for(lambda: len(status(place, f)["serve"]["engines"]) == 2)
        budgets = [e["budget_bytes"] for e in status(place, f)["serve"]["engines"]]
        assert all(not bytes_ or 8 * MIB <= bytes_ < 64 * MIB for bytes_ in budgets), budgets


def test_daemon_shows_and_sets_a_server_by_its_name(place, tmp_path):
    repo = repository(tmp_path, echo="weights=300")
    with daemon(place, "--total", "180M") as d, front(repo, env={"XDG_RUNTIME_DIR": place, "SWAPNET_NAME": "shop"}) as f:
        f.ready()
        assert d.ctl("set", "shop", "budget=120M", "urgency=3").returncode == 0
        wait_for(lambda: d.knows(f.process.pid)["counted_bytes"] == 120 * MIB)
        process = status(place, f)
        assert process["budget_bytes"] == 120 * MIB and process["urgency"] == 3 and process["state"] == "running"
        # Its own maximum, beside the daemon's leases.
        assert d.ctl("set", "shop", "budget=auto").returncode == 0
        assert d.ctl("set", f.process.pid, "budget=100M", SWAPNET_DAEMON="off").returncode == 0
        wait_for(lambda: d.knows(f.process.pid)["counted_bytes"] == 100 * MIB)


@pytest.mark.parametrize("answer", [
    {"serve": {"models": [{"name": "\x1b[31mred\n", "version": "x", "reason": "a\x1b]0;b\x07c"}, 7, None], "engines": {"a": 1}}},
    {"serve": {"models": {}, "engines": [[], {"kind": "\u202eno"}], "policy": ["x"], "port": -1}}, {"serve": []}])
def test_server_that_lies_reaches_no_terminal(place, answer):
    """Any process of the user can listen there."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"{place}/swapnet/4711.sock")
        s.listen()

        def serve():
            peer, _ = s.accept()
            peer.makefile().readline()
            peer.sendall(json.dumps({"schema": 1, "pid": 4711, "name": "n"} | answer).encode() + b"\n")
            peer.close()
        thread = threading.Thread(target=serve)
        thread.start()
        done = ctl(place, "status", 4711)
        thread.join()
    assert done.returncode == 0 and not done.stderr
    assert all(c == "\n" or c.isprintable() for c in done.stdout), ascii(done.stdout)
