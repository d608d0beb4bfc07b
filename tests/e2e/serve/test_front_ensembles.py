"""Ensembles of swapnet-serve: steps that depend on each other, and cascades whose later steps have conditions."""
import concurrent.futures
import contextlib
import json
import signal
import struct
import time

import pytest

import serve_front
from serve_front import binary, body_of, front, outputs, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

HIGH, LOW = [0.0, 0.875, 0.25, 0.5], [0.25, 0.125, 0.5, 0.0]


def ensemble(repo, name, outputs_, *steps):
    """steps: (model, {the model's input: tensor}, {the model's output: tensor}, condition or "")."""
    def maps(kind, pairs):
        return " ".join(f"{kind} {{ key: '{key}' value: '{value}' }}" for key, value in pairs.items())
    text = "platform: 'ensemble' input { name: 'IN' data_type: TYPE_FP32 dims: [1, -1] }\n"
    text += "".join(f"output {{ name: '{one}' data_type: TYPE_FP32 dims: [1, -1] }}\n" for one in outputs_)
    text += "ensemble_scheduling {\n"
    for model, takes, gives, condition in steps:
        text += (f"  step {{ model_name: '{model}' model_version: -1 {maps('input_map', takes)} {maps('output_map', gives)} "
                 f"{condition} }}\n")
    (repo / name / "1").mkdir(parents=True)
    (repo / name / "config.pbtxt").write_text(text + "}\n")


def cascade(repo, condition, **second):
    """A detector, and a reader that runs where the condition on what was detected holds."""
    repository(repo, detector=second.pop("detector", "groups=2"), reader=second.pop("reader", "groups=2"))
    ensemble(repo, "cascade", ["DETECTED", "READ"],
             ("reader", {"INPUT0": "DETECTED"}, {"OUTPUT0": "READ"}, condition),
             ("detector", {"INPUT0": "IN"}, {"OUTPUT0": "DETECTED"}, ""))
    return repo


def skipped(answer):
    return json.loads(answer[2]).get("parameters", {}).get("swapnet_skipped", "")


@pytest.mark.parametrize("condition", ["max_above: 0.8", "argmax: [1, 3]", "count_above { threshold: 0.4 count: 2 }"])
def test_a_step_runs_only_where_its_condition_holds(tmp_path, condition):
    with front(cascade(tmp_path, f"condition {{ tensor: 'DETECTED' {condition} }}")) as f:
        f.ready()
        high, low = (f.infer("cascade", body_of(tensor(values, "IN"))) for values in (HIGH, LOW))
        assert outputs(high) == {"DETECTED": HIGH, "READ": HIGH}
        assert outputs(low) == {"DETECTED": LOW}
        assert (skipped(high), skipped(low)) == ("", "reader")
        assert f.metric('nv_inference_request_success{model="reader",version="1"}') == 1
        assert f.metric('nv_inference_request_success{model="cascade",version="1"}') == 2
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_an_ensemble_is_a_model_to_its_clients(tmp_path):
    with front(cascade(tmp_path, "")) as f:
        f.ready()
        metadata = json.loads(f.get("/v2/models/cascade")[2])
        assert metadata["platform"] == "ensemble"
        assert metadata["inputs"] == [{"name": "IN", "datatype": "FP32", "shape": [1, -1]}]
        assert [one["name"] for one in metadata["outputs"]] == ["DETECTED", "READ"]
        status, headers, body = f.infer("cascade", *binary(HIGH, "IN"))
        length = int(headers["Inference-Header-Content-Length"])
        assert (status, body[length:]) == (200, struct.pack("<4f", *HIGH) * 2)
        assert f.infer("cascade", body_of(tensor(HIGH, "OTHER")))[0] == 400
        answer = f.infer("cascade", body_of(tensor(HIGH, "IN"), outputs=[{"name": "READ"}], id="7"))
        assert outputs(answer) == {"READ": HIGH}
        assert json.loads(answer[2])["id"] == "7"


def test_an_output_that_was_skipped_is_left_out(tmp_path):
    with front(cascade(tmp_path, "condition { tensor: 'DETECTED' max_above: 0.8 }")) as f:
        f.ready()
        answer = f.infer("cascade", body_of(tensor(LOW, "IN"), outputs=[{"name": "READ"}]))
        assert (answer[0], outputs(answer), skipped(answer)) == (200, {}, "reader")


