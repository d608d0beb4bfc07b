"""swapnet-serve with its engine, real models, and public clients: the bits of each model alone, in memory for fewer."""
import concurrent.futures
import json
import os
import signal
import struct
import subprocess
import threading
import time

import pytest

import harness
import serve_front

MODELS = {"large": "large:1024:12:4", "other": "other:1024:10:4", "small": "small:64:3:4"}
CLIENTS = harness.REPO / ".deps" / "clients" / "bin" / "python"
KSERVE = harness.REPO / ".deps" / "kserve" / "bin" / "python"
FRONT_TYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16",
               "BYTES"]


@pytest.fixture(scope="module")
def made():
    """A function: the directory with a PyTorch's repository `models` and samples NAME.SEED.in and .out."""
    def fill(torch, where):
        harness.plain(torch, "save_models", str(where), *MODELS.values())
        for name in MODELS:
            (where / "models" / name / "1").mkdir(parents=True)
            (where / f"{name}.pt").rename(where / "models" / name / "1" / "model.pt")
        (where / "store").mkdir()
    with harness.made_once(fill) as make:
        yield make


def serving(torch, where, *options, memory="64M"):
    """96 MiB of models by default in 64, of which 16 are for requests and answers."""
    env = {"SWAPNET_PYTHON": torch.python, "SWAPNET_STORE": str(where / "store"), "SWAPNET_DAEMON": "off"}
    return serve_front.front(where / "models", "--engine", harness.BUILD / "bin" / "swapnet-engine", "--library", harness.LIBRARY,
                             "--buffers", "16M", *options, memory=memory, env=env)


