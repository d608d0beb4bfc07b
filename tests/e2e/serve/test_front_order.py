"""In which order swapnet-serve has its engine run requests: what one reading serves, what priorities say, what memory allows."""
import concurrent.futures
import json
import time

import pytest

import serve_front
from serve_front import body_of, front, outputs, repository, tensor, wait_for
from test_front_ensembles import ensemble

pytestmark = serve_front.needs_serve

VALUES = [0.0, 1.5, -2.25, 1024.0]
BODY = body_of(tensor(VALUES))


class Crowd:
    """Requests that all wait in the server while its engine runs another one, until their results are asked for."""

    def __init__(self, f, pool, go):
        self.f, self.pool, self.go, self.answers = f, pool, go, []
        self.send("blocker")
        wait_for(lambda: f.metric("swapnet_serve_requests") == 1)

    def send(self, model, body=BODY):
        count = len(self.answers) + 1
        self.answers.append(self.pool.submit(self.f.infer, model, body))
        wait_for(lambda: self.f.metric("swapnet_serve_requests") == count)

    def results(self):
        self.go.touch()
        return [answer.result() for answer in self.answers]


class Place:
    """Servers over one repository, one after the other; `log` is what their engines were told."""

    def __init__(self, path, pool):
        self.repo, self.log, self.go, self.pool = path / "repo", path / "log", path / "go", pool
        repository(self.repo, blocker=f"groups=1 wait_for={self.go}")

    def serve(self, *options):
        return front(self.repo, *options, env={"FAKE_LOG": str(self.log)})

    def crowd_of(self, f):
        return Crowd(f.ready(), self.pool, self.go)

    def runs(self):
        """(request, group) of each group that the engine ran behind the blocker."""
        return [(int(words[1]), int(words[2])) for words in self._run_lines()]

    def told(self):
        """((model, group), what was foretold with it) of each of them."""
        return [((int(words[3]), int(words[2])), [tuple(map(int, step.split(":"))) for step in words[4:]])
                for words in self._run_lines()]

    def _run_lines(self):
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [words for words in lines if words[0] == "RUN"][1:]


