"""Models that swapnet-serve has Python run: each has a worker of its own, code that others could write is not run, and the memory is
divided without being given out twice."""
import concurrent.futures
import json
import os
import signal

import pytest

import serve_front
from serve_front import body_of, front, held_by_the_kernel, outputs, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

VALUES = [0.0, 1.5]
BODY = body_of(tensor(VALUES))


def add_python(repo, name, words="", config=None):
    folder = repo / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(words)
    if config:
        (repo / name / "config.pbtxt").write_text(config)
    return folder / "model.py"


def is_worker(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return b"--worker" in f.read()


def load(f, name, verb="load"):
    status, _, body = f.ask("POST", f"/v2/repository/models/{name}/{verb}")
    return status, json.loads(body or b"{}").get("error", "")


def total(f):
    """What all engines have together."""
    return int(f.metric("swapnet_serve_engine_budget_bytes"))


def said(log, what):
    """The first numbers of the lines with that word in the log of the fake engines."""
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith(what + " ")] if log.exists() else []


def test_each_has_a_worker_that_ends_with_it(tmp_path):
    repo = repository(tmp_path, echo="")
    add_python(repo, "one")
    add_python(repo, "two")
    with front(repo, "--model-control-mode=explicit", "--load-model=*") as f:
        f.ready()
        assert [is_worker(pid) for pid in sorted(f.engines())].count(True) == 2 and len(f.engines()) == 3
        for name in ("one", "two", "echo"):
            assert outputs(f.infer(name, BODY)) == {"OUTPUT0": VALUES}
        assert json.loads(f.get("/v2/models/one")[2])["platform"] == "python"
        assert json.loads(f.get("/v2/models/one/config")[2])["backend"] == "python"
        assert load(f, "one", "unload")[0] == 200
        wait_for(lambda: len(f.engines()) == 2)
        assert load(f, "one")[0] == 200 and len(f.engines()) == 3
        assert outputs(f.infer("one", BODY)) == {"OUTPUT0": VALUES}


def test_model_that_becomes_python_moves_to_a_worker_and_back(tmp_path):
    repo = repository(tmp_path, echo="")
    with front(repo, "--model-control-mode=explicit", "--load-model=*") as f:
        f.ready()
        model = repo / "echo" / "1" / "model.pt"
        model.rename(model.with_suffix(".py"))
        assert load(f, "echo")[0] == 200
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES} and sum(map(is_worker, f.engines())) == 1
        model.with_suffix(".py").rename(model)
        assert load(f, "echo")[0] == 200
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}
        wait_for(lambda: len(f.engines()) == 1)


def test_optional_inputs_of_an_ensemble_reach_its_steps(tmp_path):
    def io(*names):
        return "".join(f"input {{ name: '{name}' data_type: TYPE_FP32 dims: [1, -1] {more} }}\n" for name, more in names)
    repo = repository(tmp_path)
    add_python(repo, "pair", "inputs=2", io(("INPUT0", ""), ("INPUT1", "optional: true")))
    for name, inputs in (("both", (("IN", ""), ("MORE", "optional: true"))), ("none", (("IN", "optional: true"), ("MORE", "")))):
        (repo / name / "1").mkdir(parents=True)
        (repo / name / "config.pbtxt").write_text(io(*inputs) + """
            platform: 'ensemble' output { name: 'OUT' data_type: TYPE_FP32 dims: [1, -1] }
            ensemble_scheduling { step { model_name: 'pair' model_version: -1
                input_map { key: 'INPUT0' value: 'IN' } input_map { key: 'INPUT1' value: 'MORE' }
                output_map { key: 'OUTPUT0' value: 'OUT' } } }""")
    with front(repo) as f:
        f.ready()
        for others in ((), (tensor([9.0], "MORE"),)):
            assert outputs(f.infer("both", body_of(tensor(VALUES, "IN"), *others))) == {"OUT": VALUES}
        status, _, body = f.infer("none", body_of(tensor([9.0], "MORE")))
        assert status == 400 and "missing required input(s) ['INPUT0']" in json.loads(body)["error"]
        assert f.infer("both", body_of(tensor([9.0], "MORE")))[0] == 400