def ask(server, where, model, name, seed):
    """The body of a model's answer to a request of raw bytes, which are those of the model `name`."""
    data = (where / f"{name}.{seed}.in").read_bytes()
    head = json.dumps({"inputs": [{"name": "input", "shape": [4, len(data) // 16], "datatype": "FP32",
                                   "parameters": {"binary_data_size": len(data)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    status, _, body = server.infer(model, head + data, {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200, body[:500]
    return body


def ask_binary(server, where, name, seed):
    """The bits of an answer to a request of raw bytes."""
    return ask(server, where, name, name, seed)[-len((where / f"{name}.{seed}.out").read_bytes()):]


def ask_by(program, least, *args, python=CLIENTS):
    """A client's program, which fails where the server does not do what the client expects, and compares `least` things."""
    assert python.exists(), "run scripts/setup --with-clients"
    with harness.disk_dir() as where:
        record = where / "record.json"
        done = subprocess.run([python, harness.program_file(program), record, *map(str, args)], capture_output=True, text=True,
                              timeout=harness.HANG_S)
        assert done.returncode == 0, done.stderr
        found = json.loads(record.read_text(encoding="ascii"))
        assert len(found) >= least, found


@pytest.mark.by_turns
def test_tritonclient_gets_the_bits_of_each_model(torch, made):
    where = made(torch)
    with serving(torch, where) as server:
        server.ready()
        ask_by("triton_client", 60, server.port, where, *MODELS)
        assert server.metric("swapnet_serve_engine_restarts_total") == 0


def test_client_made_from_the_protocol_gets_the_bits_of_each_model(torch113, made):
    where = made(torch113)
    with serving(torch113, where) as server:
        ask_by("generated_client", 33, server.ready().port, where, *MODELS)


@pytest.mark.skipif(not KSERVE.exists(), reason="KServe's SDK is not there: scripts/setup --with-kserve")
def test_client_of_kserve_gets_the_bits_of_each_model(torch113, made):
    where = made(torch113)
    with serving(torch113, where) as server:
        ask_by("kserve_client", 93, server.ready().port, where, *MODELS, python=KSERVE)


def test_every_type_passes_the_server(tmp_path):
    names = {kind.lower(): f"type={kind} rank=2" for kind in FRONT_TYPES}
    with serve_front.front(serve_front.repository(tmp_path, **names)) as server:
        ask_by("triton_types", 600, server.ready().port, *(f"{name}:INPUT0:OUTPUT0:{name.upper()}" for name in names))


def test_every_type_of_pytorch_passes_a_model(torch, tmp_path):
    file = tmp_path / "models" / "same" / "1" / "model.pt"
    file.parent.mkdir(parents=True)
    harness.make(torch, "save_identity", str(file), where=tmp_path / "made")
    (tmp_path / "store").mkdir()
    kinds = ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16"]
    with serving(torch, tmp_path) as server:
        ask_by("triton_types", 400, server.ready().port, *(f"same:x:OUTPUT__0:{kind}" for kind in kinds))


def test_types_that_torchscript_lacks_pass_a_model_in_python(torch213, tmp_path):
    folder = tmp_path / "models" / "same" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("class Model:\n    def __call__(self, x):\n        return x\n")
    (tmp_path / "store").mkdir()
    with serving(torch213, tmp_path, memory="128M") as server:
        ask_by("triton_types", 180, server.ready().port, *(f"same:x:OUTPUT__0:{kind}" for kind in ("UINT16", "UINT32", "UINT64", "BYTES")))


@pytest.mark.by_turns
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


@pytest.mark.parametrize("policy", ["lookahead", "masa", "bulk", "deepeye"])
def test_bits_are_those_of_each_model_under_policies_over_tasks(torch113, made, policy):
    where = made(torch113)
    asked = [(name, seed) for seed in range(3) for name in MODELS]
    with serving(torch113, where, "--policy", policy) as server, concurrent.futures.ThreadPoolExecutor(6) as pool:
        server.ready()
        answers = pool.map(lambda one: ask_binary(server, where, *one), 2 * asked)
        assert list(answers) == [(where / f"{name}.{seed}.out").read_bytes() for name, seed in 2 * asked]


def make_cascade(where, threshold):
    """Model `cascade`: `other`, and `large` on the same input where `other` has a number above the threshold."""
    for name in ("other", "large"):
        (where / "cascade" / "models" / name / "1").mkdir(parents=True)
        os.link(where / "models" / name / "1" / "model.pt", where / "cascade" / "models" / name / "1" / "model.pt")
    (where / "cascade" / "store").mkdir()
    (where / "cascade" / "models" / "both" / "1").mkdir(parents=True)
    def step(name, more=""):
        return (f"step {{ model_name: '{name}' input_map {{ key: 'input' value: 'input' }} "
                f"output_map {{ key: 'OUTPUT__0' value: '{name}' }} {more} }}\n")
    (where / "cascade" / "models" / "both" / "config.pbtxt").write_text(
        "platform: 'ensemble' input { name: 'input' data_type: TYPE_FP32 dims: [-1, -1] }\n"
        "output { name: 'other' data_type: TYPE_FP32 dims: [-1, -1] }\noutput { name: 'large' data_type: TYPE_FP32 dims: [-1, -1] }\n"
        f"ensemble_scheduling {{\n{step('other')}"
        + step("large", f"condition {{ tensor: 'other' max_above: {threshold!r} }}") + "}\n")


def test_cascades_have_the_bits_of_each_model(torch113, made):
    """Whatever is read or computed before it is known whether it is needed. They have room for two thirds of their weights."""
    where = made(torch113)
    answers = {name: [(where / f"{name}.{seed}.out").read_bytes() for seed in range(3)] for name in ("other", "large")}
    most = [max(struct.unpack(f"<{len(data) // 4}f", data)) for data in answers["other"]]
    threshold = sorted(most)[1]
    make_cascade(where, threshold)
    wanted = [answers["other"][seed] + (answers["large"][seed] if most[seed] > threshold else b"") for seed in range(3)]
    assert len(set(map(len, wanted))) == 2
    for cascades in ("preempt", "prefetch"):
        with serving(torch113, where / "cascade", "--cascades", cascades) as server, \
                concurrent.futures.ThreadPoolExecutor(2) as pool:
            server.ready()
            found = list(pool.map(lambda seed: ask(server, where, "both", "other", seed), 2 * [0, 1, 2]))
        assert [data[-len(wanted[seed]):] for seed, data in zip(2 * [0, 1, 2], found)] == 2 * wanted
        assert [b"swapnet_skipped" in data for data in found] == 2 * [most[seed] <= threshold for seed in range(3)]


def ask_for_map(server, where, seed, pixels):
    """The bits of an answer about an image."""
    data = (where / f"{seed}.in").read_bytes()
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 3, pixels, pixels], "datatype": "FP32",
                                   "parameters": {"binary_data_size": len(data)}}],
                       "parameters": {"binary_data_output": True}}).encode()
    status, _, body = server.infer("convs", head + data, {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200, body[:500]
    return body[-len((where / f"{seed}.out").read_bytes()):]


def tensors_of(server):
    """Bytes that the engines have in memory beside files, and PyTorch's own among them."""
    found = 0
    for pid in server.engines():
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            fields = dict(line.split(":", 1) for line in f)
        found += sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
    return found


@pytest.mark.by_turns
def test_activations_of_requests_at_once_stay_within_memory(torch, tmp_path):
    """Each tensor of a request has 8 MiB, which is more than all weights: three are alive at most, and one while it is set
    aside. The engine has room for one request that runs and for the states of few, and is never asked for more."""
    pixels, count, at_once, memory = 512, 3, 8, 140
    (tmp_path / "store").mkdir()
    folder = tmp_path / "models" / "convs" / "1"
    folder.mkdir(parents=True)
    harness.make(torch, "save_activations", str(folder / "model.pt"), str(tmp_path), str(pixels), str(count), where=tmp_path / "made")
    trace, answers, peak = tmp_path / "trace.json", {}, 0

    def client(server, number):
        answers[number] = ask_for_map(server, tmp_path, number % count, pixels)
    with serving(torch, tmp_path, "--buffers", "64M", "--policy", "batch", "--connections", "16", "--queue", "32", "--trace", trace,
                 memory=f"{memory}M") as server:
        server.ready()
        before = tensors_of(server)
        threads = [threading.Thread(target=client, args=(server, n)) for n in range(at_once)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            peak = max(peak, tensors_of(server))
            time.sleep(0.005)
        budget = server.metric("swapnet_serve_engine_budget_bytes")
    assert all(answers[n] == (tmp_path / f"{n % count}.out").read_bytes() for n in range(at_once))
    assert 24 << 20 < peak - before <= budget + (32 << 20) < memory << 20, (before, peak, budget)
    names = [event.get("name", "") for event in json.loads(trace.read_text())]
    groups = [int(name.split()[1]) for name in names if name.startswith("convs ") and "#" in name]
    assert groups.count(0) == at_once and len(groups) == at_once * (max(groups) + 1)  # none began anew for want of memory
    assert any(a == b for a, b in zip(groups, groups[1:]))  # and some took turns


@pytest.mark.by_turns
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


@pytest.mark.by_turns
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