@pytest.fixture
def place(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        yield Place(tmp_path, pool)


def configure(place, model, text):
    (place.repo / model / "config.pbtxt").write_text(text)


def test_requests_share_what_is_read(place):
    repository(place.repo, m="groups=3 missing=64")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        for _ in range(4):
            crowd.send("m")
        assert all(answer[0] == 200 and outputs(answer) == {"OUTPUT0": VALUES} for answer in crowd.results())
    assert place.runs() == [(request, group) for group in range(3) for request in (2, 3, 4, 5)]


def test_as_many_share_as_memory_has_room_for(place):
    """What a request holds between two groups is half of the memory, less what one takes while it runs, and the weights."""
    with place.serve() as f:
        budget = int(f.ready().metric("swapnet_serve_engine_budget_bytes")) >> 20
    repository(place.repo, m=f"groups=3 missing=8 working=8 state={(budget - 17) // 2}")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        for _ in range(5):
            crowd.send("m")
        assert all(answer[0] == 200 and outputs(answer) == {"OUTPUT0": VALUES} for answer in crowd.results())
    begun, most = set(), 0
    for request, group in place.runs():
        begun.add(request)
        most = max(most, len(begun))
        begun -= {request} if group == 2 else set()
    assert most == 2 and len(place.runs()) == 15


def test_models_that_begin_alike_share_what_is_read(place):
    repository(place.repo, m="groups=3 missing=64 like=7 common=2", n="groups=3 missing=64 like=7 common=2",
               other="groups=3 missing=64")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        for model in ("m", "n", "other"):  # nothing is known of a model's groups before it has run
            assert f.ready().get(f"/v2/models/{model}/ready")[0] == 200
        for model in ("m", "n", "other", "m", "n", "other"):
            crowd.send(model)
        assert all(answer[0] == 200 and outputs(answer) == {"OUTPUT0": VALUES} for answer in crowd.results())
    runs = place.runs()
    # 2, 5: m; 3, 6: n; 4, 7: other.
    assert [group for request, group in runs if request in (2, 3, 5, 6)][:8] == 4 * [0] + 4 * [1]
    last = [request for request, group in runs if group == 2 and request in (2, 3, 5, 6)]
    assert sorted(last[:2]) in ([2, 5], [3, 6]) and sorted(last) == [2, 3, 5, 6]


def test_steps_that_start_together_are_chosen_among_together(place):
    """The lane is idle when the ensemble comes; its first step is not the one that runs first, nor is the order foretold. What is in
    memory comes first, then what is read while that computes, then what computes for less time than reading takes."""
    repository(place.repo, slow="groups=2 missing=640", fast="groups=2", middle="groups=2 missing=64 slow_ms=200")
    ensemble(place.repo, "all", ["SLOW", "FAST", "MIDDLE"],
             *((name, {"INPUT0": "IN"}, {"OUTPUT0": name.upper()}, "") for name in ("slow", "fast", "middle")))
    place.go.touch()
    with place.serve() as f:
        f.ready()
        for model in ("blocker", "slow", "fast", "middle"):  # nothing is known of a model's groups before it has run
            assert f.infer(model, BODY)[0] == 200
        before = len(place.told())
        answer = f.infer("all", body_of(tensor(VALUES, "IN")))
        assert outputs(answer) == {"SLOW": VALUES, "FAST": VALUES, "MIDDLE": VALUES}
    told = place.told()[before:]
    numbers = list(dict.fromkeys(model for (model, _), _ in told))
    slow, fast, middle = (next(model for (model, _), _ in place.told()[at:]) for at in (0, 2, 4))
    assert numbers == [fast, middle, slow], told
    assert list(dict.fromkeys(model for model, _ in told[0][1])) == numbers, told[0]


def test_without_batches_each_request_runs_to_its_end(place):
    repository(place.repo, m="groups=3 missing=64")
    with place.serve("--policy", "no-batch") as f:
        crowd = place.crowd_of(f)
        for _ in range(3):
            crowd.send("m")
        assert all(answer[0] == 200 for answer in crowd.results())
    assert place.runs() == [(request, group) for request in (2, 3, 4) for group in range(3)]


def without_repeats(steps):
    return [step for i, step in enumerate(steps) if i == 0 or step != steps[i - 1]]


@pytest.mark.parametrize("policy", ["completion", "exact", "edf", "tardy", "no-batch", "batch", "lazy"])
def test_engine_is_told_what_then_runs(place, policy):
    """Requests of three models wait, and none comes later: each RUN foretells the steps behind it, each lockstep once."""
    repository(place.repo, m="groups=3 missing=64", n="groups=2 missing=16", o="groups=1 missing=8")
    with place.serve("--policy", policy) as f:
        crowd = place.crowd_of(f)
        for model in ("m", "n", "m", "o", "n", "m"):
            crowd.send(model)
        assert all(answer[0] == 200 for answer in crowd.results())
    told = place.told()
    steps = [step for step, _ in told]
    assert len(told) == 3 * 3 + 2 * 2 + 1 and len({model for model, _ in steps}) == 3
    for i, (step, foretold) in enumerate(told):
        behind = without_repeats(steps[i + 1:])
        assert foretold == behind[:len(foretold)], (i, step)
        assert len(foretold) >= min(len(behind), 6), (i, step)


def test_bulk_reads_for_one_request_at_a_time(place):
    repository(place.repo, m="groups=3 missing=64", n="groups=2 missing=16")
    with place.serve("--policy", "bulk") as f:
        crowd = place.crowd_of(f)
        for model in ("m", "n", "m"):
            crowd.send(model)
        assert all(answer[0] == 200 for answer in crowd.results())
    told = place.told()
    assert place.runs() == [(request, group) for request, groups in ((2, 3), (3, 2), (4, 3)) for group in range(groups)]
    for (model, group), foretold in told:
        assert foretold == [(model, later) for later in range(group + 1, 3 if model == told[0][0][0] else 2)]


def test_deepeye_runs_convolutions_of_a_job_first(place):
    """A job is a request for an ensemble; its models' second groups are dense."""
    repository(place.repo, a="groups=2 missing=16 dense=2", b="groups=2 missing=16 dense=2")
    ensemble(place.repo, "both", ["A", "B"], ("a", {"INPUT0": "IN"}, {"OUTPUT0": "A"}, ""),
             ("b", {"INPUT0": "IN"}, {"OUTPUT0": "B"}, ""))
    with place.serve("--policy", "deepeye") as f:
        crowd = place.crowd_of(f)
        for _ in range(2):
            crowd.answers.append(crowd.pool.submit(f.infer, "both", body_of(tensor(VALUES, "IN"))))
            wait_for(lambda: f.metric("swapnet_serve_requests") == 3 * len(crowd.answers) - 2)  # its steps are requests, too
        assert all(answer[0] == 200 for answer in crowd.results())
    steps = [step for step, _ in place.told()]
    (a, _), (b, _) = steps[:2]
    assert a != b and steps == 2 * [(a, 0), (b, 0), (a, 1), (b, 1)]


def test_nothing_is_foretold_where_nothing_is_missing(place):
    repository(place.repo, m="groups=3", n="groups=3")
    with place.serve() as f:
        for model in ("m", "n"):
            assert f.ready().infer(model, BODY)[0] == 200
        place.log.unlink()
    place.log.touch()
    with place.serve() as f:
        crowd = place.crowd_of(f)
        for model in ("m", "n"):
            crowd.send(model)
        assert all(answer[0] == 200 for answer in crowd.results())
    assert len(place.told()) == 6 and not any(foretold for _, foretold in place.told())


def test_a_request_alone_is_foretold_to_its_end(place):
    repository(place.repo, m="groups=4 missing=64 alone=1")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        for _ in range(2):
            crowd.send("m")
        assert all(answer[0] == 200 for answer in crowd.results())
    (model, group), foretold = place.told()[-3]
    assert (group, foretold) == (1, [(model, 2), (model, 3)])


def test_a_higher_level_goes_first(place):
    repository(place.repo, m="groups=1")
    configure(place, "m", "dynamic_batching { priority_levels: 2 default_priority_level: 2 }")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        crowd.send("m")
        crowd.send("m", body_of(tensor(VALUES), parameters={"priority": 1}))
        assert all(answer[0] == 200 for answer in crowd.results())
    assert [request for request, _ in place.runs()] == [3, 2]


def test_an_ensemble_is_due_in_each_of_its_steps(place):
    """Others came before it and between its steps, and have more time. A group takes 134 ms as is guessed, as its weights are read; what has no
    deadline would be due 64 times as late as it takes alone, behind all of them."""
    repository(place.repo, m="groups=3 missing=64", detector="groups=2 missing=64", reader="groups=2 missing=64")
    ensemble(place.repo, "cascade", ["READ"], ("detector", {"INPUT0": "IN"}, {"OUTPUT0": "DETECTED"}, ""),
             ("reader", {"INPUT0": "DETECTED"}, {"OUTPUT0": "READ"}, ""))
    with place.serve("--policy", "edf") as f:
        crowd = place.crowd_of(f)
        for _ in range(3):
            crowd.send("m", body_of(tensor(VALUES), parameters={"timeout": 12_000_000}))
        crowd.answers.append(crowd.pool.submit(f.infer, "cascade", body_of(tensor(VALUES, "IN"), parameters={"timeout": 10_000_000})))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 6)  # and its first step
        assert [answer[0] for answer in crowd.results()] == [200] * 5
    runs = place.runs()
    steps = [run for run in runs if run[0] > 5]
    assert [group for _, group in steps] == [0, 1, 0, 1]
    assert runs[0] == steps[0] and runs.index(steps[-1]) < runs.index((2, 2))


