"""bench/adapt.py: another budget for a program that computes, asked for directly and through swapnetd."""
import json
import statistics
import subprocess

import pytest

import harness

CHANGES = 10
BOUND_NS = 74e6  # as bench/adapt.py has it


@pytest.mark.alone
@pytest.mark.timed
def test_changes_of_the_budget(torch113, disk):
    """Bits, counts and limits as they should be. How long each takes is for the benchmark to say; here, on a machine that
    may be busy, only that half of the smaller budgets are bound in time."""
    out = disk / "out.json"
    done = subprocess.run([torch113.python, harness.REPO / "bench" / "adapt.py", "--model", "mobilenet_v2", "--ways",
                           "process,total", "--changes", str(CHANGES), "--least", "20", "--most", "36", "--pause", "20",
                           "--dir", disk, "--json", out],
                          env=harness.clean_env(), capture_output=True, text=True, timeout=harness.HANG_S)
    assert done.returncode in (0, 1) and out.exists(), done.stderr  # 1: one of the times is over its limit
    ways = json.loads(out.read_text())["ways"]
    assert set(ways) == {"process", "total"}
    for way, ran in ways.items():
        changes = ran["changes"]
        assert ran["same_bits"] and not ran["over"], (way, done.stderr)
        assert len(changes) == CHANGES and {c["grows"] for c in changes} == {True, False}, way
        for c in changes:
            assert c["asked_ns"] < c["told_ns"] <= c["bound_ns"] <= c["plan_ns"] <= c["next_ns"], (way, c)
            assert c["told_ns"] <= c["in_flight_ns"] <= c["bound_ns"], (way, c)
        shrinks = [c["bound_ns"] - c["asked_ns"] for c in changes if not c["grows"]]
        harness.in_time(statistics.median(shrinks) < BOUND_NS, (way, shrinks))
        assert ran["inferences"] > 8, way
