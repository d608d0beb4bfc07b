"""bench/edge_serving.py: arrivals, what counts as in time, and capacities; the server itself has tests of its own."""
import statistics
import sys

import pytest

import harness

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH / folder) for folder in (".", "lib", "serving", "edge")]

import edge_results  # noqa: E402
import open_loop  # noqa: E402


@pytest.mark.parametrize("kind, spread", (("poisson", 1), ("pareto", 1.5), ("constant", 0)))
def test_arrivals(kind, spread):
    times = open_loop.arrivals(kind, 2000, 7)
    gaps = [b - a for a, b in zip([0, *times], times)]
    assert times == open_loop.arrivals(kind, 2000, 7) and min(gaps) >= 0
    assert statistics.mean(gaps) == pytest.approx(1)
    deviation = statistics.pstdev(gaps)
    assert deviation == pytest.approx(spread, abs=0.15) or (kind == "pareto" and deviation > spread)
    assert kind == "constant" or times != open_loop.arrivals(kind, 2000, 8)


def test_capacity_is_where_nine_of_ten_are_in_time():
    assert edge_results.capacity([(1.0, 1.0, 0.1), (2.0, 0.95, 0.1), (3.0, 0.85, 0.1)]) == pytest.approx(2.5)
    assert edge_results.capacity([(1.0, 0.8, 0.1)]) == pytest.approx(0.5)
    assert edge_results.capacity([(1.0, 1.0, 0.1)]) == 1
    assert edge_results.is_on_time({"status": 200, "at": 1, "done": 2}, 1)
    assert not edge_results.is_on_time({"status": 503, "at": 1, "done": 2}, 1)
    assert not edge_results.is_on_time({"status": 200, "at": 1, "done": 2.1}, 1)


def test_tables_say_what_was_measured(tmp_path):
    facts = {"models": "m", "weights_mib": 4.0, "memory_mib": 2.0, "disk": 90, "arrivals": "poisson", "alone_s": 0.5,
             "computing_s": 0.1, "share": 5.0, "deadline_s": 2.0, "turns_most": 32}
    rows = [{"step": 1.0, "policy": "edf", "seed": 0, "number": i, "rate": "2", "deadline": "2", "model": "m", "at": float(i),
             "sent": float(i), "done": i + (1.0 if i else 3.0), "status": 200, "same": True} for i in range(4)]
    import edge_serving
    edge_serving.write(tmp_path / "out.csv", facts, rows)
    read = edge_results.read(tmp_path / "out.csv")
    assert edge_results.by_policy(read[0][1]) == {"edf": [(1.0, 0.75, 1.5)]}
    text = edge_results.tables(read)
    assert "n* 5.0" in text and "0.75 3.0" in text and "yes" in text
    edge_results.summary(read, tmp_path / "small.csv")
    head, line = (tmp_path / "small.csv").read_text().splitlines()
    assert head.endswith("policy,capacity,step,requests,in_time,mean_s,same_bits")
    assert line.endswith(",edf,0.400,1.0,4,0.7500,1.5000,True"), line
