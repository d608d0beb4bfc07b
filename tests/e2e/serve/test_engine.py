"""swapnet-engine: loads models by reference, runs requests group by group, within its budget, and says what is wrong."""
import contextlib
import json
import os
import struct

import pytest

import harness
from serve_engine import ELEMENT, Engine, Head, ServeError

MODELS = ("large:1024:12:4", "other:1024:10:4", "small:64:3:4", "tall:1024:3:8192")
ENGINE = harness.BUILD / "bin" / "swapnet-engine"


@pytest.fixture(scope="module")
def made(request):
    """{PyTorch's name: a directory with the models and what they answer}."""
    made = {}
    with contextlib.ExitStack() as directories:
        def make(torch):
            if torch.name not in made:
                where = directories.enter_context(harness.disk_dir())
                harness.plain(torch, "save_models", str(where), *MODELS)
                made[torch.name] = where
            return made[torch.name]
        yield make


@contextlib.contextmanager
def engine(torch, where, budget=None, **variables):
    environment = {"SWAPNET_PYTHON": torch.python, **variables}
    if budget:
        environment |= harness.swapnet_env(budget, where / "stats.json", where / "store")
    with Engine(ENGINE, harness.clean_env(environment)) as e:
        assert e.receive("READY")[2].startswith(torch.name)
        yield e