@pytest.mark.parametrize("below, mode", [("one/1/model.py", 0o664), ("one/1/model.py", 0o646), ("one/1", 0o775), ("one", 0o757),
                                         ("", 0o777)])
def test_code_that_others_can_write_is_not_run(tmp_path, below, mode):
    repo = repository(tmp_path / "repo", echo="")
    add_python(repo, "one")
    with front(repo, "--model-control-mode=explicit", "--load-model=echo") as f:
        (repo / below).chmod(mode)
        status, why = load(f, "one")
        assert status == 400 and "can write to" in why, why
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}
        (repo / below).chmod(0o755)
        assert load(f, "one")[0] == 200


@pytest.mark.parametrize("beside", ["helper.py", "package/inner.py", "__pycache__/helper.cpython-311.pyc", "fast.so", "package"])
def test_code_beside_it_that_others_can_write_is_not_run(tmp_path, beside):
    repo = repository(tmp_path / "repo", echo="")
    path = add_python(repo, "one").parent / beside
    (path if beside == "package" else path.parent).mkdir(exist_ok=True)
    if beside != "package":
        path.write_text("")
    (path.parent / "weights.bin").write_text("")
    (path.parent / "weights.bin").chmod(0o666)
    with front(repo, "--model-control-mode=explicit", "--load-model=echo") as f:
        path.chmod(0o777)
        status, why = load(f, "one")
        assert status == 400 and "can write to" in why and beside in why, why
        path.chmod(0o755)
        assert load(f, "one")[0] == 200
        (path.parent / "linked").symlink_to("/usr")
        assert load(f, "one")[0] == 400


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_code_of_another_user_is_not_run(tmp_path):
    repo = repository(tmp_path / "repo", echo="")
    os.chown(add_python(repo, "one"), 12345, 0)
    with front(repo, "--strict-readiness=false") as f:
        f.ready()
        # The server is ready with its shared engine, and the model has to wait for its own.
        wait_for(lambda: any(m["name"] == "one" and "can write to" in m["reason"] for m in json.loads(f.ask("POST", "/v2/repository/index")[2])))


def test_worker_that_dies_takes_no_other_model_with_it(tmp_path):
    repo = repository(tmp_path, echo="")
    add_python(repo, "evil", f"die={signal.SIGABRT.value}")
    add_python(repo, "hung", f"hang_if={tmp_path / 'flag'}")
    with front(repo, "--group-timeout-ms", "4000") as f:
        f.ready()
        shared = [pid for pid in f.engines() if not is_worker(pid)]
        (tmp_path / "flag").touch()
        assert outputs(f.infer("hung", BODY)) == {"OUTPUT0": VALUES}  # killed, and begun again
        for _ in range(2):
            assert f.infer("evil", BODY)[0] in (500, 503)
        wait_for(lambda: f.metric('swapnet_serve_model_ready{model="evil",version="1"}') == 0)
        assert f.infer("evil", BODY)[0] == 503
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}
        assert [pid for pid in f.engines() if not is_worker(pid)] == shared
        assert f.metric("swapnet_serve_engines_up") == 2


