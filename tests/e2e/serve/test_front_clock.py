"""swapnet-serve when the clock is set, and when it is stopped with its engines, as a machine that is suspended."""
import concurrent.futures
import json
import os
import signal
import time

import pytest

from daemons import stop
from jumping_clock import DAY, Clock, needs_faketime
from serve_front import body_of, front, outputs, repository, tensor, wait_for

VALUES = [1.0, 2.5, -3.0]


def assert_answered(answer):
    assert answer[0] == 200 and outputs(answer) == {"OUTPUT0": VALUES}, answer


@needs_faketime
def test_the_clock_jumps(tmp_path):
    """While a request with a time of its own is computed, and others wait: none is late for that."""
    clock = Clock(tmp_path)
    repo = repository(tmp_path / "repo", slow="slow_ms=50 groups=10", echo="")
    with front(repo, "--group-timeout-ms", "60000", env=clock.env()) as f, concurrent.futures.ThreadPoolExecutor(4) as pool:
        f.ready()
        for seconds in (DAY, -DAY, 3650 * DAY, -3650 * DAY, 0):
            work = [pool.submit(f.infer, model, body_of(tensor(VALUES), parameters={"timeout": 300 * 10**6}))
                    for model in ("slow", "slow", "echo")]
            time.sleep(0.3)
            clock.set(seconds)
            for answer in work:
                assert_answered(answer.result())
            begun = time.time()
            assert_answered(f.infer("echo", body_of(tensor(VALUES))))
            counted, = json.loads(f.get("/v2/models/echo/stats")[2])["model_stats"]
            last = counted["last_inference"] / 1000 - seconds  # in whole milliseconds
            assert begun - 0.01 < last < time.time() + 0.01, ("the clock did not jump", last - begun)


@pytest.mark.slow
def test_stopped_with_its_engines(tmp_path):
    """For longer than a group may take: the request is answered, by a new engine if need be."""
    with front(repository(tmp_path, slow="slow_ms=300 groups=10", echo=""), "--group-timeout-ms", "4000") as f, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        f.ready()
        work = pool.submit(f.infer, "slow", body_of(tensor(VALUES)))
        engines = wait_for(f.engines, "an engine")
        time.sleep(0.5)
        stopped = [f.process.pid, *engines]
        for pid in stopped:
            stop(pid)
        time.sleep(10)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        assert_answered(work.result())
        assert_answered(f.infer("echo", body_of(tensor(VALUES))))
