"""Requests that are joined: where a trial has shown that bits are equal, or where the model's configuration lets them differ."""
import contextlib
import json
import os
import struct
import threading
import time

import pytest

import harness
import serve_front
from serve_engine import Engine, ServeError

ENGINE = harness.BUILD / "bin" / "swapnet-engine"
JOINED = ("each", "functions")  # each number by itself, in whole vectors
ALONE = ("tails", "over_requests", "by_number", "over_first", "drawn", "through_buffer")
WIDTH = 1024
OF_LARGE = ("over_requests", "through_buffer")  # a large number of one request changes all of them
TOGETHER = ("in_place", "fails_joined", "widens")
FULL = {"in_place": 8, "widens": 2}  # as many are joined, sooner or later
ALIKE = ("learns", "frozen")  # weights of the same bytes
STATES = ("counts", "chooses", "statistics")  # the answer to a seed is right if so many requests came before
PATIENCE_S = harness.HANG_S


@pytest.fixture(scope="module")
def made():
    """A function: the directory with a PyTorch's models and what they answer."""
    with harness.made_once(lambda torch, where: harness.plain(torch, "save_joinable", str(where), *JOINED, *ALONE, *STATES, *TOGETHER, *ALIKE, "linears")) as make:
        yield make


@contextlib.contextmanager
def engine(torch, where, budget=None, **environment):
    environment |= {"SWAPNET_PYTHON": torch.python}
    if budget:
        environment |= harness.swapnet_env(budget, where / "stats.json", where / "store")
    with Engine(ENGINE, harness.clean_env(environment)) as e:
        e.receive("READY")
        yield e


