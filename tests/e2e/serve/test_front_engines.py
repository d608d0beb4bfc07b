"""What swapnet-serve does with requests that are late, engines that die, models that come and go, and when it is to end."""
import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
import serve_front
from serve_front import Front, binary, body_of, front, held_by_the_kernel, outputs, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

VALUES = [0.0, 1.5, -2.25, 1024.0]
BODY = body_of(tensor(VALUES))


def index_of(f):
    return {one["name"]: one for one in json.loads(f.ask("POST", "/v2/repository/index")[2])}


# ---- time and room ----

def test_full_buffer_is_said_at_once(tmp_path):
    repo = repository(tmp_path, slow="slow_ms=300 groups=2")
    with front(repo, "--buffers", "3M", "--body-limit", "1M") as f:
        f.ready()
        large = binary([1.0] * 240000)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: f.infer("slow", *large), range(8)))
        refused = [answer for answer in answers if answer[0] != 200]
        assert refused
        assert all(answer[0] == 503 and answer[1]["Retry-After"] == "1" for answer in refused)
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)
        assert f.infer("slow", *large)[0] == 200


def test_an_answer_larger_than_the_buffer_is_the_requests_fault_alone(tmp_path):
    repo = repository(tmp_path, grown="grow=1000", echo="")
    with front(repo, "--buffers", "3M", "--body-limit", "1M") as f:
        f.ready()
        for _ in range(3):
            status, _, body = f.infer("grown", *binary([1.0] * 4000))
            assert (status, json.loads(body)["error"]) == (500, "the answer is larger than the buffer")
        assert f.infer("grown", *binary([1.0]))[0] == f.infer("echo", BODY)[0] == 200
        assert f.metric("swapnet_serve_engine_restarts_total") == 0
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_many_requests_for_a_model_with_many_outputs_run_together(tmp_path):
    """The engine reads no message while it computes for all of them, and what it is told meanwhile is long."""
    gate = tmp_path / "gate"
    repo = repository(tmp_path / "repo", wide=f"inputs=32 groups=2 slow_ms=5 missing=20 wait_for={gate}")
    body = body_of(*(tensor([float(i)] * 1000, f"INPUT{i}") for i in range(32)))
    with front(repo, "--policy", "batch", env={"LD_PRELOAD": str(harness.small_sockets())}) as f, \
            concurrent.futures.ThreadPoolExecutor(34) as pool:
        f.ready()
        work = [pool.submit(f.infer, "wide", body) for _ in range(34)]
        wait_for(lambda: f.metric("swapnet_serve_requests") == 34)
        gate.touch()
        for one in work:
            assert one.result()[0] == 200
            assert outputs(one.result())["OUTPUT31"] == [31.0] * 1000
        assert f.metric("swapnet_serve_engine_restarts_total") == 0


def test_what_was_computed_has_room_for_its_answer(tmp_path):
    """Bodies come all the time, and would fill the buffer, while answers are larger than what one of them leaves."""
    repo = repository(tmp_path, grown="grow=4 groups=2 slow_ms=4", echo="")
    with front(repo, "--buffers", "4M", "--body-limit", "1M", "--policy", "batch") as f:
        f.ready()
        body, headers = binary([1.0] * 25000)
        assert f.infer("grown", body, headers)[0] == 200  # the server knows how large an answer is
        stop = time.monotonic() + 4

        def ask(_):
            found = []
            while time.monotonic() < stop:
                status, _, answer = f.infer("grown", body, headers)
                found.append(json.loads(answer)["error"] if status != 200 else "")
                if status != 200:
                    time.sleep(0.02)  # as Retry-After says, and sooner
            return found
        with concurrent.futures.ThreadPoolExecutor(48) as pool:
            said = [one for found in pool.map(ask, range(48)) for one in found]
        assert said.count("there is no room for the answer") == 0
        assert said.count("") > 48
        assert said.count("there is no room for the request now") > 0, "the buffer was never full"
        assert f.infer("echo", BODY)[0] == 200
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_an_answer_waits_for_room_for_a_while(tmp_path):
    """Another client takes its time for its own answer, and goes away with it in the end."""
    repo = repository(tmp_path, grown="grow=120 groups=1", echo="")
    with front(repo, "--buffers", "8M", "--body-limit", "1M") as f, concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        body, headers = binary([1.0] * 12500)  # the answer is 6 MB, more than a socket takes
        with f.dial() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = f"POST /v2/models/grown/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n" + \
                f"Inference-Header-Content-Length: {headers['Inference-Header-Content-Length']}\r\n\r\n"
            slow.sendall(head.encode() + body)
            assert slow.recv(12) == b"HTTP/1.1 200"
            assert json.loads(f.infer("grown", body, headers)[2])["error"] == "there is no room for the answer"
            assert f.infer("echo", BODY)[0] == 200
            work = pool.submit(f.infer, "grown", body, headers)
            wait_for(lambda: f.metric("swapnet_serve_requests") == 1)
            assert f.infer("echo", BODY)[0] == 200  # others go on
        assert work.result()[0] == 200
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_a_model_may_have_all_inputs_that_a_message_holds(tmp_path):
    with front(repository(tmp_path, wide="inputs=64 unknown=1 groups=1")) as f:
        f.ready()
        body = body_of(*(tensor([float(i)], f"INPUT{i}") for i in range(64)))
        for _ in range(3):
            assert outputs(f.infer("wide", body)) == {"OUTPUT0": [0.0]}