def test_memory_is_given_when_another_engine_has_given_it_up(tmp_path):
    repo = repository(tmp_path / "repo", echo="")
    log = tmp_path / "log"
    add_python(repo, "one", config='parameters { key: "memory" value { string_value: "40M" } }')
    with front(repo, "--model-control-mode=explicit", "--load-model=echo", env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        assert load(f, "one")[0] == 200
        lines = log.read_text().split()
        assert said(log, "BUDGET") == [total(f) - (40 << 20)]
        assert lines.index("BUDGET") < len(lines) - 1 - lines[::-1].index("LOAD")  # before the worker had begun
        assert load(f, "one", "unload")[0] == 200
        wait_for(lambda: said(log, "BUDGET")[-1] == total(f))


def test_memory_is_what_the_config_says_that_was_loaded_last(tmp_path):
    def config(size):
        return f'parameters {{ key: "memory" value {{ string_value: "{size}" }} }}'
    repo = repository(tmp_path, echo="")
    add_python(repo, "one", config=config("20M"))
    with front(repo, "--model-control-mode=explicit", "--load-model=echo") as f:
        f.ready()
        for size, error in ("20M", ""), ("40M", ""), ("160M", "none left"), ("10M", ""), ("much", "no size"), ("30M", ""):
            (repo / "one" / "config.pbtxt").write_text(config(size))
            status, said_why = load(f, "one")
            assert status == (400 if error else 200) and error in said_why, (size, said_why)
        assert outputs(f.infer("one", BODY)) == {"OUTPUT0": VALUES}


def test_memory_that_cannot_be_had_is_refused(tmp_path):
    repo = repository(tmp_path, echo="least=150")
    add_python(repo, "greedy", config='parameters { key: "memory" value { string_value: "150M" } }')
    add_python(repo, "wrong", config='parameters { key: "memory" value { string_value: "much" } }')
    add_python(repo, "tiny", config='parameters { key: "memory" value { string_value: "3M" } }')
    add_python(repo, "late", config='parameters { key: "memory" value { string_value: "40M" } }')
    with front(repo, "--model-control-mode=explicit", "--load-model=echo") as f:
        f.ready()
        assert "none left" in load(f, "greedy")[1]
        assert "no size" in load(f, "wrong")[1]
        assert "from 4M" in load(f, "tiny")[1]
        assert "cannot do without" in load(f, "late")[1]  # the shared engine refuses to shrink
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}


def test_more_workers_than_there_may_be(tmp_path):
    repo = repository(tmp_path, echo="")
    for number in range(8):
        add_python(repo, f"m{number}", config='parameters { key: "memory" value { string_value: "10M" } }')
    with front(repo, "--strict-readiness=false") as f:
        f.ready()
        wait_for(lambda: f.metric("swapnet_serve_engines_up") == 8)

        def states():
            return [m["state"] for m in json.loads(f.ask("POST", "/v2/repository/index")[2]) if m["name"] != "echo"]
        wait_for(lambda: "LOADING" not in states())  # an engine is up before its model is loaded
        assert states().count("READY") == 7 and states().count("UNAVAILABLE") == 1


def test_place_of_a_worker_that_ends_is_waited_for(tmp_path):
    repo = repository(tmp_path, echo="")
    for number in range(8):
        add_python(repo, f"m{number}", config='parameters { key: "memory" value { string_value: "10M" } }')
    with front(repo, "--model-control-mode=explicit", *(f"--load-model=m{number}" for number in range(7))) as f:
        f.ready()
        for turn in range(8):
            gone, next_one = f"m{turn % 8}", f"m{(turn + 7) % 8}"
            assert load(f, gone, "unload")[0] == 200
            assert load(f, next_one) == (200, "")
        assert f.metric("swapnet_serve_engine_restarts_total") == 0


def test_model_that_waits_for_a_place_is_loaded_nowhere_else(tmp_path):
    repo = repository(tmp_path, echo="")
    for number in range(8):
        add_python(repo, f"m{number}", config='parameters { key: "memory" value { string_value: "10M" } }')
    with front(repo, "--model-control-mode=explicit", "--load-model=echo", *(f"--load-model=m{number}" for number in range(1, 7))) as f, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        before = f.engines()
        assert load(f, "m0") == (200, "")
        last, = set(f.engines()) - set(before)
        with held_by_the_kernel(last):
            assert load(f, "m0", "unload")[0] == 200
            work = pool.submit(load, f, "m7")

            def waits():
                index = json.loads(f.ask("POST", "/v2/repository/index")[2])
                return work.done() or any(m["name"] == "m7" and m["state"] == "LOADING" for m in index)
            wait_for(waits, "the model that waits")
            assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}
        assert work.result() == (200, "")


def test_worker_with_work_borrows_from_idle_engines_and_gives_back(tmp_path):
    repo = repository(tmp_path / "repo", echo="weights=60")
    log = tmp_path / "log"
    add_python(repo, "large", "weights=100")
    with front(repo, env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        own = total(f) // 8
        base = total(f) - own
        assert said(log, "BUDGET") == []
        assert f.infer("large", BODY)[0] == 200
        # The shared engine keeps a quarter of what is its own; the worker has all else.
        wait_for(lambda: said(log, "BUDGET") == [base // 4, total(f) - base // 4])
        assert f.infer("echo", BODY)[0] == 200
        wait_for(lambda: said(log, "BUDGET")[2:] == [own, base])
