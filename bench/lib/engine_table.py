"""Rows of bench/engine.py: what two builds took, as Markdown, and where the new one falls short of its goals."""
import statistics

import results
from table import markdown_grid, mib, number

COLUMNS = ("series", "model", "point", "budget", "in memory ms", "old ms", "new ms", "new/old", "paired", "new/alone", "bound ms",
           "old/bound", "new/bound", "disk MB/s", "e - r", "old read", "new read", "old peak", "new peak", "same bits",
           "note")
# No row of one thread above this, and their mean; others against one thread; compiled code against its bound.
GOAL_ROW, GOAL_MEAN, GOAL_ALONE, GOAL_COMPILED = 1.03, 1.00, 1.03, 1.25


def _over(value, other):
    return value / other if value and other else None


def _paired(old, new):
    """Median of the rounds' own ratios: a machine that changes its pace between rounds has no part in it."""
    ratios = [statistics.median(its) / statistics.median(others)
              for its, others in zip(new.rounds, old.rounds) if its and others]
    return statistics.median(ratios) if ratios else None


def _notes(old, new):
    for name, lane in (("old", old), ("new", new)):
        if lane.ended:
            yield f"{name}: {lane.ended}"
        elif not results.read_stats(lane.stats_path):
            yield f"{name}: no statistics, swapnet was off"


def row(given, in_memory, old, new, alone_s, sampler):
    """One line of the table from three lanes; alone_s is what the new build takes without a second thread."""
    disk = statistics.median(given["bandwidths"])
    memory_s, old_s, new_s = in_memory.latency(), old.latency(), new.latency()
    bound = max(memory_s, given["must_read_bytes"] / disk) if memory_s else None
    made = {**given, "in_memory_s": memory_s, "old_s": old_s, "new_s": new_s, "ratio": _over(new_s, old_s),
            "paired": _paired(old, new),
            "alone_s": alone_s, "of_alone": _over(new_s, alone_s), "bandwidth": disk, "bound_s": bound,
            "note": "; ".join(_notes(old, new))}
    for name, lane in (("old", old), ("new", new)):
        made |= {f"{name}_latencies_s": lane.latencies, f"{name}_of_bound": _over(lane.latency(), bound),
                 f"{name}_read": lane.read_bytes_per_pass(), f"{name}_peak_bytes": sampler.peaks(lane.worker.group)["held"],
                 f"{name}_same_bits": bool(lane.same_bits(in_memory.hashes)),
                 f"{name}_stats": results.read_stats(lane.stats_path)}
    return made


def _ms(seconds):
    return number(seconds and seconds * 1e3, ".1f")


def _bits(row):
    other = [name for name in ("old", "new") if not row[f"{name}_same_bits"]]
    return f"NO: {', '.join(other)}" if other else "yes"


def _cells(row):
    return (row["series"], row["model"], row["point"], mib(row["budget_bytes"]), _ms(row["in_memory_s"]),
            _ms(row["old_s"]), _ms(row["new_s"]), number(row["ratio"], ".3f"), number(row["paired"], ".3f"),
            number(row["of_alone"], ".3f"),
            _ms(row["bound_s"]), number(row["old_of_bound"], ".2f"), number(row["new_of_bound"], ".2f"),
            f"{row['bandwidth'] / 1e6:.0f}", mib(row["must_read_bytes"]), mib(row["old_read"]), mib(row["new_read"]),
            mib(row["old_peak_bytes"]), mib(row["new_peak_bytes"]), _bits(row), row["note"])


def means(rows):
    """{series: geometric mean of new/old}."""
    found = {}
    for row in rows:
        if row["ratio"]:
            found.setdefault(row["series"], []).append(row["ratio"])
    return {series: statistics.geometric_mean(ratios) for series, ratios in found.items()}


def markdown(rows):
    lines = [markdown_grid(COLUMNS, [_cells(row) for row in rows]), ""]
    lines += [f"{series}: new/old {mean:.3f} in the geometric mean" for series, mean in means(rows).items()]
    return "\n".join(lines)


def _missed(row):
    if not row["new_s"] or not row["new_same_bits"]:
        yield row["note"] or "other bits than the program in memory"
    elif row["series"] == "a" and row["ratio"] and row["ratio"] > GOAL_ROW:
        yield f"{row['ratio']:.3f} times the old build (goal {GOAL_ROW})"
    elif row["of_alone"] and row["of_alone"] > GOAL_ALONE:
        yield f"{row['of_alone']:.3f} times the same without a second thread (goal {GOAL_ALONE})"
    elif row["series"] == "c" and row["new_of_bound"] and row["new_of_bound"] > GOAL_COMPILED:
        yield f"{row['new_of_bound']:.2f} times its bound (goal {GOAL_COMPILED})"


def shortfalls(rows):
    """One line per missed goal of the new build."""
    lines = [f"{row['series']}: {row['model']} at {row['point']}: {text}" for row in rows for text in _missed(row)]
    mean = means(rows).get("a")
    if mean and mean > GOAL_MEAN:
        lines.append(f"a: {mean:.3f} times the old build in the geometric mean (goal {GOAL_MEAN:.2f})")
    return lines