def request(where, name, seed, rows=4):
    """(inputs, what the model's own forward() answers)"""
    data = (where / f"{name}.{seed}.in").read_bytes()
    return [("input", "FP32", (rows, len(data) // rows // 4), data)], (where / f"{name}.{seed}.out").read_bytes()


def answer(found):
    return found["OUTPUT__0"][2]


def test_models_take_turns_within_one_budget(torch, made):
    where = made(torch)
    with engine(torch, where, budget=120) as e:  # either large model fits, and would be read into memory
        for number, name in enumerate(("large", "other", "small")):
            e.load(number, where / f"{name}.pt")
    stats = json.loads((where / "stats.json").read_text())
    assert stats["deferred_bytes"] > 80 << 20 and stats["spilled_bytes"] == 0
    with engine(torch, where, budget=24) as e:
        for number, name in enumerate(("large", "other", "small")):
            head, tensors, _ = e.load(number, where / f"{name}.pt")
            assert head.inputs == 1 and tensors[0].name == b"input" and tensors[0].element == ELEMENT["FP32"]
        for seed in (0, 1, 2, 0):
            for number, name in enumerate(("large", "other", "small")):
                inputs, want = request(where, name, seed)
                assert answer(e.infer(number, inputs)) == want, (name, seed)
    assert e.process.returncode == 0, e.process.stderr
    stats = json.loads((where / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 24 << 20
    assert stats["deferred_bytes"] > 0 and stats["spilled_bytes"] == 0  # by reference, so nothing is written


def test_requests_take_turns_at_each_group(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        assert e.load(1, where / "large.pt", groups=1000)[0].groups == 24
        (one, want_one), (two, want_two) = request(where, "large", 0), request(where, "large", 1)
        first, groups, _ = e.begin(1, one)
        second, _, _ = e.begin(1, two, at=1 << 20)
        for group in range(1, groups):
            _, outputs_one, _ = e.ask("RUN", request=first, model=1, group=group)
            _, outputs_two, _ = e.ask("RUN", request=second, model=1, group=group)
        assert answer(e.fetch(second, outputs_two)) == want_two
        assert answer(e.fetch(first, outputs_one)) == want_one


def refused(e, status, op, **what):
    with pytest.raises(ServeError) as error:
        e.ask(op, **what)
    assert error.value.status == status, error.value
    return str(error.value)


def test_bad_requests_are_answered_and_the_model_stays(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        e.load(1, where / "small.pt")
        inputs, want = request(where, "small", 0)
        _, _, shape, data = inputs[0]

        def run(*described):
            tensors = e.tensors(described)
            return dict(request=99, model=1, tensors=tensors, inputs=len(tensors))
        assert "no input" in refused(e, "bad_input", "RUN", **run(("another", "FP32", shape, data)))
        assert "missing" in refused(e, "bad_input", "RUN", **run())
        assert "twice" in refused(e, "bad_input", "RUN", **run(inputs[0], ("INPUT__0", "FP32", shape, data)))
        assert "BYTES" in refused(e, "bad_input", "RUN", **run(("input", "BYTES", (1,), struct.pack("<I", 3) + b"abc")))
        refused(e, "failed", "RUN", **run(("input", "FP32", (4, 1), data[:16])))
        refused(e, "failed", "RUN", **run(("input", "INT64", (1, 64), data[:512])))
        refused(e, "unknown", "RUN", request=5, model=1, group=1)
        refused(e, "unknown", "RUN", request=5, model=7, tensors=e.tensors(inputs), inputs=1)
        refused(e, "unknown", "STORE", request=5)
        refused(e, "unreadable", "LOAD", model=2, text="/nowhere/model.pt")
        (where / "text.pt").write_bytes(b"no zip archive at all")
        refused(e, "unreadable", "LOAD", model=2, text=str(where / "text.pt"))
        e.send("DROP", request=1234)
        first, groups, _ = e.begin(1, inputs)
        assert "not the next" in refused(e, "failed", "RUN", request=first, model=1, group=groups)
        refused(e, "unknown", "RUN", request=first, model=1, group=1)  # a failure ends the request
        assert answer(e.infer(1, inputs)) == want
    assert e.process.returncode == 0


def test_dropped_and_unloaded_work_is_forgotten(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        e.load(1, where / "large.pt")
        inputs, want = request(where, "large", 1)
        first, _, _ = e.begin(1, inputs)
        e.send("DROP", request=first)
        refused(e, "unknown", "RUN", request=first, model=1, group=1)
        second, _, _ = e.begin(1, inputs)
        e.ask("UNLOAD", model=1)
        refused(e, "unknown", "RUN", request=second, model=1, group=1)
        refused(e, "unknown", "UNLOAD", model=1)
        e.load(1, where / "large.pt")
        assert answer(e.infer(1, inputs)) == want


def test_inputs_stay_as_they_were_sent(torch, made):
    """A request whose engine died is sent again, so a model that works in place must not change it."""
    where = made(torch)
    with engine(torch, where) as e:
        e.load(1, where / "small.pt")
        inputs, want = request(where, "small", 2)
        request_number, groups, outputs = e.begin(1, inputs)
        assert os.pread(e.memory, len(inputs[0][3]), 0) == inputs[0][3]
        for group in range(1, groups):
            _, outputs, _ = e.ask("RUN", request=request_number, model=1, group=group)
        assert os.pread(e.memory, len(inputs[0][3]), 0) == inputs[0][3]
        assert answer(e.fetch(request_number, outputs, at=1 << 20)) == want


@pytest.mark.parametrize("packet", [b"x", bytes(Head(magic=1)), bytes(Head(magic=0x6E657773, version=99, op=2))])
def test_engine_leaves_at_a_message_that_is_not_well_formed(torch, made, packet):
    with engine(torch, made(torch)) as e:
        e.ours.send(packet)
        with pytest.raises(EOFError):
            e.receive()
    assert e.process.returncode == 4


def test_engine_without_a_pytorch_says_so(made):
    for variables, words in ((dict(SWAPNET_PYTHON="/nowhere/python"), "SWAPNET_PYTHON"), (dict(SWAPNET_TORCH="/etc"), "version.py")):
        with Engine(ENGINE, harness.clean_env(variables)) as e:
            said = e.process.communicate(timeout=120)[1].decode()
        assert e.process.returncode == 3
        assert words in said and said.count("\n") == 1, said


def test_request_larger_than_the_budget_is_answered_within_it(torch, made):
    where = made(torch)
    with engine(torch, where, budget=24) as e:
        e.load(1, where / "tall.pt")
        e.load(2, where / "large.pt")
        inputs, want = request(where, "tall", 0, rows=8192)
        assert answer(e.infer(1, inputs)) == want
        inputs, want = request(where, "large", 0)
        assert answer(e.infer(2, inputs)) == want
    stats = json.loads((where / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 24 << 20