def test_a_request_that_does_not_fit_beside_others_runs_alone(place):
    repository(place.repo, m="groups=2 missing=64 alone=1")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        for _ in range(4):
            crowd.send("m")
        assert all(answer[0] == 200 and outputs(answer) == {"OUTPUT0": VALUES} for answer in crowd.results())
        assert f.metric('nv_inference_request_success{model="m",version="1"}') == 4
    assert len(place.runs()) > 8  # some began anew


def test_a_model_has_a_queue_of_its_own(place):
    repository(place.repo, m="groups=1", n="groups=1")
    configure(place, "m", "dynamic_batching { default_queue_policy { max_queue_size: 2 } }")
    with place.serve() as f:
        crowd = place.crowd_of(f)
        crowd.send("m")
        crowd.send("m")
        status, _, body = f.infer("m", BODY)
        assert (status, json.loads(body)["error"]) == (503, "there are too many requests for this model")
        crowd.send("n")
        assert all(answer[0] == 200 for answer in crowd.results())


def test_waiting_times_are_foreseen(place):
    """One group of 20 ms: three that wait and the new one take 80 ms, of which the server knows no more than that."""
    repository(place.repo, m="groups=1 slow_ms=20")
    with place.serve() as f:
        assert json.loads(f.ready().get("/v2/models/m/estimate")[2])["wait_ms"] >= 0  # nothing has run
        answer = f.infer("m", BODY)
        alone = float(answer[1]["Swapnet-Wait-Ms"])
        assert alone >= 20
        crowd = place.crowd_of(f)
        for _ in range(3):
            crowd.send("m")
        foreseen = json.loads(f.get("/v2/models/m/estimate")[2])
        assert (foreseen["model_name"], foreseen["model_version"]) == ("m", "1")
        assert foreseen["wait_ms"] >= 3.9 * alone
        assert f.get("/v2/models/none/estimate")[0] == 404
        assert all(answer[0] == 200 for answer in crowd.results())


