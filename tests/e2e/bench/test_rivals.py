"""bench/rivals.py on programs that are no engines: the search for the smallest memory, who is killed or answers wrongly, and
the table."""
import sys

import harness
import pytest

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH), str(BENCH / "lib"), str(BENCH / "rivals")]

import bench_cgroup  # noqa: E402
import report  # noqa: E402
import search  # noqa: E402
import trial  # noqa: E402
import ways  # noqa: E402
from plan import MIB  # noqa: E402

KILLED = "out of memory"
# Takes so many MiB, and answers with so many seconds and a hash.
PROGRAM = """
import json, sys
held = b"x" * (int(sys.argv[1]) << 20)
print(json.dumps({}), flush=True)
for line in sys.stdin:
    if line.strip() == "quit":
        break
    print(json.dumps({"seconds": float(sys.argv[2]), "hash": sys.argv[3], "read_bytes": 0}), flush=True)
"""


def outcome(limit, ended=None, seconds=(), **more):
    return search.Outcome(limit, ended, 1.5 if seconds else None, list(seconds), **more)


def program(mebibytes, seconds=0.1, bits="same"):
    return ways.Start([sys.executable, "-c", PROGRAM, *map(str, (mebibytes, seconds, bits))], {}, [])


@pytest.fixture(name="trials")
def _trials(tmp_path):
    made = trial.Trials(bench_cgroup.NoGroup, tmp_path / "log", patience_seconds=20, times_plain=20)
    assert made.run(program(1), None, 2, 2).ended is None  # knows all inputs
    made.plain_seconds = 0.1
    return made


@pytest.mark.parametrize("needed", [3, 40, 129, 700, 3000])
def test_the_smallest_memory_is_found(needed):
    tried = []

    def attempt(limit):
        tried.append(limit)
        return outcome(limit, None if limit >= needed * MIB else KILLED, [1])
    found = search.smallest(attempt, 128 * MIB)
    near = max(8 * MIB, 0.05 * found.smallest_bytes)
    assert found.failed_bytes < needed * MIB <= found.smallest_bytes <= found.failed_bytes + near
    assert found.why == (KILLED if found.failed_bytes else "") and len(tried) == len(set(tried)) <= 12


def test_who_never_answers_has_no_smallest_memory():
    found = search.smallest(lambda limit: outcome(limit, KILLED), 128 * MIB)
    assert found == search.Found(None, search.MOST_BYTES, KILLED)
    assert not search.worth_trying(found, 2 * search.MOST_BYTES)
    assert report.row("a", found, {}, [100 * MIB], [])[1:4] == ["none", "", KILLED]


def test_times_plain_are_those_of_the_same_round():
    ours, plain = [outcome(1, None, [2, 2, 9]), outcome(1, None, [8])], [outcome(None, None, [1]), outcome(None, None, [4])]
    assert search.latency(ours) == 5 and search.ratio(ours, plain) == 2
    assert search.latency([*ours, outcome(1, KILLED)]) is None


def test_a_plain_program_that_did_not_answer_leaves_no_ratio():
    plain = [outcome(None, "too slow")]
    row = report.row("a", search.Found(8, 0), {report.SMALLEST: [outcome(8, None, [0.2])]}, [], plain)
    assert row[3] == "200" and "no answer in time" in report.title("vgg19", MIB, plain)


def test_a_row_says_who_was_killed_and_how_far_off_it_is():
    limits, plain = [100 * MIB, 200 * MIB, 400 * MIB], [outcome(None, None, [0.1])]
    runs = {report.SMALLEST: [outcome(150 * MIB, None, [0.3], deviation=2e-6)], limits[1]: [outcome(limits[1], "too slow")],
            limits[2]: [outcome(limits[2], None, [0.2], deviation=3e-6)]}
    row = report.row("engine", search.Found(150 * MIB, 142 * MIB, KILLED), runs, limits, plain)
    assert row == ["engine", "150", "1.5", "300 (3.00)", KILLED, "too slow", "200 (2.00)", "3e-06 off"]
    assert "| engine | 150 |" in report.text([row], limits, markdown=True)


def test_other_bits_are_no_answer(trials):
    assert trials.run(program(1, bits="other"), None, 1, 2).ended == "OTHER BITS"


def test_one_slow_answer_does_not_end_the_warm_up(trials):
    assert len(trials.run(program(1), None, 4, 4).seconds) == 4
    late = [{"seconds": seconds} for seconds in (1, 1, 1, 9)]
    assert not trial._slow(late) and trial._slow([*late, {"seconds": 9}])


def test_a_slow_way_is_asked_less_often_and_one_beyond_its_time_has_ended(trials):
    slow = trials.run(program(1, seconds=6), None, 4, 4)
    assert slow.ended is None and len(slow.seconds) == trial.SLOW_ANSWERS - 1
    trials.patience_seconds = -100
    assert trials.run(program(1), None, 1, 1).ended == "too slow"


def test_the_limit_holds_for_the_whole_process(trials):
    kind, why_not = bench_cgroup.find()
    if why_not:
        pytest.skip(why_not)
    trials.group_kind = kind
    killed = trials.run(program(100), 60 * MIB, 1, 1)
    assert killed.ended == KILLED and killed.first_seconds is None and not killed.seconds
    found = search.smallest(lambda limit: trials.run(program(100), limit, 1, 1), 64 * MIB)
    assert 100 * MIB < found.smallest_bytes < 150 * MIB and found.why == KILLED