def test_a_step_whose_output_nobody_asked_for_does_not_run(tmp_path):
    with front(cascade(tmp_path, "", reader="fail=it_broke")) as f:
        f.ready()
        answer = f.infer("cascade", body_of(tensor(HIGH, "IN"), outputs=[{"name": "DETECTED"}]))
        assert (answer[0], outputs(answer), skipped(answer)) == (200, {"DETECTED": HIGH}, "")
        assert f.infer("cascade", body_of(tensor(HIGH, "IN")))[0] == 500


def test_steps_that_do_not_depend_on_each_other_join(tmp_path):
    repository(tmp_path, left="", right="", both="inputs=2")
    ensemble(tmp_path, "diamond", ["OUT", "OTHER"],
             ("left", {"INPUT0": "IN"}, {"OUTPUT0": "L"}, ""), ("right", {"INPUT0": "IN"}, {"OUTPUT0": "R"}, ""),
             ("both", {"INPUT0": "L", "INPUT1": "R"}, {"OUTPUT0": "OUT", "OUTPUT1": "OTHER"}, ""))
    with front(tmp_path) as f:
        f.ready()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: f.infer("diamond", body_of(tensor([float(i)], "IN"))), range(24)))
        assert [outputs(answer) for answer in answers] == [{"OUT": [i], "OTHER": [i]} for i in range(24)]


def test_a_step_has_the_place_of_its_ensemble(tmp_path):
    """The queue is full while the ensemble takes its steps."""
    gate = tmp_path / "gate"
    repo = cascade(tmp_path / "repo", "")
    repository(repo, held=f"wait_for={gate}")
    with front(repo, "--queue", "2") as f, concurrent.futures.ThreadPoolExecutor(2) as pool:
        f.ready()
        held = pool.submit(f.infer, "held", body_of(tensor(LOW)))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 1)
        answer = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN")))
        wait_for(lambda: answer.done() or f.metric("swapnet_serve_requests") >= 3)
        gate.touch()
        assert held.result()[0] == 200
        assert outputs(answer.result()) == {"DETECTED": HIGH, "READ": HIGH}


def test_a_step_that_fails_ends_the_request(tmp_path):
    with front(cascade(tmp_path, "", reader="fail=it_broke")) as f:
        f.ready()
        status, _, body = f.infer("cascade", body_of(tensor(HIGH, "IN")))
        assert status == 500
        assert "it_broke" in json.loads(body)["error"]
        assert f.infer("detector", body_of(tensor(HIGH)))[0] == 200
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)
        assert f.metric("swapnet_serve_requests") == 0


def test_a_missing_output_of_a_step_is_told(tmp_path):
    repository(tmp_path, one="")
    ensemble(tmp_path, "wrong", ["OUT"], ("one", {"INPUT0": "IN"}, {"OUTPUT9": "OUT"}, ""))
    with front(tmp_path) as f:
        f.ready()
        status, _, body = f.infer("wrong", body_of(tensor(HIGH, "IN")))
        assert (status, json.loads(body)["error"]) == (500, "model 'one' has no output 'OUTPUT9'")


def aside(repo, condition, **models):
    """As cascade, but the reader looks at what came, so it can run before it is known whether it is needed."""
    repository(repo, **({"detector": "groups=3 missing=8", "reader": "groups=3 missing=8"} | models))
    ensemble(repo, "cascade", ["DETECTED", "READ"], ("detector", {"INPUT0": "IN"}, {"OUTPUT0": "DETECTED"}, ""),
             ("reader", {"INPUT0": "IN"}, {"OUTPUT0": "READ"}, condition))
    return repo


ABOVE = "condition { tensor: 'DETECTED' max_above: 0.8 }"


def runs_of(log, model):
    """What was foretold with each group that the engine ran of a model, by (request, group)."""
    lines = [line.split() for line in log.read_text().splitlines() if line.startswith("RUN")]
    return {(int(words[1]), int(words[2])): words[4:] for words in lines if int(words[3]) == model}


