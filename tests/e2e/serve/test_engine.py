"""swapnet-engine: loads models by reference, runs requests group by group, within its budget, and says what is wrong."""
import contextlib
import json
import os
import struct

import pytest

import harness
from serve_engine import ELEMENT, STEPS, Engine, Head, ServeError

MODELS = ("large:1024:12:4", "other:1024:10:4", "small:64:3:4", "tall:1024:2:8192", "first:1024:8:96", "second:1024:8:96",
          "trunk:1024:8:4", "branch:1024:9:4:trunk:5", "twin:1024:8:4:trunk:8")
# In which order two models are asked: no model follows another one each time.
TURNS = [int(turn) for turn in "0010110100101100"]
ENGINE = harness.BUILD / "bin" / "swapnet-engine"

pytestmark = pytest.mark.by_turns  # each PyTorch has the same source; test_tape.py and test_exported.py go by both


@pytest.fixture(scope="module")
def made():
    """{PyTorch's name: a directory with the models and what they answer}."""
    with harness.made_once(lambda torch, where: harness.plain(torch, "save_models", str(where), *MODELS)) as make:
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


def test_imports_nothing_from_the_working_directory(torch, tmp_path, monkeypatch):
    """To find PyTorch it asks the interpreter, which would look there first."""
    for name in "torch", "os", "json":
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with engine(torch, tmp_path):
        pass
    assert not (tmp_path / "was-run").exists()


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


@pytest.mark.timed
def test_operators_wait_less_where_the_engine_is_told_what_comes(torch, made):
    """Two engines run the same requests, one after the other each time, so both have the same disk and processors."""
    where = made(torch)
    pair = [request(where, name, 0, rows=96) for name in ("first", "second")]
    found = []
    with contextlib.ExitStack() as stack:
        engines = []
        for which in ("without", "told"):
            (where / which).mkdir(exist_ok=True)
            environment = harness.swapnet_env(36, where / which / "stats.json", where / which / "store")
            engines.append(stack.enter_context(
                Engine(ENGINE, harness.clean_env({"SWAPNET_PYTHON": torch.python, **environment}))))
        for e in engines:
            e.receive("READY")
            for number, name in enumerate(("first", "second")):
                e.load(number, where / f"{name}.pt")
        for i, number in enumerate(TURNS):
            inputs, want = pair[number]
            for e, then in zip(engines, (None, TURNS[i + 1:i + 4])):
                assert answer(e.infer(number, inputs, then)) == want, i
    for e, which in zip(engines, ("without", "told")):
        assert e.process.returncode == 0
        stats = json.loads((where / which / "stats.json").read_text())
        assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 36 << 20
        assert stats["spilled_bytes"] == 0 and stats["window_misses"] == 0
        found.append(stats)
    without, told = found
    assert told["streamed_bytes"] < without["streamed_bytes"] * 0.95, (told["streamed_bytes"], without["streamed_bytes"])
    harness.in_time(told["stalls"] < without["stalls"] * 0.7, (told["stalls"], without["stalls"]))


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


def in_lockstep(e, model, requests):
    """One pass of these inputs, group by group in turns, announced as swapnet-serve does: (bytes read, answers)."""
    begun, read, group, groups = [], 0, 0, e.division[model]
    while group < groups:
        for turn, inputs in enumerate(requests):
            then = ([(model, group)] if turn + 1 < len(requests) else []) + [(model, g) for g in range(group + 1, groups)]
            if group == 0:
                e.requests += 1
                begun.append([e.requests, ()])
                tensors = e.tensors(inputs)
                head, begun[turn][1], _ = e.ask("RUN", request=e.requests, model=model, tensors=tensors,
                                                inputs=len(tensors), steps=then[:STEPS])
            else:
                head, begun[turn][1], _ = e.ask("RUN", request=begun[turn][0], model=model, group=group,
                                                steps=then[:STEPS])
            read, groups = read + head.read_bytes, head.groups
        group += 1
    return read, [answer(e.fetch(number, outputs)) for number, outputs in begun]


