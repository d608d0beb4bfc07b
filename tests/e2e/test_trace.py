"""SWAPNET_TRACE=FILE: a Chrome trace with a row for compute and one for the disk, in which overlap can be seen."""
import json

import pytest

import harness


def _rows(events):
    """Complete events by the name of their row."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
             if e["ph"] == "M" and e["name"] == "thread_name"}
    rows = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault(names.get((event["pid"], event["tid"]), "unnamed"), []).append(event)
    return rows


def _find(rows, word):
    found = [events for name, events in rows.items() if word in name.lower()]
    assert found, f"no row named {word}: {sorted(rows)}"
    return [event for events in found for event in events]


def _overlap(a, b):
    return a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]


def _events(path):
    document = json.loads(path.read_text())
    return document["traceEvents"] if isinstance(document, dict) else document


@pytest.mark.alone
@pytest.mark.parametrize("program", ["infer mlp 12", "threads thread-per-inference 12"])
def test_reads_are_ahead(torch, program, disk):
    """Reads go on while somebody computes, also where each inference has a thread of its own (HOLES.md rule 14). Fetched
    on demand, none would: whoever computes would be waiting. A tensor counts as a weight when it is 64 operators old
    and has been read twice since, which half of this model is in the fourth inference: the last nine are looked at."""
    path = disk / "trace.json"
    run = harness.both(torch, *program.split(), budget=48, env={"SWAPNET_TRACE": str(path)})[1]
    harness.assert_streamed(run)
    assert run.stats["plans"] > 0, run.describe()
    rows = _rows(_events(path))
    compute = sorted(_find(rows, "compute"), key=lambda event: event["ts"])
    fourth = compute[-9 * 24]["ts"]
    reads = [event for event in _find(rows, "disk") if event["ts"] >= fourth]
    ahead = sum(any(_overlap(event, other) for other in compute) for event in reads)
    assert len(reads) >= 9 * 24 / 4, f"only {len(reads)} reads\n{run.describe()}"
    assert ahead >= 0.5 * len(reads), f"{ahead} of {len(reads)} reads went on while something computed\n{run.describe()}"


def test_trace(torch, disk):
    path = disk / "trace.json"
    run = harness.both(torch, "infer", "mlp", "8", budget=48, env={"SWAPNET_TRACE": str(path)})[1]
    harness.assert_streamed(run)
    rows = _rows(_events(path))
    compute, disk_row = _find(rows, "compute"), _find(rows, "disk")
    assert len(compute) >= 8 * 24 / 2, f"only {len(compute)} events for 192 linear layers, half of which have to be streamed"
    for event in compute + disk_row:
        assert event["dur"] >= 0 and event["ts"] >= 0 and event["name"], event
    assert any(_overlap(a, b) for a in compute for b in disk_row), "reads never overlap with compute"


def test_no_trace_unless_asked(torch113, disk):
    harness.start(torch113, "infer", "mlp", where=disk, budget=48).finish(60)
    assert not [path for path in disk.iterdir() if "trace" in path.name]