def model_numbers(log):
    """Numbers of the detector and the reader, by what ran: a request for each in turn."""
    lines = [line.split() for line in log.read_text().splitlines() if line.startswith("RUN")]
    return int(lines[0][3]), next(int(words[3]) for words in lines if words[3] != lines[0][3])


@contextlib.contextmanager
def asked_once(tmp_path, *options):
    """A server with aside()'s models, of which each has been asked once; its engine's log; the numbers of detector and reader."""
    log = tmp_path / "log"
    with front(aside(tmp_path / "repo", ABOVE), *options, env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        assert [f.infer(name, body_of(tensor(HIGH)))[0] for name in ("detector", "reader")] == [200, 200]
        yield f, log, *model_numbers(log)


def test_what_may_be_needed_is_read_ahead_as_often_as_it_was(tmp_path):
    with asked_once(tmp_path) as (f, log, detector, reader):
        answers = [f.infer("cascade", body_of(tensor(values, "IN"))) for values in (HIGH, LOW, LOW, LOW, HIGH)]
        assert [outputs(answer).get("READ") for answer in answers] == [HIGH, None, None, None, HIGH]
    told = [sum(step.startswith(f"{reader}:") for step in steps) for key, steps in runs_of(log, detector).items() if key[1] == 0][1:]
    assert told[:2] == [3, 3]       # a half, then two thirds
    assert told[4] < 3              # two sevenths of all
    assert sum(group == 2 for _, group in runs_of(log, reader)) == 3  # and nothing of it was computed in vain


def test_what_the_next_request_needs_is_told_once_all_are_alike(tmp_path):
    """With the last group of a cascade that goes on each time, from the fourth in a row on; and not behind another request."""
    with asked_once(tmp_path) as (f, log, detector, reader):
        for name, tensor_name in 6 * [("cascade", "IN")] + [("detector", "INPUT0"), ("cascade", "IN")]:
            assert f.infer(name, body_of(tensor(HIGH, tensor_name)))[0] == 200
    runs = [steps for (_, group), steps in sorted(runs_of(log, reader).items()) if group == 0][1:]
    told = [[step for step in steps if step.startswith(f"{detector}:")] for steps in runs]
    assert [len(steps) > 0 for steps in told] == [False, False, False, True, True, True, False], told
    assert all(len(set(steps)) == len(steps) for steps in runs)


def test_nothing_is_read_ahead_for_what_waits(tmp_path):
    with asked_once(tmp_path, "--cascades", "wait") as (f, log, detector, reader):
        assert outputs(f.infer("cascade", body_of(tensor(HIGH, "IN")))) == {"DETECTED": HIGH, "READ": HIGH}
    assert not any(step.startswith(f"{reader}:") for steps in runs_of(log, detector).values() for step in steps)


@pytest.mark.parametrize(("policy", "is_early"), [("completion", True), ("batch", False)])
def test_a_step_may_run_before_it_is_known_whether_it_is_needed(tmp_path, policy, is_early):
    """The reader is short, so `completion` has it run between two groups of the detector; `batch` does not get to it."""
    log = tmp_path / "log"
    repo = aside(tmp_path / "repo", ABOVE, detector="groups=8 slow_ms=10", reader="groups=3")
    with front(repo, "--cascades", "preempt", "--policy", policy, env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        high, low = (f.infer("cascade", body_of(tensor(values, "IN"))) for values in (HIGH, LOW))
        assert outputs(high) == {"DETECTED": HIGH, "READ": HIGH}
        assert (outputs(low), skipped(low)) == ({"DETECTED": LOW}, "reader")
        wait_for(lambda: f.metric("swapnet_serve_requests") == 0)
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)
    ran = [tuple(map(int, line.split()[2:4])) for line in log.read_text().splitlines() if line.startswith("RUN")]
    detector = ran[0][1]
    early = [sum(number != detector for _, number in ran[start:start + ran[start:].index((7, detector))])
             for start in (k for k, one in enumerate(ran) if one == (0, detector))]
    assert early == ([3, 3] if is_early else [0, 0])
    assert len(ran) == 16 + (6 if is_early else 3)


def test_an_early_step_that_fails_is_run_again_where_it_is_needed(tmp_path):
    repo = aside(tmp_path / "repo", ABOVE, detector="groups=4 slow_ms=10", reader="groups=1 fail=it_broke")
    with front(repo, "--cascades", "preempt") as f:
        f.ready()
        high, low = (f.infer("cascade", body_of(tensor(values, "IN"))) for values in (HIGH, LOW))
        assert high[0] == 500 and "it_broke" in json.loads(high[2])["error"]
        assert (outputs(low), skipped(low)) == ({"DETECTED": LOW}, "reader")


def test_early_steps_behind_early_steps_are_answered(tmp_path):
    """The reader has run early, and the last step, which depends on what it says, too, before the detector says yes."""
    repo = repository(tmp_path, detector="groups=8 slow_ms=10 missing=8", reader="groups=1 missing=8", last="groups=1 missing=8")
    ensemble(repo, "cascade", ["DETECTED", "READ", "LAST"], ("detector", {"INPUT0": "IN"}, {"OUTPUT0": "DETECTED"}, ""),
             ("reader", {"INPUT0": "IN"}, {"OUTPUT0": "READ"}, ABOVE),
             ("last", {"INPUT0": "IN"}, {"OUTPUT0": "LAST"}, "condition { tensor: 'READ' max_above: -1 }"))
    with front(repo, "--cascades", "preempt") as f:
        f.ready()
        for _ in range(2):
            assert outputs(f.infer("cascade", body_of(tensor(HIGH, "IN")))) == {"DETECTED": HIGH, "READ": HIGH, "LAST": HIGH}


def beside(repo, **models):
    """As aside, but the reader is Python: it has an engine of its own, and runs while the detector does."""
    models = {"detector": "groups=2"} | models
    worker = models.pop("reader")
    aside(repo, ABOVE, **models)
    (repo / "reader" / "1" / "model.pt").unlink()
    (repo / "reader" / "1" / "model.py").write_text(worker)
    return repo


def told(log, what, request):
    return [line for line in log.read_text().splitlines() if line.split()[:2] == [what, str(request)]]


def test_an_early_step_that_has_begun_ends_between_two_groups(tmp_path):
    """Its first group has run, and its second one runs, when it turns out that it is not needed."""
    log, go, late = tmp_path / "log", tmp_path / "go", tmp_path / "late"
    repo = beside(tmp_path / "repo", detector=f"groups=1 wait_for={go}", reader=f"groups=3 wait_late={late}")
    with front(repo, "--cascades", "preempt", env={"FAKE_LOG": str(log)}) as f, concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        waiting = pool.submit(f.infer, "cascade", body_of(tensor(LOW, "IN")))
        early = wait_for(lambda: [line.split()[1] for line in log.read_text().splitlines() if line.startswith("RUN") and
                                  line.split()[2] == "1"])[0]
        go.touch()
        wait_for(lambda: f.metric('nv_inference_request_success{model="detector",version="1"}') == 1)
        late.touch()
        assert (outputs(waiting.result()), skipped(waiting.result())) == ({"DETECTED": LOW}, "reader")
        wait_for(lambda: told(log, "DROP", early))  # the engine may hear of it after the client
        assert len(told(log, "RUN", early)) == 2 and len(told(log, "DROP", early)) == 1
        assert not told(log, "STORE", early) and not told(log, "ROOM", early)
        assert f.metric("swapnet_serve_requests") == f.metric("swapnet_serve_buffer_used_bytes") == 0
        assert outputs(f.infer("cascade", body_of(tensor(HIGH, "IN")))) == {"DETECTED": HIGH, "READ": HIGH}


def test_an_early_step_takes_no_place_from_a_request(tmp_path):
    go = tmp_path / "go"
    repo = aside(tmp_path / "repo", ABOVE, detector=f"groups=2 wait_for={go}", other="")
    with front(repo, "--cascades", "preempt", "--queue", "3") as f, concurrent.futures.ThreadPoolExecutor(2) as pool:
        f.ready()
        waiting = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN")))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 3)  # the ensemble's, the detector's and the early reader's
        other = pool.submit(f.infer, "other", body_of(tensor(LOW)))
        wait_for(lambda: f.metric('nv_inference_pending_request_count{model="other",version="1"}') == 1 or other.done())
        assert f.infer("other", body_of(tensor(LOW)))[0] == 503    # but there is no place for one more
        go.touch()
        assert outputs(other.result()) == {"OUTPUT0": LOW}
        assert outputs(waiting.result()) == {"DETECTED": HIGH, "READ": HIGH}


def test_an_early_step_takes_no_place_in_the_queue_of_its_model(tmp_path):
    go = tmp_path / "go"
    repo = aside(tmp_path / "repo", ABOVE, detector=f"groups=2 wait_for={go}")
    (repo / "reader" / "config.pbtxt").write_text("dynamic_batching { default_queue_policy { max_queue_size: 1 } }")
    with front(repo, "--cascades", "preempt") as f, concurrent.futures.ThreadPoolExecutor(2) as pool:
        f.ready()
        waiting = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN")))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 3)
        own = pool.submit(f.infer, "reader", body_of(tensor(LOW)))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 4 or own.done())
        go.touch()
        assert outputs(own.result()) == {"OUTPUT0": LOW}
        assert outputs(waiting.result()) == {"DETECTED": HIGH, "READ": HIGH}