def sample(where, name, seed):
    data = (where / f"{name}.{seed}.in").read_bytes()
    return [("x", "FP32", (1, len(data) // 4), data)], (where / f"{name}.{seed}.out").read_bytes()


def is_close(found, want):
    found, want = (struct.unpack(f"{len(x) // 4}f", x) for x in (found, want))
    return all(abs(a - b) <= 1e-3 * max(map(abs, want)) for a, b in zip(found, want))


def answer_of(outputs):
    return next(iter(outputs.values()))[2]


def named(e, model, inputs):
    return [(e.input_names[model], *rest) for _, *rest in inputs]


def load(e, model, where, name, **fields):
    _, tensors, _ = e.load(model, where / f"{name}.pt", **fields)
    e.input_names = {**getattr(e, "input_names", {}), model: tensors[0].name.decode()}
    for seed in (0, 1, 2, 3, 4, 5):
        inputs, want = sample(where, name, seed)
        assert answer_of(e.infer(model, named(e, model, inputs))) == want, name


def together(e, model, requests):
    """Runs these inputs group by group, each RUN with how many follow it: (answers, how many ran at once in each group)."""
    numbers, joined, group, groups = [], [], 0, None
    while groups is None or group < groups:
        at = 0
        for i, inputs in enumerate(requests):
            tensors = e.tensors(named(e, model, inputs), at) if group == 0 else []
            at += sum(-(-t.bytes // 64) * 64 for t in tensors)
            if group == 0:
                e.requests += 1
                numbers.append(e.requests)
            e.send("RUN", request=numbers[i], model=model, group=group, tensors=tensors, inputs=len(tensors),
                   following=len(requests) - 1 - i)
        outputs, sizes = [], []
        for i in range(len(requests)):
            head, found, _ = e.receive("RAN")
            assert head.request == numbers[i]
            outputs.append(found)
            if head.joined:
                sizes.append(head.joined)
        groups = head.groups
        joined.append(sizes)
        group += 1
    return [answer_of(e.fetch(number, found)) for number, found in zip(numbers, outputs)], joined


def after_trials(e, where, names, are_over=lambda now: True):
    """What the engine says of the groups of each model when it has had time for trials: until it says the same for a while, which
    is the longer the longer it takes to answer. On a busy machine that may be before a trial: who wants one says so."""
    seen, since, end, slowest = None, time.monotonic(), time.monotonic() + PATIENCE_S, 0.1
    while time.monotonic() < end:
        time.sleep(0.15)
        now, asked = {}, time.monotonic()
        for model, name in enumerate(names):
            inputs, want = sample(where, name, 0)
            assert answer_of(e.infer(model, named(e, model, inputs))) == want
            now[name] = [[ns > 0 for ns in g.joined_ns] for g in e.last_groups]
        slowest = max(slowest, time.monotonic() - asked)
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > 7 * slowest and are_over(now):
            return now
    raise AssertionError(seen)


def test_requests_are_joined_where_a_trial_shows_equal_bits(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        for number, name in enumerate(JOINED):
            load(e, number, where, name, batch_most=8)
            assert not any(ns for g in e.last_groups for ns in g.joined_ns)  # nothing is believed before a trial
        found = after_trials(e, where, JOINED, lambda now: all(sum(g[2] for g in said) > len(said) / 2 for said in now.values()))
        for number, name in enumerate(JOINED):
            said = found[name]
            assert sum(g[2] for g in said) > len(said) / 2, (name, said)  # eight at once
            assert not any(any(g[3:]) for g in said)  # more than eight samples, never
            pairs = [sample(where, name, seed) for seed in range(8)]
            end, turns, met = time.monotonic() + PATIENCE_S, 0, set()
            while turns < 3 or (len(met) <= len(joined) / 2 and time.monotonic() < end):  # a RUN may come late
                answers, joined = together(e, number, [inputs for inputs, _ in pairs])
                assert answers == [want for _, want in pairs], name
                met |= {group for group, sizes in enumerate(joined) if sizes == [8]}
                turns += 1
            assert len(met) > len(joined) / 2, (name, met, joined)
            answers, joined = together(e, number, [inputs for inputs, _ in pairs[:7]])  # four, two and one
            assert answers == [want for _, want in pairs[:7]] and all(sum(sizes) == 7 for sizes in joined), joined


def test_requests_are_not_joined_where_bits_could_depend_on_others(torch, made):
    """Each of these would pass a comparison of ordinary numbers, or nearly."""
    where = made(torch)
    with engine(torch, where) as e:
        for number, name in enumerate(ALONE):
            load(e, number, where, name, batch_most=8)
        found = after_trials(e, where, ALONE)
        for number, name in enumerate(ALONE):
            said = found[name]
            pairs = [sample(where, name, seed) for seed in range(8)]
            answers, joined = together(e, number, [inputs for inputs, _ in pairs])
            assert answers == [want for _, want in pairs], name
            large = [("x", "FP32", (1, WIDTH), struct.pack("f", 1e31) + pairs[0][0][0][3][4:])]  # only a few numbers show it
            if name in OF_LARGE:
                alone = answer_of(e.infer(number, named(e, number, large)))
                answers, _ = together(e, number, [large] + [inputs for inputs, _ in pairs[1:]])
                assert answers == [alone] + [want for _, want in pairs[1:]], name
            if name in OF_LARGE + ("over_first",):  # a group may have none of these operators
                assert not all(map(any, said)), (name, said)
            else:
                assert not any(map(any, said)) and all(sizes == [1] * 8 for sizes in joined), (name, said, joined)


@pytest.mark.by_turns
def test_no_trial_changes_a_model(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        for number, name in enumerate(STATES):
            load(e, number, where, name, batch_most=8)
        time.sleep(0.3)  # idle
        for number, name in enumerate(STATES):
            pairs = [sample(where, name, seed) for seed in (6, 7)]
            answers, joined = together(e, number, [inputs for inputs, _ in pairs])
            assert answers == [want for _, want in pairs] and all(sizes == [1, 1] for sizes in joined), (name, joined)


def test_bits_are_those_alone_whatever_a_trial_finds(torch, made):
    """One row of a linear layer: equal with one math library, and not with another."""
    where = made(torch)
    with engine(torch, where, budget=24) as e:
        load(e, 0, where, "linears", batch_most=8)
        after_trials(e, where, ["linears"])
        pairs = [sample(where, "linears", seed) for seed in range(8)]
        for _ in range(3):
            assert together(e, 0, [inputs for inputs, _ in pairs])[0] == [want for _, want in pairs]


def test_bits_may_differ_where_the_configuration_says_so(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        for number, name in enumerate(STATES, 2):
            load(e, number, where, name, batch_most=8, may_differ=1)
            pairs = [sample(where, name, seed) for seed in (6, 7)]
            answers, joined = together(e, number, [inputs for inputs, _ in pairs])
            assert answers == [want for _, want in pairs] and all(sizes == [1, 1] for sizes in joined), (name, joined)
        load(e, 1, where, "linears", batch_most=4, may_differ=1)
        pairs = [sample(where, "linears", seed) for seed in range(8)]
        end, turns, met = time.monotonic() + PATIENCE_S, 0, set()
        # What takes longer so is left alone after the first time. Who comes late is not waited for, and may meet the next time.
        while turns < 4 or (len(met) <= len(joined) / 2 and time.monotonic() < end):
            answers, joined = together(e, 1, [inputs for inputs, _ in pairs])
            for found, (_, want) in zip(answers, pairs):
                assert is_close(found, want)
            met |= {group for group, sizes in enumerate(joined) if sizes == [4, 4]}
            turns += 1
        assert len(met) > len(joined) / 2, (met, joined)


def test_joined_requests_have_their_own_bits(torch, made):
    """What one writes in place no other sees. A joined run that fails changes nothing. Of tensors that are large within the
    model, and with each step in a group of its own, as many are joined as have room: a quarter of the budget."""
    where = made(torch)
    with engine(torch, where, budget=24) as e:
        most = {}
        for number, name in enumerate(TOGETHER):
            load(e, number, where, name, groups=64 if name == "widens" else 0, batch_most=8, may_differ=1)
            pairs = [sample(where, name, seed) for seed in range(8)]
            end, turns = time.monotonic() + PATIENCE_S, 0
            while turns < 5 or (most[name] < FULL.get(name, 0) and time.monotonic() < end):  # a RUN may come late
                answers, joined = together(e, number, [inputs for inputs, _ in pairs])
                assert answers == [want for _, want in pairs], name
                most[name] = max(most.get(name, 0), *map(max, joined))
                turns += 1
        assert most["in_place"] == FULL["in_place"] and most["fails_joined"] <= 2 and 1 < most["widens"] <= 4, most
    stats = json.loads((where / "stats.json").read_text())
    assert stats["peak_resident_bytes"] <= stats["budget_bytes"] and stats["over_budget_bytes"] == 0, stats


def test_a_request_that_the_model_refuses_ends_alone(torch, made):
    """An error tells where in the model's code it was raised, which has to be there still."""
    where = made(torch)
    with engine(torch, where) as e:
        load(e, 0, where, "fails_joined")
        inputs, want = sample(where, "fails_joined", 0)
        with pytest.raises(ServeError, match="AssertionError"):
            e.infer(0, [(e.input_names[0], "FP32", (3, WIDTH), 3 * inputs[0][3])])
        assert answer_of(e.infer(0, named(e, 0, inputs))) == want
    assert e.process.returncode == 0


@pytest.mark.by_turns
def test_weights_that_models_share_are_used_as_in_each(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        for number, name in enumerate(ALIKE + ALIKE[::-1]):
            load(e, number, where, name)


@pytest.mark.by_turns
def test_what_trials_read_is_told(torch, made):
    """Weights leave memory between requests, and a trial reads them again: an answer says so."""
    where = made(torch)
    with engine(torch, where, budget=24) as e:
        load(e, 0, where, "linears", batch_most=8)
        after_trials(e, where, ["linears"])
        inputs, want = sample(where, "linears", 0)
        idle, end = -1, time.monotonic() + PATIENCE_S
        while (e.idle_bytes != idle or not idle) and time.monotonic() < end:  # until it reads nothing between two answers
            idle = e.idle_bytes
            assert answer_of(e.infer(0, named(e, 0, inputs))) == want
        told, idle = e.read_bytes, e.idle_bytes
    read = json.loads((where / "stats.json").read_text())["streamed_bytes"]
    assert idle > 0 and told <= read, (told, idle, read)
    assert read - told <= 33 << 20, (told, idle, read)  # after the last answer: a pass at most


@pytest.mark.by_turns
def test_requests_go_on_in_turn_when_there_is_no_memory_for_their_parts(torch, made):
    where = made(torch)
    sizes = {"LD_PRELOAD": str(harness.no_memory_for_part()), "WHOLE_BYTES": str(4 * 4 * WIDTH), "PART_BYTES": str(4 * WIDTH)}
    with engine(torch, where, **sizes) as e:
        load(e, 1, where, "each", batch_most=4, may_differ=1)
        pairs = [sample(where, "each", seed) for seed in range(4)]
        for turn in range(2):  # four are tried once
            answers, joined = together(e, 1, [inputs for inputs, _ in pairs])
            assert answers == [want for _, want in pairs] and all(max(sizes) <= 2 for sizes in joined), joined
            assert turn or [1, 2, 1] in joined, joined  # a RUN that comes late is not waited for


@pytest.mark.by_turns
def test_a_run_that_does_not_follow_is_not_waited_for(torch, made):
    where = made(torch)
    with engine(torch, where) as e:
        load(e, 1, where, "each", batch_most=8)
        inputs, want = sample(where, "each", 0)
        e.requests += 1
        number = e.requests
        tensors = e.tensors(named(e, 1, inputs))
        e.send("RUN", request=number, model=1, tensors=tensors, inputs=1, following=31)  # and nothing behind it
        head, outputs, _ = e.receive("RAN")
        assert head.joined == 1
        for group in range(1, head.groups):  # the next one is of another group, and of the same request twice
            e.send("RUN", request=number, model=1, group=group, following=2)
            head, outputs, _ = e.receive("RAN")
        assert answer_of(e.fetch(number, outputs)) == want
        number = e.begin(1, named(e, 1, inputs))[0]
        e.send("RUN", request=number, model=1, group=1, following=1)
        e.send("RUN", request=number, model=1, group=1)
        e.receive("RAN")
        with pytest.raises(ServeError, match="twice|not the next one"):  # it follows at once, or not
            e.receive("RAN")
        e.send("DROP", request=number)
        assert answer_of(e.infer(1, named(e, 1, inputs))) == want
    assert e.process.returncode == 0


CONFIG = """max_batch_size: 8 dynamic_batching { }
parameters { key: "swapnet_bits" value { string_value: "batch" } }
"""


def statistics_under_load(torch, where, repository, clients, each):
    """Of a server that has answered four requests, and then many at once; each answer is right."""
    samples = [sample(where, "linears", seed) for seed in range(8)]
    wrong = []
    (where / "server").mkdir(exist_ok=True)
    env = {"SWAPNET_PYTHON": torch.python, "SWAPNET_STORE": str(where / "server"), "SWAPNET_DAEMON": "off"}
    with serve_front.front(repository, "--engine", ENGINE, "--library", harness.LIBRARY, memory="256M", env=env) as f:
        metadata = json.loads(f.ready().get("/v2/models/linears")[2])
        assert metadata["parameters"] == {"swapnet_bits": "batch"}
        name = metadata["inputs"][0]["name"]

        def ask(seed):
            (_, kind, shape, data), want = samples[seed][0][0], samples[seed][1]
            head = json.dumps({"inputs": [{"name": name, "shape": shape, "datatype": kind,
                                           "parameters": {"binary_data_size": len(data)}}],
                               "parameters": {"binary_data_output": True}}).encode()
            status, _, body = f.infer("linears", head + data, {"Inference-Header-Content-Length": str(len(head))})
            if status != 200 or b'"swapnet_bits":"batch"' not in body or not is_close(body[-len(want):], want):
                wrong.append((status, body[:300]))

        for seed in range(4):
            ask(seed)
        threads = [threading.Thread(target=lambda: [ask(seed) for seed in range(each)]) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:3]
        statistics = json.loads(f.get("/v2/models/linears/stats")[2])["model_stats"][0]
        metrics = f.metrics()
    assert statistics["inference_count"] == metrics['nv_inference_count{model="linears",version="1"}'] == 4 + clients * each
    assert statistics["execution_count"] == metrics['nv_inference_exec_count{model="linears",version="1"}']
    return statistics


@pytest.mark.by_turns
def test_a_server_joins_what_waits_and_counts_it(torch, made, tmp_path):
    """It joins where that took less time. On a busy machine a measured time may say otherwise, so another server has its
    try then."""
    where, clients, each = made(torch), 12, 6
    (tmp_path / "linears" / "1").mkdir(parents=True)
    os.link(where / "linears.pt", tmp_path / "linears" / "1" / "model.pt")
    (tmp_path / "linears" / "config.pbtxt").write_text(CONFIG)
    for _ in range(10):
        statistics = statistics_under_load(torch, where, tmp_path, clients, each)
        if statistics["execution_count"] < statistics["inference_count"]:
            break
    assert statistics["execution_count"] < statistics["inference_count"]
    batches = {b["batch_size"]: b["compute_infer"]["count"] for b in statistics["batch_stats"]}
    assert sum(size * count for size, count in batches.items()) == statistics["inference_count"] and max(batches) in (2, 4, 8)
    assert sum(batches.values()) == statistics["execution_count"]
