"""swapnet-serve with its engine, real models, and public clients: the bits of each model alone, in memory for fewer."""
import json
import os
import signal
import subprocess
import threading

import pytest

import harness
import serve_front

MODELS = {"large": "large:1024:12:4", "other": "other:1024:10:4", "small": "small:64:3:4"}
CLIENTS = harness.REPO / ".deps" / "clients" / "bin" / "python"


@pytest.fixture(scope="module")
def made(request):
    """A function: the directory with a PyTorch's repository `models` and samples NAME.SEED.in and .out."""
    made = {}
    with harness.contextlib.ExitStack() as directories:
        def make(torch):
            if torch.name not in made:
                where = directories.enter_context(harness.disk_dir())
                harness.plain(torch, "save_models", str(where), *MODELS.values())
                for name in MODELS:
                    (where / "models" / name / "1").mkdir(parents=True)
                    (where / f"{name}.pt").rename(where / "models" / name / "1" / "model.pt")
                (where / "store").mkdir()
                made[torch.name] = where
            return made[torch.name]
        yield make


def serving(torch, where, *options, memory="64M"):
    """96 MiB of models by default in 64, of which 16 are for requests and answers."""
    env = {"SWAPNET_PYTHON": torch.python, "SWAPNET_STORE": str(where / "store"), "SWAPNET_DAEMON": "off"}
    return serve_front.front(where / "models", "--engine", harness.BUILD / "bin" / "swapnet-engine", "--library", harness.LIBRARY,
                             "--buffers", "16M", *options, memory=memory, env=env)


def ask_binary(server, where, name, seed):
    """The bits of an answer to a request of raw bytes."""
    data = (where / f"{name}.{seed}.in").read_bytes()
    head = json.dumps({"inputs": [{"name": "input", "shape": [4, len(data) // 16], "datatype": "FP32",
                                   "parameters": {"binary_data_size": len(data)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    status, _, body = server.infer(name, head + data, {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200, body[:500]
    return body[-len((where / f"{name}.{seed}.out").read_bytes()):]


def test_tritonclient_gets_the_bits_of_each_model(torch, made):
    assert CLIENTS.exists(), "run scripts/setup --with-clients"
    where = made(torch)
    with serving(torch, where) as server:
        server.ready()
        record = where / "record.json"
        done = subprocess.run([CLIENTS, harness.program_file("triton_client"), record, str(server.port), where, *MODELS],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(record.read_text())) > 60
        assert server.metric("swapnet_serve_engine_restarts_total") == 0


def test_clients_at_once_get_their_own_answers(torch, made):
    where = made(torch)
    wrong, count = [], [0]

    def client(server, number):
        for turn in range(12):
            name, seed = list(MODELS)[(number + turn) % len(MODELS)], (number * turn) % 3
            if ask_binary(server, where, name, seed) != (where / f"{name}.{seed}.out").read_bytes():
                wrong.append((number, turn))
            count[0] += 1
    with serving(torch, where) as server:
        server.ready()
        threads = [threading.Thread(target=client, args=(server, n)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong and count[0] == 96


def test_engine_that_is_killed_comes_back_with_its_models(torch, made):
    where = made(torch)
    with serving(torch, where) as server:
        server.ready()
        for turn in range(3):
            for pid in server.engines():
                os.kill(pid, signal.SIGKILL)
            for name in MODELS:
                assert ask_binary(server, where, name, turn) == (where / f"{name}.{turn}.out").read_bytes()
        assert server.metric("swapnet_serve_engine_restarts_total") >= 1


def test_model_that_is_no_model_is_reported_and_others_serve(torch, made):
    where = made(torch)
    broken = where / "models" / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.pt").write_bytes(b"PK\3\4 and nothing more")
    try:
        with serving(torch, where, "--strict-readiness", "false") as server:
            server.ready()
            assert ask_binary(server, where, "small", 0) == (where / "small.0.out").read_bytes()
            index = json.loads(server.ask("POST", "/v2/repository/index")[2])
            entry = next(m for m in index if m["name"] == "broken")
            assert entry["state"] == "UNAVAILABLE" and entry["reason"], entry
            assert server.infer("broken", b"{}")[0] in (400, 404, 503)
    finally:
        (broken / "model.pt").unlink()
        broken.rmdir()
        broken.parent.rmdir()