def test_what_was_made_early_gives_its_room_to_an_answer(tmp_path):
    """The buffer of 6 MiB has the cascade's input of 0.25 MiB, 2.5 MiB that the reader has made of it, and bodies of 2 and 0.5 MiB: nothing is
    left for the answer of 1.5 MiB."""
    go = tmp_path / "go"
    repo = beside(tmp_path / "repo", detector=f"groups=2 wait_for={go}", reader="groups=2 grow=10", other="slow_ms=1 grow=3")
    (repo / "other" / "1" / "model.pt").rename(repo / "other" / "1" / "model.py")
    values, waits, more = [0.875] * (1 << 16), [0.5] * (1 << 19), [0.5] * (1 << 17)
    with front(repo, "--cascades", "preempt", "--buffers", "6M") as f, concurrent.futures.ThreadPoolExecutor(2) as pool:
        f.ready()
        waiting = pool.submit(f.infer, "cascade", *binary(values, "IN"))
        wait_for(lambda: f.metric('nv_inference_request_success{model="reader",version="1"}') == 1)
        behind = pool.submit(f.infer, "detector", *binary(waits))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 3)
        answer = f.infer("other", *binary(more))
        assert answer[0] == 200, answer
        go.touch()
        behind.result()  # it may have found no room itself
        assert waiting.result()[0] == 200
        assert waiting.result()[2].endswith(struct.pack("<f", 0.875) * (2 * len(values)) + bytes(4 * 9 * len(values)))
        assert f.metric('nv_inference_request_success{model="reader",version="1"}') == 2
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_cascades_that_are_not_known_are_refused(tmp_path):
    with pytest.raises(AssertionError, match="--cascades 'ignore' is not right: use one of wait preempt prefetch"):
        with front(cascade(tmp_path, ""), "--cascades", "ignore"):
            pass