def seconds_of(f, body=BODY):
    began = time.monotonic()
    assert f.infer("m", body)[0] == 200
    return time.monotonic() - began


def test_a_dynamic_batch_waits_as_its_model_says(place):
    repository(place.repo, m="groups=2", n="groups=1")
    configure(place, "m", "max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 400000 }")
    with place.serve("--policy", "dynamic") as f:
        assert seconds_of(f.ready()) >= 0.4
        crowd = place.crowd_of(f)
        crowd.send("m")
        crowd.send("m")
        assert all(answer[0] == 200 for answer in crowd.results())
    assert place.runs()[-4:] == [(3, 0), (4, 0), (3, 1), (4, 1)]


def test_times_may_be_taken_for_longer(place):
    """Symphony begins when a second request would be late: 0.2 s each, or ten times as long."""
    repository(place.repo, m="groups=1 slow_ms=100")
    body = body_of(tensor(VALUES), parameters={"timeout": 3000000})
    for error, is_within in (0, lambda s: s > 2.25), (900, lambda s: s < 2):
        with place.serve("--policy", "symphony", "--time-error", error) as f:
            seconds_of(f.ready())  # learned; nobody is pressed
            assert any(is_within(seconds_of(f, body)) for _ in range(3))  # a busy machine may stop for a while


def spans(path):
    """{track: [(name, begin, end)]}, times in microseconds."""
    found, open_ones = {}, {}
    for event in json.loads(path.read_text()):
        if event["ph"] == "X":
            found.setdefault(event["cat"], []).append((event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b":
            open_ones[event["id"]] = event
        elif event["ph"] == "e":
            found.setdefault(event["cat"], []).append((event["name"], open_ones.pop(event["id"])["ts"], event["ts"]))
    assert not open_ones
    return found


def test_a_trace_shows_requests_and_groups(place, tmp_path):
    repository(place.repo, m="groups=2 slow_ms=20", bad="groups=1 fail=run")
    trace = tmp_path / "trace.json"
    with place.serve("--trace", trace) as f:
        f.ready()
        assert f.infer("m", BODY)[0] == 200
        assert f.infer("bad", BODY)[0] == 500
        wait_for(lambda: '"request"' in trace.read_text())  # while the server runs
    found = spans(trace)
    assert [name for name, _, _ in found["compute"]] == ["m 0 #1", "m 1 #1", "bad 0 #2"]
    assert [name for name, _, _ in found["request"]] == ["m", "failed: bad"]
    groups = found["compute"][:2]
    assert all(end - begin >= 20000 for _, begin, end in groups)
    assert found["request"][0][1] <= groups[0][1] and groups[0][2] <= groups[1][1] and groups[1][2] <= found["request"][0][2]
    assert trace.stat().st_mode & 0o777 == 0o600


def test_a_trace_follows_no_link(place, tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(AssertionError, match="cannot write the trace"):
        with place.serve("--trace", tmp_path / "link"):
            pass
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_policy_that_is_not_known_is_refused(place):
    with pytest.raises(AssertionError, match="one of completion"):
        with place.serve("--policy", "fair"):
            pass
