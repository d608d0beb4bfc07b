"""From the runs of one model to rows of the table, and what falls short of the goals."""
import os
import statistics

import load_run
import plan
from table import mib, number, same_bits

COLUMNS = ("model", "MiB", "budget", "variant", "construct s", "load s", "% of plain", "Python %",
           "first s",
           "peak", "read before", "written", "first reads", "latency ms", "passes ms",
           "steady from", "cache left",
           "same bits", "note")
SLACK_BYTES = 16 << 20      # the goal for swapnet's peak: base + budget + this
LOAD_PART = 0.10            # the goal for its load time, of plain's
STEADY_PART = 1.2           # passes of at most this times the latency count as steady
STEADY_FROM = {load_run.FIRST: 3, load_run.AGAIN: 2}  # the goals: the pass from which on all are
CACHE_PART = 0.01           # the goal for page cache held by model files


def _median(runs, value):
    values = [found for found in map(value, runs) if found is not None]
    return statistics.median(values) if values else None


def _passes(runs):
    """The median of each pass, as far as all runs got."""
    return [statistics.median(times) for times in zip(*(run.latencies_s for run in runs))]


def _steady_from(passes, latency):
    """The first pass, from 1 on, from which on all are steady; None where there are none."""
    slow = [number for number, took in enumerate(passes, 1) if took > latency * STEADY_PART]
    return (slow[-1] if slow else 0) + 1 if passes else None


def _same_bits(runs, plain):
    expected = next((run.hashes for run in plain if run.hashes), None)
    hashes = [run.hashes for run in runs if run.hashes]
    if not hashes or expected is None:
        return None
    return all(given == expected[:len(given)] for given in hashes)


def _note(runs):
    notes = [run.ended for run in runs if run.ended]
    limits = {run.limit_bytes for run in runs if not run.ended}
    if notes and None in limits:
        notes.append("numbers without a limit")
    if any(run.stats is None for run in runs if run.variant in (load_run.FIRST, load_run.AGAIN)
           and not run.ended):
        notes.append("no statistics: swapnet was off")
    return ", ".join(dict.fromkeys(notes))


def row(model, facts, budget, alone_s, variant, all_runs):
    """One line: medians over the runs of a variant that ended well, peaks their maximum."""
    runs = [run for run in all_runs if run.variant == variant]
    plain = [run for run in all_runs if run.variant == load_run.PLAIN]
    good = [run for run in runs if not run.ended]
    load, plain_load = _median(good, lambda run: run.load_s), _median(plain, lambda run: run.load_s)
    first = _median(good, lambda run: run.first_s)
    latency = _median(good, lambda run: statistics.median(run.latencies_s[-load_run.STEADY_LAST:]))
    passes = _passes(good)
    return {
        "model": model.name, "variant": variant, "weight_bytes": facts.weight_bytes,
        "base_bytes": facts.base_bytes, "budget_bytes": budget,
        "construct_s": _median(good, lambda run: run.construct_s), "load_s": load,
        "load_ratio": load / plain_load if load is not None and plain_load else None,
        "alone_s": alone_s, "alone_ratio": alone_s / plain_load if plain_load else None,
        "first_s": first, "plain_first_s": _median(plain, lambda run: run.first_s),
        "over_base_bytes": max((run.peaks["held"] for run in good), default=None),
        "before_first_bytes": _median(good, load_run.Run.before_first_bytes),
        "load_read_bytes": _median(good, lambda run: run.load_read_bytes),
        "written_bytes": _median(good, lambda run: run.written_bytes),
        "first_read_bytes": _median(good, lambda run: run.first_read_bytes),
        "latency_s": latency, "passes_s": passes, "steady_from": _steady_from(passes, latency),
        "file_left_bytes": _median(good, lambda run: max(
            0, run.file_left_bytes - facts.file_bytes)),
        "same_bits": _same_bits(runs, plain), "note": _note(runs),
        "runs": [vars(run) for run in runs]}


def over_base(result):
    held = result["over_base_bytes"]
    return None if held is None else held - result["base_bytes"]


def cells(result):
    ratio, latency = result["load_ratio"], result["latency_s"]
    alone = result["alone_ratio"]
    return (result["model"], mib(result["weight_bytes"]), mib(result["budget_bytes"]),
            result["variant"], number(result["construct_s"], ".2f"),
            number(result["load_s"], ".3f"),
            "" if ratio is None or result["variant"] == load_run.PLAIN else f"{ratio * 100:.0f}",
            "" if alone is None or result["variant"] != load_run.PLAIN else f"{alone * 100:.0f}",
            number(result["first_s"], ".2f"), mib(over_base(result)),
            mib(result["before_first_bytes"]), mib(result["written_bytes"]),
            mib(result["first_read_bytes"]), number(latency and latency * 1e3, ".0f"),
            " ".join(f"{took * 1e3:.0f}" for took in result["passes_s"]),
            number(result["steady_from"], "d"),
            mib(result["file_left_bytes"]),
            same_bits(result["same_bits"]), result["note"])


def _misses(result):
    """The goals that one row of swapnet misses."""
    if result["same_bits"] is not True:
        yield result["note"] or "other bits than the plain program's"
    if over_base(result) is None:
        return
    excess = over_base(result) - result["budget_bytes"] - SLACK_BYTES
    if excess > 0:
        yield f"peak is {excess / plan.MIB:.0f} MiB over base + budget + 16 MiB"
    if result["file_left_bytes"] > CACHE_PART * result["weight_bytes"]:
        yield f"{result['file_left_bytes'] / plan.MIB:.0f} MiB of page cache held after the run"
    if result["steady_from"] and result["steady_from"] > STEADY_FROM[result["variant"]]:
        yield f"steady from pass {result['steady_from']} on (goal {STEADY_FROM[result['variant']]})"
    if result["variant"] == load_run.FIRST:
        return
    if result["load_ratio"] and result["load_ratio"] > LOAD_PART:
        yield (f"load time is {result['load_ratio'] * 100:.0f} % of plain's (goal 10 %), of which "
               f"Python alone takes {result['alone_ratio'] * 100:.0f} %")
    if result["plain_first_s"] and result["first_s"] > result["plain_first_s"]:
        yield (f"first inference after {result['first_s']:.2f} s, plain "
               f"{result['plain_first_s']:.2f} s")
    # Headers and tables are read; a MiB of them is more than any of these checkpoints has.
    if result["before_first_bytes"] > plan.MIB:
        yield f"{result['before_first_bytes'] / plan.MIB:.0f} MiB read before the first inference"


def shortfalls(rows):
    """One line per missed goal of swapnet."""
    return [f"{result['model']}: {result['variant']}: {text}" for result in rows
            if result["variant"] in (load_run.FIRST, load_run.AGAIN) for text in _misses(result)]


def load_average():
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())