def test_deadline_and_disconnect_end_all_steps(tmp_path):
    go = tmp_path / "go"
    with front(cascade(tmp_path / "repo", "", detector=f"wait_for={go}")) as f:
        f.ready()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            late = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN"), parameters={"timeout": 1000000}))
            wait_for(lambda: f.metric("swapnet_serve_requests") == 2)  # the ensemble's, and its step's
            c = f.connection()
            c.request("POST", "/v2/models/cascade/infer", body_of(tensor(HIGH, "IN")))
            wait_for(lambda: f.metric("swapnet_serve_requests") == 4)
            c.sock.close()
            c.close()
            wait_for(lambda: f.metric("swapnet_serve_requests") == 2)  # its step had not begun: it left with it
            time.sleep(1.1)  # its deadline has passed
            go.touch()
            assert late.result()[0] == 503
        wait_for(lambda: f.metric("swapnet_serve_requests") == 0)
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)
        assert outputs(f.infer("cascade", body_of(tensor(HIGH, "IN")))) == {"DETECTED": HIGH, "READ": HIGH}


def test_a_server_that_ends_leaves_no_request_behind(tmp_path):
    go = tmp_path / "go"
    with front(cascade(tmp_path / "repo", "", detector=f"wait_for={go}"), "--exit-timeout-secs", "0") as f:
        f.ready()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN")))
            wait_for(lambda: f.metric("swapnet_serve_requests") == 2)
            assert f.end() == 0, f.log
            assert waiting.result()[0] == 503


