"""What a SWAPNET_TRACE file says."""
import json


def events(path):
    document = json.loads(path.read_text())
    return document["traceEvents"] if isinstance(document, dict) else document


def _rows(path):
    """Complete events by the name of their row."""
    everything = events(path)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in everything
             if e["ph"] == "M" and e["name"] == "thread_name"}
    rows = {}
    for event in everything:
        if event["ph"] == "X":
            rows.setdefault(names.get((event["pid"], event["tid"]), "unnamed"), []).append(event)
    return rows


def compute_and_disk(path):
    """Two lists of events, in the order of their beginnings."""
    rows = _rows(path)
    found = [[event for name, some in rows.items() if word in name.lower() for event in some]
             for word in ("compute", "disk")]
    assert all(found), f"a row is missing or empty: {sorted(rows)}"
    return [sorted(some, key=lambda event: event["ts"]) for some in found]


def overlap(a, b):
    return a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]


def count_ahead(reads, compute):
    """How many went on while something computed."""
    return sum(any(overlap(read, other) for other in compute) for read in reads)