def test_requests_in_lockstep_share_what_is_read(torch, made):
    """Their groups do not fit what a plan leaves for weights that come and go: kept weights make room for the turns."""
    where = made(torch)
    inputs, want = request(where, "second", 0, rows=96)
    with engine(torch, where, budget=16) as e:
        e.load(1, where / "second.pt")
        alone = [in_lockstep(e, 1, [inputs]) for _ in range(12)]
        together = [in_lockstep(e, 1, [inputs] * 5) for _ in range(3)]
    assert all(found == want for _, answers in alone + together for found in answers)
    stats = json.loads((where / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 16 << 20
    reads = sorted(read for read, _ in together)
    assert reads[1] <= (32 << 20) * 1.2, (reads, [read for read, _ in alone])  # all weights once; at least two and a half times without


def test_a_model_that_is_asked_again_reads_nothing(torch, made):
    """Each of three models fits and no two do. The first answer of an idle one reads its own weights and no others."""
    where = made(torch)
    models = (("first", 96), ("second", 96), ("other", 4))
    with engine(torch, where, budget=44) as e:
        for number, (name, _) in enumerate(models):
            e.load(number, where / f"{name}.pt")
        reads = []
        for number in (0, 1, 2) * 4 + (1, 0, 2, 0, 1, 2):
            inputs, want = request(where, models[number][0], 0, rows=models[number][1])
            read = []
            for _ in range(3):
                read_now, answers = in_lockstep(e, number, [inputs])
                assert answers == [want], models[number][0]
                read.append(read_now)
            reads.append((models[number][0], sum(g.bytes for g in e.last_groups), *read))
    stats = json.loads((where / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["spilled_bytes"] == 0 and stats["peak_resident_bytes"] <= 44 << 20
    for name, weights, first, second, third in reads[3:]:
        assert 0 < first <= weights + (4 << 20) and second == third == 0, reads  # whole chunks of 2 MiB are read


def test_engine_tells_the_weights_of_each_layer_group(torch, made):
    """In memory and on the disk: the server plans by it. A run tells what it has read, and how long it has waited."""
    where = made(torch)
    with engine(torch, where, budget=24) as e:
        e.load(1, where / "large.pt")
        loaded = e.groups
        assert sum(g.bytes for g in loaded) > 40 << 20 and len(loaded) > 1
        assert sum(g.in_memory for g in loaded) < 1 << 20  # loaded by reference: biases at most
        e.load(2, where / "small.pt")
        assert all(g.in_memory == g.bytes for g in e.groups)  # smaller than what comes and goes
        inputs, want = request(where, "large", 0)
        number, groups, outputs = e.begin(1, inputs)
        read = 0
        for group in range(1, groups):
            head, outputs, _ = e.ask("RUN", request=number, model=1, group=group)
            read += head.read_bytes
            assert e.groups[group].in_memory > 0 and head.wait_ns <= head.ns
        assert read >= sum(g.bytes for g in loaded[1:]) * 0.3  # the rest was read ahead, with the first group
        assert 8 << 20 < sum(g.in_memory for g in e.groups) <= 24 << 20
        assert answer(e.fetch(number, outputs)) == want
    with engine(torch, where) as e:  # without libswapnet all weights are in memory
        e.load(1, where / "large.pt")
        assert all(g.in_memory == g.bytes for g in e.groups) and e.groups


def test_engine_tells_what_of_other_models_is_in_memory(torch, made):
    """With the last group of a request: what it read may have taken the place of theirs. The next one for them reads the rest."""
    where = made(torch)
    with engine(torch, where, budget=44) as e:
        for number, name in ((1, "large"), (2, "trunk"), (3, "small")):
            e.load(number, where / f"{name}.pt")
        whole = {}
        for round_ in range(3):
            for number, name in ((1, "large"), (2, "trunk")):
                inputs, want = request(where, name, round_)
                told, before = sum(e.places.get(number, ())), e.read_bytes
                e.places = {}
                assert answer(e.infer(number, inputs)) == want
                whole[number] = sum(g.bytes for g in e.last_groups)
                if round_:
                    assert 0 < told < whole[number]
                    assert abs(whole[number] - told - (e.read_bytes - before)) <= 8 << 20  # whole chunks of 2 MiB are read
                assert set(e.places) == {1, 2, 3} - {number}
        inputs, want = request(where, "small", 0)
        e.places = {}
        assert answer(e.infer(3, inputs)) == want
        assert not e.places  # it has read nothing, so the others have what they had


def test_engine_tells_what_a_request_takes_in_each_layer_group(torch, made):
    """Its input, and each tensor that a step makes, has 32 MiB. The server bounds requests in lockstep by it."""
    where = made(torch)
    with engine(torch, where, budget=120) as e:
        e.load(1, where / "tall.pt", groups=4)
        assert len(e.groups) == 4 and not any(g.activation_bytes or g.state_bytes for g in e.groups)
        large, want = request(where, "tall", 0, rows=8192)
        inputs, known = [("input", "FP32", (4, 1024), large[0][3][:16 << 10])], []
        for one in (inputs, large, inputs):  # the most that any request has taken
            found = answer(e.infer(1, one))
            assert one is inputs or found == want
            known.append([(g.activation_bytes / 2**20, g.state_bytes / 2**20) for g in e.last_groups])
        assert all(0 < takes < 1 and held < takes for takes, held in known[0])
        assert all(64 <= takes < 66 and 32 <= held < 33 for takes, held in known[1]), known
        assert known[2] == known[1]
        e.load(2, where / "small.pt")
        assert not any(g.activation_bytes for g in e.groups)


def alike(one, other):
    """How many of the first groups of two models are the same."""
    pairs = [a.identity == b.identity != 0 for a, b in zip(one, other)]
    return pairs.index(False) if False in pairs else len(pairs)


def test_models_that_begin_alike_have_these_weights_once(torch, made):
    where = made(torch)
    with engine(torch, where, budget=64) as e:  # the three have 48 MiB together, and would have 100
        for number, name in enumerate(("trunk", "other", "branch", "twin")):
            e.load(number, where / f"{name}.pt")
        groups = {}
        for round_ in range(3):  # divided anew after the second request
            for number, name in enumerate(("trunk", "other", "branch", "twin")):
                inputs, want = request(where, name, round_)
                assert answer(e.infer(number, inputs)) == want, name
                groups[name] = e.last_groups
        common = alike(groups["trunk"], groups["branch"])
        assert sum(g.bytes for g in groups["trunk"][:common]) in range(20 << 20, 21 << 20)
        assert alike(groups["trunk"], groups["twin"]) == len(groups["trunk"]) == len(groups["twin"])
        assert alike(groups["trunk"], groups["other"]) == 0
        # What one of them has read is in memory for the others.
        e.ask("UNLOAD", model=1)
        for number, name in ((0, "trunk"), (2, "branch"), (3, "twin")):
            inputs, want = request(where, name, 0)
            assert answer(e.infer(number, inputs)) == want, name
        assert all(g.in_memory == g.bytes for g in e.last_groups[:common])
        # The weights stay as long as one has them.
        e.ask("UNLOAD", model=0)
        e.ask("UNLOAD", model=3)
        inputs, want = request(where, "branch", 1)
        assert answer(e.infer(2, inputs)) == want


def test_budget_changes_between_groups(torch, made):
    """The server divides one memory over its engines: a smaller budget is in force when the engine says so."""
    where = made(torch)
    inputs, want = request(where, "large", 0)
    with engine(torch, where, budget=64) as e:
        head, _, _ = e.ask("BUDGET", budget_bytes=100 << 20)  # before the first tensor
        assert head.budget_bytes == 100 << 20
        e.load(1, where / "large.pt")
        assert answer(e.infer(1, inputs)) == want
        number, groups, outputs = e.begin(1, inputs)
        whole = sum(g.in_memory for g in e.groups)
        head, _, _ = e.ask("BUDGET", budget_bytes=24 << 20)
        assert head.budget_bytes == 24 << 20
        for group in range(1, groups):
            _, outputs, _ = e.ask("RUN", request=number, model=1, group=group)
        assert sum(g.in_memory for g in e.groups) <= 24 << 20 < 40 << 20 < whole
        assert answer(e.fetch(number, outputs)) == want
        refused(e, "no_memory", "BUDGET", budget_bytes=1 << 20)
        assert answer(e.infer(1, inputs)) == want
        e.ask("BUDGET", budget_bytes=80 << 20)
        for _ in range(3):
            assert answer(e.infer(1, inputs)) == want
    stats = json.loads((where / "stats.json").read_text())
    assert stats["budget_bytes"] == 80 << 20 and stats["over_budget_bytes"] == 0
    with engine(torch, where) as e:  # without libswapnet nothing keeps to it
        assert e.ask("BUDGET", budget_bytes=1 << 20)[0].budget_bytes == 1 << 20


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


def test_outputs_that_fit_into_the_room_come_with_the_last_group(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        e.load(1, where / "small.pt", groups=2)
        inputs, want = request(where, "small", 0)
        for number, room in enumerate((len(want), len(want) - 4, 1 << 20)):
            head, _, _ = e.ask("RUN", request=number, model=1, tensors=e.tensors(inputs), inputs=1)
            place = e.tensors([("", "UINT8", (room,), bytes(room))], at=8 << 20)
            last, outputs, _ = e.ask("RUN", request=number, model=1, group=head.groups - 1, tensors=place)
            assert last.is_stored == (room >= len(want))
            if last.is_stored:
                assert outputs[0].offset == 8 << 20
                assert os.pread(e.memory, outputs[0].bytes, outputs[0].offset) == want
                refused(e, "unknown", "STORE", request=number)  # it is forgotten
            else:
                assert answer(e.fetch(number, outputs)) == want
            assert os.pread(e.memory, 64, (8 << 20) + room) == bytes(64)


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
            said = e.process.communicate(timeout=harness.HANG_S)[1].decode()
        assert e.process.returncode == 3
        assert words in said and said.count("\n") == 1, said


def test_request_larger_than_the_budget_is_answered_within_it(torch, made):
    where = made(torch)
    with engine(torch, where, budget=24) as e:
        e.load(1, where / "tall.pt")
        e.load(2, where / "large.pt")
        for then in (None, [2, 1]):  # what is read ahead leaves for activations
            inputs, want = request(where, "tall", 0, rows=8192)
            assert answer(e.infer(1, inputs, then)) == want
            inputs, want = request(where, "large", 0)
            assert answer(e.infer(2, inputs, then)) == want
    stats = json.loads((where / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 24 << 20


def test_refused_memory_is_told_from_other_failures(torch, tmp_path):
    """An operator whose tensors do not fit into the budget together. The server would try it again with all memory to itself."""
    harness.make(torch, "save_widening", str(tmp_path / "widening.pt"), where=tmp_path / "made")
    small, large = ([("x", "FP32", (rows, 4096), bytes(rows * 4096 * 4))] for rows in (4, 1024))
    with engine(torch, tmp_path, budget=24) as e:
        e.load(1, tmp_path / "widening.pt")
        assert answer(e.infer(1, small)) == bytes(4096 * 4)
        with pytest.raises(ServeError, match="do not leave room") as error:
            e.infer(1, large)
        assert error.value.status == "no_memory"
        assert answer(e.infer(1, small)) == bytes(4096 * 4)