def test_an_ensemble_is_there_while_its_models_are(tmp_path):
    cascade(tmp_path, "")
    repository(tmp_path, spare="")
    with front(tmp_path, "--model-control-mode", "explicit", "--load-model", "cascade", "--load-model", "detector") as f:
        wait_for(lambda: f.get("/v2/models/detector/ready")[0] == 200)
        status, _, body = f.infer("cascade", body_of(tensor(HIGH, "IN")))
        assert status == 503
        assert "model 'reader' of step" in json.loads(body)["error"]
        assert f.ask("POST", "/v2/repository/models/reader/load")[0] == 200
        assert f.infer("cascade", body_of(tensor(HIGH, "IN")))[0] == 200
        assert f.ask("POST", "/v2/repository/models/detector/unload")[0] == 200
        assert f.infer("cascade", body_of(tensor(HIGH, "IN")))[0] == 503
        assert f.ask("POST", "/v2/repository/models/cascade/unload")[0] == 200
        assert f.infer("cascade", body_of(tensor(HIGH, "IN")))[0] == 503


def test_ensembles_of_ensembles_are_refused(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        ensemble(tmp_path, name, ["OUT"], (other, {"IN": "IN"}, {"OUT": "OUT"}, ""))
    with front(tmp_path) as f:
        wait_for(lambda: f.get("/v2/health/live")[0] == 200)
        status, _, body = f.infer("a", body_of(tensor(HIGH, "IN")))
        assert status == 503
        assert "is an ensemble itself" in json.loads(body)["error"]


def test_an_engine_that_dies_begins_a_step_again(tmp_path):
    trap = tmp_path / "trap"
    with front(cascade(tmp_path / "repo", "", reader=f"die=9 die_if={trap}")) as f:
        f.ready()
        trap.touch()
        assert outputs(f.infer("cascade", body_of(tensor(HIGH, "IN")))) == {"DETECTED": HIGH, "READ": HIGH}
        assert f.metric("swapnet_serve_engine_restarts_total") == 1


def fork(repo, **models):
    """An ensemble whose steps `left` and `right` need its input alone, and `end` what right makes."""
    repository(repo, **({"left": "", "right": "", "end": ""} | models))
    ensemble(repo, "fork", ["L", "E"], ("left", {"INPUT0": "IN"}, {"OUTPUT0": "L"}, ""),
             ("right", {"INPUT0": "IN"}, {"OUTPUT0": "R"}, ""), ("end", {"INPUT0": "R"}, {"OUTPUT0": "E"}, ""))
    return repo


def test_a_step_that_cannot_begin_ends_the_request(tmp_path):
    """It is refused while it is asked for, when the other step is on its way already."""
    with front(fork(tmp_path, right="rank=1")) as f:
        f.ready()
        status, _, body = f.infer("fork", body_of(tensor(HIGH, "IN")))
        assert status == 400
        assert "'right'" in json.loads(body)["error"]
        assert f.metric('nv_inference_request_success{model="fork",version="1"}') == 0
        assert f.metric('nv_inference_request_success{model="end",version="1"}') == 0
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_a_step_without_a_place_counts_as_rejected(tmp_path):
    gate = tmp_path / "gate"
    repo = fork(tmp_path / "repo", left=f"wait_for={gate}")
    (repo / "left" / "config.pbtxt").write_text("dynamic_batching { default_queue_policy { max_queue_size: 1 } }")
    with front(repo) as f, concurrent.futures.ThreadPoolExecutor(2) as pool:
        f.ready()
        work = []
        for _ in range(2):
            work.append(pool.submit(f.infer, "left", body_of(tensor(HIGH))))
            wait_for(lambda: f.metric("swapnet_serve_requests") == len(work))
            wait_for(lambda: f.metric('nv_inference_pending_request_count{model="left",version="1"}') == len(work) - 1)
        assert f.infer("fork", body_of(tensor(HIGH, "IN")))[0] == 503
        gate.touch()
        assert [one.result()[0] for one in work] == [200, 200]
        m = f.metrics()
        for model in ("left", "fork"):
            assert [m[f'nv_inference_request_failure{{model="{model}",version="1",reason="{reason}"}}'] for reason in
                    ("REJECTED", "CANCELED", "BACKEND", "OTHER")] == [1, 0, 0, 0]


def test_a_step_under_which_engines_die_takes_the_others_with_it(tmp_path):
    with front(fork(tmp_path, left="die=11")) as f:
        f.ready()
        for _ in range(2):
            status, _, body = f.infer("fork", body_of(tensor(HIGH, "IN")))
            assert status in (500, 503)
            assert "'left'" in json.loads(body)["error"]
        wait_for(lambda: f.metric("swapnet_serve_requests") == 0)
        assert outputs(f.infer("right", body_of(tensor(HIGH)))) == {"OUTPUT0": HIGH}


def test_an_ensemble_is_loaded_and_unloaded_while_requests_run(tmp_path):
    go = tmp_path / "go"
    cascade(tmp_path / "repo", "", detector=f"wait_for={go}")
    with front(tmp_path / "repo", "--model-control-mode", "explicit", "--load-model", "*") as f:
        f.ready()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN")))
            wait_for(lambda: f.metric("swapnet_serve_requests") == 2)
            assert f.ask("POST", "/v2/repository/models/cascade/load")[0] == 200
            unload = pool.submit(f.ask, "POST", "/v2/repository/models/cascade/unload")
            wait_for(lambda: f.get("/v2/models/cascade/ready")[0] == 503)
            go.touch()
            assert unload.result()[0] == 200
            assert first.result()[0] in (200, 503)
        wait_for(lambda: f.metric("swapnet_serve_requests") == 0)


def test_a_model_does_not_become_an_ensemble_while_it_is_loaded(tmp_path):
    cascade(tmp_path, "")
    with front(tmp_path, "--model-control-mode", "explicit", "--load-model", "*") as f:
        f.ready()
        (tmp_path / "detector" / "config.pbtxt").write_text((tmp_path / "cascade" / "config.pbtxt").read_text())
        status, _, body = f.ask("POST", "/v2/repository/models/detector/load")
        assert status == 400
        assert "unload it first" in json.loads(body)["error"]
        assert outputs(f.infer("detector", body_of(tensor(HIGH)))) == {"OUTPUT0": HIGH}
        assert f.ask("POST", "/v2/repository/models/detector/unload")[0] == 200
        f.ask("POST", "/v2/repository/models/detector/load")
        status, _, body = f.infer("detector", body_of(tensor(HIGH, "IN")))
        assert status == 503
        assert "is an ensemble itself" in json.loads(body)["error"]


def test_drain_lets_an_ensemble_take_its_further_steps(tmp_path):
    f = serve_front.Front(cascade(tmp_path, "", detector="slow_ms=300", reader="slow_ms=100"))
    try:
        wait_for(f.is_ready)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(f.infer, "cascade", body_of(tensor(HIGH, "IN")))
            wait_for(lambda: f.metric("swapnet_serve_requests") >= 1)
            f.process.send_signal(signal.SIGTERM)
            f.said("told to end")
            assert outputs(answer.result()) == {"DETECTED": HIGH, "READ": HIGH}
        assert f.wait() == 0, f.log
    finally:
        f.process.kill()


@pytest.mark.slow
def test_new_versions_come_for_ever(tmp_path):
    """More of them, one after the other, than there may be models: an ensemble takes no time to load."""
    repo = cascade(tmp_path, "")
    options = ["--model-control-mode", "explicit", "--load-model", "*"]
    with front(repo, *options) as f, contextlib.closing(f.connection()) as connection:
        f.ready()
        for version in range(2, 4200):
            (repo / "cascade" / str(version - 1)).rename(repo / "cascade" / str(version))
            answer = f.ask("POST", "/v2/repository/models/cascade/load", connection=connection)
            assert answer[0] == 200, (version, answer[2])
        f.ready()
        answer = f.infer("cascade", body_of(tensor(HIGH, "IN")))
        assert (json.loads(answer[2])["model_version"], outputs(answer)["READ"]) == ("4199", HIGH)
        assert f.get("/v2/models/cascade/versions/4198/ready")[0] == 503
