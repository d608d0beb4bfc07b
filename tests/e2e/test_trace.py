"""SWAPNET_TRACE=FILE: a Chrome trace with a row for compute and one for the disk, in which overlap can be seen."""
import json

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


def test_trace(torch, disk):
    path = disk / "trace.json"
    run = harness.both(torch, "infer", "mlp", "8", budget=48, env={"SWAPNET_TRACE": str(path)})[1]
    harness.assert_streamed(run)
    document = json.loads(path.read_text())
    events = document["traceEvents"] if isinstance(document, dict) else document
    rows = _rows(events)
    compute, disk_row = _find(rows, "compute"), _find(rows, "disk")
    assert len(compute) >= 8 * 24 / 2, f"only {len(compute)} events for 192 linear layers, half of which have to be streamed"
    for event in compute + disk_row:
        assert event["dur"] >= 0 and event["ts"] >= 0 and event["name"], event
    assert any(_overlap(a, b) for a in compute for b in disk_row), "reads never overlap with compute"


def test_no_trace_unless_asked(torch113, disk):
    harness.start(torch113, "infer", "mlp", where=disk, budget=48).finish(60)
    assert not [path for path in disk.iterdir() if "trace" in path.name]