def test_too_many_requests_are_refused(tmp_path):
    repo = repository(tmp_path, slow="slow_ms=300 groups=2")
    with front(repo, "--queue", "2") as f:
        f.ready()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: f.infer("slow", BODY)[0], range(8)))
        assert set(answers) == {200, 503}


def test_deadline_drops_a_request_at_the_next_group(tmp_path):
    repo = repository(tmp_path / "repo", slow="slow_ms=100 groups=1000")
    log = tmp_path / "log"
    with front(repo, env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        asked = 0
        for timeout_us in (150000, 2000000, 20000000):  # on a busy machine its time may be over before it has begun
            answer = f.infer("slow", body_of(tensor(VALUES), parameters={"timeout": timeout_us}))
            assert answer[0] == 503
            assert "time" in json.loads(answer[2])["error"]
            asked += 1
            if "RUN" in log.read_text():
                break
        wait_for(lambda: "DROP" in log.read_text())
        assert f.metric('nv_inference_request_failure{model="slow",version="1",reason="REJECTED"}') == asked
        assert f.metric("swapnet_serve_requests") == 0


def test_client_that_leaves_is_dropped(tmp_path):
    repo = repository(tmp_path / "repo", slow="slow_ms=50 groups=10000", echo="")
    log = tmp_path / "log"
    with front(repo, env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        with f.dial() as s:
            s.sendall(b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
            wait_for(lambda: "RUN" in log.read_text())
        wait_for(lambda: "DROP" in log.read_text())
        assert f.infer("echo", BODY)[0] == 200
        assert f.metric('nv_inference_request_failure{model="slow",version="1",reason="CANCELED"}') == 1


def test_client_that_leaves_at_once_is_dropped(tmp_path):
    """The server does not watch the clients of requests that have just come."""
    repo = repository(tmp_path / "repo", slow="slow_ms=50 groups=10000")
    with front(repo, "--http-thread-count", "1") as f:
        f.ready()
        for _ in range(4):
            with f.dial() as s:
                s.sendall(b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        counted = 'nv_inference_request_failure{model="slow",version="1",reason="CANCELED"}'
        wait_for(lambda: f.metric(counted) == 4)
        assert f.metric("swapnet_serve_requests") == 0


def test_small_outputs_come_with_the_last_group(tmp_path):
    """As soon as the server knows how large a model's answer is: then there is no STORE."""
    repo = repository(tmp_path / "repo", echo="inputs=2 groups=2")
    log = tmp_path / "log"
    long = [float(i) for i in range(20000)]
    with front(repo, env={"FAKE_LOG": str(log)}) as f:
        f.ready()
        for values in ([1.5], [2.5], [3.5, 4.5], long, long, [5.5]):
            status, _, answer = f.infer("echo", body_of(tensor(values, "INPUT0"), tensor([0.5], "INPUT1")))
            assert status == 200
            assert [t["data"] for t in json.loads(answer)["outputs"]] == [values, [0.5]]
        told = [line.split()[0] for line in log.read_text().splitlines() if "LOAD" not in line]
        # The first answer is of no known size, the fourth larger than the one before, the fifth one worth no room.
        assert told == ["RUN", "RUN", "STORE"] + 2 * ["RUN", "RUN", "ROOM"] + 3 * ["RUN", "RUN", "STORE"]
        assert f.metric("swapnet_serve_buffer_used_bytes") == 0


def test_outputs_where_no_room_was_given_are_refused(tmp_path):
    repo = repository(tmp_path, liar="astray=1", echo="")
    with front(repo) as f:
        f.ready()
        assert f.infer("liar", BODY)[0] == 200
        assert f.infer("liar", BODY)[0] == 500
        assert f.infer("echo", BODY)[0] == 200
        assert f.metric("swapnet_serve_buffer_used_bytes") == 0
    assert "broke the protocol" in f.log


def test_client_that_leaves_takes_nobody_with_it(tmp_path):
    """Requests that run with its own in lockstep are answered, whenever it leaves."""
    repo = repository(tmp_path, slow="slow_ms=20 groups=5")
    with front(repo) as f, concurrent.futures.ThreadPoolExecutor(3) as pool:
        f.ready()
        for stage in range(4):
            work = [pool.submit(f.infer, "slow", BODY) for _ in range(3)]
            with f.dial() as s:
                s.sendall(b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
                time.sleep(0.1 * stage)
            assert [outputs(one.result()) for one in work] == [{"OUTPUT0": VALUES}] * 3
        wait_for(lambda: f.metric("swapnet_serve_requests") == 0)
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


# ---- engines that fail ----

def test_killed_engine_loses_no_request(tmp_path):
    repo = repository(tmp_path, echo="slow_ms=2")
    with front(repo) as f:
        f.ready()
        done, stop = [], threading.Event()

        def work():
            c = f.connection()
            while not stop.is_set():
                done.append(f.infer("echo", BODY, connection=c)[0])
            c.close()
        threads = [threading.Thread(target=work) for _ in range(4)]
        try:
            for thread in threads:
                thread.start()
            for _ in range(20):
                before = len(done)
                wait_for(lambda: f.engines() and len(done) >= before + 4, "work")  # pylint: disable=cell-var-from-loop
                os.kill(f.engines()[0], signal.SIGKILL)
            before = len(done)
            wait_for(lambda: len(done) > before + 4, "work after the last")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert set(done) == {200}
        assert f.metric("swapnet_serve_engine_restarts_total") >= 20
        assert f.metric('swapnet_serve_model_quarantined{model="echo",version="1"}') == 0
        f.ready()


def test_crash_is_retried_once(tmp_path):
    flag = tmp_path / "flag"
    repo = repository(tmp_path / "repo", once=f"die={signal.SIGSEGV.value} die_if={flag}")
    with front(repo) as f:
        f.ready()
        flag.touch()
        assert f.infer("once", BODY)[0] == 200
        assert not flag.exists()
        assert f.metric("swapnet_serve_engine_restarts_total") == 1


def test_a_request_that_only_waits_survives_crashes_of_others(tmp_path):
    """Its next group waits while shorter requests run, under which the engine dies, twice."""
    flags = [tmp_path / "first", tmp_path / "second"]
    repo = repository(tmp_path / "repo", a=f"die={signal.SIGSEGV.value} die_if={flags[0]}", b=f"die={signal.SIGSEGV.value} die_if={flags[1]}",
                      slow="slow_ms=20 groups=200")
    log = tmp_path / "log"

    def runs():
        """Groups of the third model."""
        return sum(line.startswith("RUN") and line.endswith(" 2") for line in log.read_text().splitlines())
    with front(repo, env={"FAKE_LOG": str(log)}) as f, concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        for name in ("a", "b"):
            assert f.infer(name, BODY)[0] == 200  # its times are known
        work = pool.submit(f.infer, "slow", BODY)
        for name, flag in zip(("a", "b"), flags):
            before = runs()
            wait_for(lambda: runs() > before, "a group")  # pylint: disable=cell-var-from-loop
            assert not work.done()
            flag.touch()
            assert f.infer(name, BODY)[0] == 200
            assert not flag.exists()
        assert f.metric("swapnet_serve_engine_restarts_total") == 2
        assert work.result()[0] == 200


def test_model_under_which_engines_die_is_set_apart(tmp_path):
    repo = repository(tmp_path, evil=f"die={signal.SIGABRT.value}", echo="")
    with front(repo) as f:
        f.ready()
        answer = f.infer("evil", BODY)
        assert answer[0] == 500
        assert "died" in json.loads(answer[2])["error"]
        wait_for(lambda: f.metric('swapnet_serve_model_quarantined{model="evil",version="1"}') == 1)
        wait_for(lambda: f.metric("swapnet_serve_engines_up") == 2)
        f.ready()
        assert "quarantined" in index_of(f)["evil"]["reason"]
        before = f.engines()
        assert f.infer("evil", BODY)[0] in (500, 503)  # its own engine dies, twice
        assert set(before) & set(f.engines()), "the shared engine has died as well"
        assert f.infer("echo", BODY)[0] == 200
        wait_for(lambda: "again and again" in index_of(f)["evil"]["reason"])
        assert f.infer("evil", BODY)[0] == 503
        assert not f.is_ready()
        assert f.get("/v2/models/echo/ready")[0] == 200


def test_hung_group_is_ended(tmp_path):
    flag = tmp_path / "flag"
    repo = repository(tmp_path / "repo", hang=f"hang_if={flag}")
    with front(repo, "--group-timeout-ms", "4000") as f:
        f.ready()
        flag.touch()
        assert f.infer("hang", BODY)[0] == 200  # again, without the file
        f.said("has not answered in time")


def test_engine_that_cannot_be_killed_holds_nobody_up(tmp_path):
    flag = tmp_path / "flag"
    repo = repository(tmp_path / "repo", hang=f"hang_if={flag}")
    with front(repo, "--group-timeout-ms", "4000") as f, concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        flag.touch()
        with held_by_the_kernel(f.engines()[0]):
            work = pool.submit(f.infer, "hang", BODY)
            f.said("has not answered in time")
            assert f.get("/v2/health/live")[0] == 200
            assert not f.is_ready()
            assert f.metric("swapnet_serve_engines_up") == 0
            assert not work.done()
        assert work.result()[0] == 200
        f.ready()


def test_server_ends_without_an_engine_that_cannot_be_killed(tmp_path):
    f = Front(repository(tmp_path, echo=""))
    try:
        wait_for(f.is_ready)
        with held_by_the_kernel(f.engines()[0]):
            f.process.send_signal(signal.SIGTERM)
            assert f.process.wait(serve_front.PATIENCE_S) == 0
            f.said("does not end")
    finally:
        f.process.kill()


def test_engine_that_closes_its_socket_and_lives_on_has_failed(tmp_path):
    repo = repository(tmp_path, shut="close=1", echo="")
    with front(repo) as f:
        f.ready()
        answer = f.infer("shut", BODY)
        assert answer[0] == 500
        assert "died" in json.loads(answer[2])["error"]
        f.said("closed its socket and went on")
        wait_for(lambda: f.metric('swapnet_serve_model_quarantined{model="shut",version="1"}') == 1)
        assert f.infer("echo", BODY)[0] == 200


def test_server_sleeps_while_its_engine_is_down(tmp_path):
    """Though a policy wanted to be asked again by now: it waits for others that a request could run with, until its time is short."""
    gate = tmp_path / "gate"
    gate.touch()
    with front(repository(tmp_path / "repo", echo=""), "--policy", "symphony", env={"FAKE_GATE": str(gate)}) as f, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        assert f.infer("echo", BODY)[0] == 200  # its times are known
        work = pool.submit(f.infer, "echo", body_of(tensor(VALUES), parameters={"timeout": 3000000}))
        wait_for(lambda: f.metric("swapnet_serve_requests") == 1)
        gate.unlink()
        os.kill(f.engines()[0], signal.SIGKILL)
        assert work.result()[0] == 503  # its time is over
        awake = []  # waiting for a processor counts, too: others' load may take a turn
        while len(awake) < 4 and not (awake and awake[-1] < 0.7):
            before = f.awake_s()
            time.sleep(1.5)
            awake.append(f.awake_s() - before)
        assert min(awake) < 0.7, awake
        gate.touch()
        f.ready()
        assert f.infer("echo", BODY)[0] == 200


def is_group_empty(group):
    """But for what nobody has reaped yet."""
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its = path.read_text().rpartition(")")[2].split()[:3]
            if int(its) == group and state != "Z":
                return False
    return True


def test_engine_whose_child_holds_its_socket_is_missed_at_once(tmp_path):
    repo = repository(tmp_path, nest="child=1")
    with front(repo) as f:
        f.ready()
        engine, = f.engines()
        began = time.monotonic()
        os.kill(engine, signal.SIGKILL)
        assert f.infer("nest", BODY)[0] == 200
        assert time.monotonic() - began < 50  # the time limit of a group is 60 s
        wait_for(lambda: is_group_empty(engine), "the child's end")
        last, = f.engines()
    wait_for(lambda: is_group_empty(last), "the end of the last child")


def be_a_subreaper():
    """As the first process of a container: whoever has lost its parent becomes a child."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def test_children_that_engines_leave_behind_are_reaped(tmp_path):
    with front(repository(tmp_path, nest="child=1"), first=be_a_subreaper) as f:
        f.ready()
        for _ in range(2):
            engine, = f.engines()
            os.kill(engine, signal.SIGKILL)
            assert f.infer("nest", BODY)[0] == 200
            wait_for(lambda: len(f.engines()) == 1, "the end of what is left")


def test_engine_that_does_not_start_is_said(tmp_path):
    repo = repository(tmp_path, echo="")
    with front(repo, env={"FAKE_EXIT": "3"}) as f:
        f.said("died at its start: exit status 3")
        assert f.get("/v2/health/live")[0] == 200
        assert not f.is_ready()
        assert f.infer("echo", BODY)[0] == 503


def test_a_load_does_not_wait_for_an_engine_that_never_starts(tmp_path):
    with front(repository(tmp_path, echo=""), "--model-control-mode", "explicit", env={"FAKE_EXIT": "3"}) as f:
        status, _, body = f.ask("POST", "/v2/repository/models/echo/load")
        assert (status, json.loads(body)["error"]) == (503, "failed to load 'echo': its engine does not start")


def test_loads_that_wait_do_not_keep_others_from_the_server(tmp_path):
    gate = tmp_path / "gate"
    repo = repository(tmp_path / "repo", slow=f"load_wait={gate}", echo="")
    with front(repo, "--model-control-mode", "explicit", "--load-model", "echo") as f, contextlib.ExitStack() as stack:
        f.ready()
        clients = [stack.enter_context(contextlib.closing(f.connection())) for _ in range(66)]
        for one in clients:
            one.request("POST", "/v2/repository/models/slow/load")
        refused = wait_for(lambda: [one for one in clients if select.select([one.sock], [], [], 0)[0]])
        assert refused[0].getresponse().status == 503
        for path in ("/metrics", "/v2/models/echo", "/v2/models/echo/ready", "/v2/repository/index"):
            assert f.ask("POST" if "index" in path else "GET", path)[0] == 200
        gate.touch()


def test_model_that_kills_its_loader_does_not_stop_the_others(tmp_path):
    """One crashes it, for the other the kernel kills it for want of memory, again and again."""
    repo = repository(tmp_path, evil=f"die_on_load={signal.SIGSEGV.value}", hungry=f"die_on_load={signal.SIGKILL.value}", echo="",
                      bad="refuse=no_model")
    with front(repo, "--strict-readiness", "false") as f:
        wait_for(lambda: all("again and again" in index_of(f)[name]["reason"] for name in ("evil", "hungry")))
        assert f.infer("echo", BODY)[0] == 200
        wait_for(f.is_ready)
        assert index_of(f)["bad"]["reason"] == "no_model"


def test_engines_die_with_the_server(tmp_path):
    f = Front(repository(tmp_path, echo=""))
    wait_for(f.is_ready)
    engines = f.engines()
    assert engines
    f.process.kill()
    f.process.communicate()

    def are_gone():
        return not any(os.path.exists(f"/proc/{pid}") and "Z" not in open(f"/proc/{pid}/stat", encoding="ascii").read().split()[2]
                       for pid in engines)
    wait_for(are_gone)


# ---- models that come and go ----

def test_explicit_models_are_loaded_when_asked_for(tmp_path):
    repo = repository(tmp_path, echo="", other="", bad="refuse=no_model")
    with front(repo, "--model-control-mode=explicit", "--load-model=other") as f:
        f.ready()
        assert f.infer("other", BODY)[0] == 200
        assert f.infer("echo", BODY)[0] == 404
        assert f.ask("POST", "/v2/repository/models/echo/load")[0] == 200
        assert f.infer("echo", BODY)[0] == 200
        assert f.ask("POST", "/v2/repository/models/echo/load", b'{"parameters":{"config":"{}"}}')[0] == 400
        assert f.ask("POST", "/v2/repository/models/echo/load", b'{"parameters":{"file:1/model.pt":"x"}}')[0] == 400
        assert "no_model" in f.ask("POST", "/v2/repository/models/bad/load")[2].decode()
        assert f.ask("POST", "/v2/repository/models/none/load")[0] == 400
        assert f.ask("POST", "/v2/repository/models/echo/unload")[0] == 200
        assert f.infer("echo", BODY)[0] in (404, 503)
        (repo / "echo" / "2").mkdir()
        (repo / "echo" / "2" / "model.pt").write_text("type=INT8")
        assert f.ask("POST", "/v2/repository/models/echo/load")[0] == 200
        assert json.loads(f.get("/v2/models/echo")[2])["versions"] == ["2"]
        assert f.infer("echo", body_of(tensor([1], kind="INT8")))[0] == 200
        ready = json.loads(f.ask("POST", "/v2/repository/index", b'{"ready":true}')[2])
        assert {(one["name"], one["version"]) for one in ready} == {("echo", "2"), ("other", "1")}


def test_model_that_is_asked_for_and_not_there_is_missed(tmp_path):
    repo = repository(tmp_path, echo="")
    with front(repo, "--model-control-mode=explicit", "--load-model=echo", "--load-model=late") as f:
        wait_for(lambda: f.get("/v2/models/echo/ready")[0] == 200)
        f.said("model late: no folder of that name")
        assert not f.is_ready()
        late = json.loads(f.ask("POST", "/v2/repository/index")[2])[1]
        assert (late["name"], late["state"]) == ("late", "UNAVAILABLE") and "no folder" in late["reason"]
        repository(repo, late="")
        assert f.ask("POST", "/v2/repository/models/late/load")[0] == 200
        assert f.is_ready() and f.infer("late", BODY)[0] == 200
    done = subprocess.run([serve_front.SERVE, "--model-repository", repo, "--memory", "200M", "--http-port", "0", "--library", "none",
                           "--model-control-mode=explicit", "--load-model=../echo"], capture_output=True, text=True,
                          timeout=serve_front.PATIENCE_S, check=False)
    assert done.returncode == 3 and "no name of a model" in done.stderr


def test_reloading_loses_no_request(tmp_path):
    repo = repository(tmp_path, echo="slow_ms=1")
    with front(repo, "--model-control-mode", "explicit", "--load-model", "*") as f:
        f.ready()
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            work = [pool.submit(f.infer, "echo", BODY) for _ in range(100)]
            for _ in range(10):
                assert f.ask("POST", "/v2/repository/models/echo/load")[0] == 200
            assert {one.result()[0] for one in work} == {200}


def test_log_that_nobody_reads_stops_no_request(tmp_path):
    repo = repository(tmp_path, echo="", bad="refuse=" + "x" * 120)
    with front(repo, "--model-control-mode", "explicit", "--load-model", "echo") as f:
        f.ready()
        c = f.connection()
        c.timeout = serve_front.PATIENCE_S
        for _ in range(700):  # a line each, of which a pipe holds 64 KiB
            assert f.ask("POST", "/v2/repository/models/bad/load", connection=c)[0] == 400
        assert f.infer("echo", BODY, connection=c)[0] == 200
        c.close()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reading = pool.submit(f.said, "lines before this one are lost")
            wait_for(lambda: f.ask("POST", "/v2/repository/models/bad/load") and reading.done())
            reading.result()


def test_load_that_is_overtaken_by_another_does_not_count(tmp_path):
    """The file is mended while the engine is still busy with the bad one."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    repo = repository(tmp_path / "repo", m=f"load_wait={gate} refuse=the_old_one")
    with front(repo, "--model-control-mode", "explicit", env={"FAKE_LOG": str(log)}) as f, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        path = "/v2/repository/models/m/load"
        first = pool.submit(f.ask, "POST", path)
        wait_for(lambda: log.exists() and "LOAD" in log.read_text())
        (repo / "m" / "1" / "model.pt").unlink()
        (repo / "m" / "1" / "model.pt").write_text("")
        second = pool.submit(f.ask, "POST", path)
        wait_for(lambda: index_of(f)["m"]["state"] == "UNLOADING")
        gate.touch()
        assert first.result()[0] == 200 and second.result()[0] == 200
        assert f.infer("m", BODY)[0] == 200


def test_quarantined_model_that_is_unloaded_gives_its_engine_up(tmp_path):
    flag = tmp_path / "flag"
    repo = repository(tmp_path / "repo", evil=f"die={signal.SIGABRT.value} die_if={flag}", echo="")
    with front(repo, "--model-control-mode", "explicit", "--load-model", "*") as f:
        f.ready()
        for _ in range(2):
            flag.touch()
            assert f.infer("evil", BODY)[0] == 200
        wait_for(lambda: f.metric('swapnet_serve_model_quarantined{model="evil",version="1"}') == 1)
        wait_for(lambda: f.metric("swapnet_serve_engines_up") == 2)
        assert f.ask("POST", "/v2/repository/models/evil/unload")[0] == 200
        wait_for(lambda: len(f.engines()) == 1)
        assert f.ask("POST", "/v2/repository/models/evil/load")[0] == 200
        assert f.infer("evil", BODY)[0] == 200
        assert len(f.engines()) == 1


def test_many_loads_at_once_are_all_answered(tmp_path):
    names = [f"m{i}" for i in range(40)]
    repo = repository(tmp_path, echo="", **{name: "" for name in names})
    with front(repo, "--model-control-mode", "explicit", "--load-model", "echo") as f, \
            concurrent.futures.ThreadPoolExecutor(45) as pool:
        f.ready()
        loads = [pool.submit(f.ask, "POST", f"/v2/repository/models/{name}/load") for name in names]
        asked = [pool.submit(f.infer, "echo", BODY) for _ in range(200)]
        assert {one.result()[0] for one in loads + asked} == {200}
        gone = [pool.submit(f.ask, "POST", f"/v2/repository/models/{name}/unload") for name in names]
        assert {one.result()[0] for one in gone} == {200}
        assert [one["name"] for one in json.loads(f.ask("POST", "/v2/repository/index", b'{"ready":true}')[2])] == ["echo"]


def test_config_names_the_tensors(tmp_path):
    repo = repository(tmp_path, echo="type=FP32")
    (repo / "echo" / "config.pbtxt").write_text('name: "echo"\nmax_batch_size: 8\n'
                                                'input [{name: "in__0" data_type: TYPE_FP32 dims: [4]}]\n'
                                                'output [{name: "out__0" data_type: TYPE_FP32 dims: [4]}]\n')
    with front(repo) as f:
        f.ready()
        assert outputs(f.infer("echo", body_of(tensor(VALUES, "in__0")))) == {"out__0": VALUES}
        assert f.infer("echo", body_of(tensor(VALUES[:3], "in__0")))[0] == 400
        assert json.loads(f.get("/v2/models/echo")[2])["inputs"][0]["shape"] == [-1, 4]


def reshaped(place, kind, name, dims, shape):
    """Appends an input or an output to a config.pbtxt."""
    with open(place / "config.pbtxt", "a", encoding="ascii") as f:
        f.write(f'{kind} {{ name: "{name}" data_type: TYPE_FP32 dims: {dims}' + (f" reshape {{ shape: {shape} }}" if shape is not None else "") + " }\n")


def test_a_model_gets_and_gives_what_reshape_says(tmp_path):
    """The models give what they get, so that their answers show both."""
    repo = repository(tmp_path, within="", there="", back="", scalar="", varied="")
    expected = {}
    for name, batch, given, got, answered in (("within", 8, ([4], [2, 2]), ([4], [2, 2]), [1, 4]),
                                              ("there", 8, ([4], [2, 2]), ([2, 2], None), [1, 2, 2]),
                                              ("back", 8, ([4], None), ([2, 2], [4]), [1, 2, 2]),
                                              ("scalar", 8, ([1], []), ([1, 1], []), [1, 1, 1]),
                                              ("varied", 0, ([1, -1], [-1]), ([-1], None), [4])):
        (repo / name / "config.pbtxt").write_text(f"max_batch_size: {batch}\n")
        reshaped(repo / name, "input", "INPUT0", *given)
        reshaped(repo / name, "output", "OUTPUT0", *got)
        expected[name] = answered
    with front(repo) as f:
        f.ready()
        for name, shape in expected.items():
            values = VALUES[:1] if name == "scalar" else VALUES
            for _ in range(2):  # the second answer lies in the room that was given for it
                status, _, answer = f.infer(name, body_of(tensor(values)))
                assert status == 200, answer
                assert [(one["shape"], one["data"]) for one in json.loads(answer)["outputs"]] == [(shape, values)]
        assert f.infer("there", body_of({**tensor(VALUES), "shape": [1, 2, 2]}))[0] == 400  # clients have the other shape


def test_an_output_that_is_not_what_reshape_says_is_an_error(tmp_path):
    repo = repository(tmp_path, flat="", secret="unknown=1")
    for name in ("flat", "secret"):
        (repo / name / "config.pbtxt").write_text("max_batch_size: 8\n")
        reshaped(repo / name, "output", "OUTPUT0", [4], [2, 2])
    with front(repo, "--strict-readiness", "false") as f:
        f.ready()
        for _ in range(2):
            status, _, answer = f.infer("flat", BODY)
            assert (status, "shape [1,4]" in json.loads(answer)["error"]) == (500, True)
        wait_for(lambda: "reshape" in index_of(f)["secret"]["reason"])
        assert f.metric("swapnet_serve_buffer_used_bytes") == 0


# ---- begin and end ----

@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP, signal.SIGHUP]])
def test_drain_answers_what_is_on_its_way(tmp_path, signals):
    f = Front(repository(tmp_path, slow="slow_ms=200 groups=3"))
    try:
        wait_for(f.is_ready)
        idle = f.connection()
        f.ask("GET", "/v2", connection=idle)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            work = [pool.submit(f.infer, "slow", BODY) for _ in range(3)]
            wait_for(lambda: f.metric("swapnet_serve_requests") == 3)
            for one in signals:
                f.process.send_signal(one)
                f.said("told to end")
            answer = f.infer("slow", BODY, connection=idle)
            assert answer[0] == 503
            assert answer[1]["Connection"].lower() == "close"
            with pytest.raises(OSError):
                f.dial()
            assert [one.result()[0] for one in work] == [200] * 3
        assert f.wait() == 0, f.log
    finally:
        f.process.kill()


def test_hangup_that_was_ignored_at_start_ends_nothing(tmp_path):
    with front(repository(tmp_path, echo=""), first=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as f:
        f.ready()
        f.process.send_signal(signal.SIGHUP)
        assert f.infer("echo", BODY)[0] == 200
    assert f.log.count("told to end") == 1


def test_drain_has_an_end(tmp_path):
    f = Front(repository(tmp_path, slow="slow_ms=100 groups=100000"), "--exit-timeout-secs", "1")
    try:
        wait_for(f.is_ready)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            work = pool.submit(f.infer, "slow", BODY)
            wait_for(lambda: f.metric("swapnet_serve_requests") == 1)
            assert f.end() == 0, f.log
            assert work.result()[0] == 503
    finally:
        f.process.kill()


def test_systemd_is_told(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(path))
        s.settimeout(serve_front.PATIENCE_S)
        with front(repository(tmp_path / "repo", echo=""), env={"NOTIFY_SOCKET": str(path)}):
            assert s.recv(4096).startswith(b"READY=1")
            assert s.recv(4096) == b"WATCHDOG=1"


def test_metrics_have_a_port_of_their_own(tmp_path):
    with front(repository(tmp_path, echo=""), "--metrics-port", "0", "--metrics-address", "127.0.0.1") as f:
        other, everything = int(f.said(r"metrics on .*port (\d+)")[1]), f.port
        assert f.get("/metrics")[0] == 404
        f.port = other
        assert f.get("/metrics")[0] == 200
        assert f.get("/v2")[0] == 404
        f.port = everything


@pytest.mark.parametrize("options, said", [
    (["--memory", "800M"], "--model-repository is missing"), (["--model-repository", "/tmp"], "--memory is missing"),
    (["--no-such", "1"], "unknown option '--no-such'"), (["--memory", "1M"], "--memory '1M' is not right"),
    (["--memory"], "a value is missing"), (["x"], "unexpected argument"),
    (["--model-repository", "/tmp", "--memory", "64M", "--buffers", "63M"], "leaves too little"),
    (["--model-control-mode", "poll"], "use none or explicit"),
    (["--http-port", "99999"], "--http-port '99999' is not right: use a number from 0 to 65535"), (["--http-port="], "--http-port ''"),
    (["--metrics-port", "web"], "--metrics-port 'web'"), (["--https-port", "-1"], "--https-port '-1'"),
    (["--header-limit", "1"], "use a size from 4K to 1M"), (["--least-rate", "0"], "use a size from 1 to 4096T"),
])
def test_wrong_usage_is_said(options, said):
    done = subprocess.run([serve_front.SERVE, *options], capture_output=True, text=True, timeout=serve_front.PATIENCE_S, check=False)
    assert done.returncode == 2
    assert said in done.stderr


def test_options_of_triton_are_taken(tmp_path):
    with front(repository(tmp_path, echo=""), "--allow-grpc=true", "--grpc-port=8001", "--backend-config=a,b=c",
               "--strict-model-config", "false", "--log-verbose=1", "--exit-timeout-secs=5") as f:
        f.ready()
        f.said("gRPC is not built in")
        f.said("--grpc-port has no effect here")


def test_port_that_is_taken_is_said(tmp_path):
    repo = repository(tmp_path, echo="")
    with front(repo) as f:
        done = subprocess.run([serve_front.SERVE, "--model-repository", repo, "--memory", "200M", "--http-port", str(f.port),
                               "--library", "none"], capture_output=True, text=True, timeout=serve_front.PATIENCE_S, check=False)
        assert done.returncode == 1, "the port may be free later"
        assert "cannot listen" in done.stderr


def test_what_is_missing_ends_it_for_good(tmp_path):
    """With an exit status after which systemd does not start it again (share/systemd)."""
    for repo, library in (tmp_path / "none", "none"), (repository(tmp_path / "repo", echo=""), tmp_path / "none.so"):
        done = subprocess.run([serve_front.SERVE, "--model-repository", repo, "--memory", "200M", "--http-port", "0", "--library", library],
                              capture_output=True, text=True, timeout=serve_front.PATIENCE_S, check=False)
        assert done.returncode == 3 and str(tmp_path / "none") in done.stderr, done


def test_limit_of_files_is_said(tmp_path):
    """The buffer that engines share counts as a file, and the limit's signal would end the server without a word."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    done = subprocess.run([serve_front.SERVE, "--model-repository", repository(tmp_path, echo=""), "--memory", "200M", "--http-port", "0",
                           "--library", "none"], capture_output=True, text=True, timeout=serve_front.PATIENCE_S, check=False, preexec_fn=limit)
    assert done.returncode == 3 and "File too large" in done.stderr, done
