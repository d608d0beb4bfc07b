"""What edge_serving.py has measured: tables and pictures of its CSV file, one run a table."""
import csv
import itertools
import statistics

import plot
import table

GOAL = 0.9
RUN = ("models", "weights_mib", "memory_mib", "disk", "arrivals", "alone_s", "computing_s", "share", "deadline_s", "turns_most")


def is_on_time(row, deadline):
    return row["status"] == 200 and row["done"] - row["at"] <= deadline


def read(path):
    """[(facts, rows)]: runs in their order."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row.update({name: float(row[name]) for name in ("step", "rate", "deadline", "at", "done")}, status=int(row["status"]))
    return [({name: run[i] for i, name in enumerate(RUN)}, list(own))
            for run, own in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in RUN))]


def by_policy(rows):
    """{policy: [(step, part in time, mean completion time of those that were answered)]}"""
    found = {}
    for row in rows:
        found.setdefault(row["policy"], {}).setdefault(row["step"], []).append(row)
    for policy, steps in found.items():
        found[policy] = []
        for step, own in steps.items():
            times = [row["done"] - row["at"] for row in own if row["status"] == 200]
            found[policy].append((step, statistics.mean(is_on_time(row, row["deadline"]) for row in own),
                                  statistics.mean(times) if times else float("nan")))
    return found


def capacity(points):
    """The rate, in those of one by one, up to which 90 % are in time; between two rates by a straight line."""
    last = (0.0, 1.0)
    for step, part, _ in points:
        if part < GOAL:
            return last[0] + (step - last[0]) * (last[1] - GOAL) / (last[1] - part)
        last = (step, part)
    return last[0]


def bound(facts):
    return GOAL * max(1.0, min(float(facts["share"]), float(facts["turns_most"])))


def _table(facts, rows):
    found = by_policy(rows)
    steps = sorted({row["step"] for row in rows})
    alone = float(facts["alone_s"])
    for policy, points in sorted(found.items(), key=lambda item: -capacity(item[1])):
        at = {step: (part, seconds) for step, part, seconds in points}
        yield (policy, f"{capacity(points):.2f}", *(f"{at[s][0]:.2f} {at[s][1] / alone:.1f}" if s in at else "" for s in steps),
               table.same_bits(all(row["same"] != "False" for row in rows if row["policy"] == policy)))


def tables(runs):
    lines = []
    for facts, rows in runs:
        steps = sorted({row["step"] for row in rows})
        lines.append(f"{facts['models']}: {float(facts['weights_mib']):.0f} MiB of weights in {float(facts['memory_mib']):.0f} MiB, "
                     f"disk {facts['disk'] if facts['disk'] != '0' else 'as it is'}, {facts['arrivals']}; alone "
                     f"{float(facts['alone_s']) * 1e3:.0f} ms, computing {float(facts['computing_s']) * 1e3:.0f} ms, "
                     f"n* {float(facts['share']):.1f}, deadline {float(facts['deadline_s']) * 1e3:.0f} ms\n")
        lines.append(table.grid(("policy", "capacity", *map(str, steps), "same bits"), list(_table(facts, rows))) + "\n")
    return "\n".join(lines)


def summary(runs, path):
    """A small CSV file: of each run a line for each policy and rate."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow((*RUN, "policy", "capacity", "step", "requests", "in_time", "mean_s", "same_bits"))
        for facts, rows in runs:
            for policy, points in by_policy(rows).items():
                for step, part, seconds in points:
                    own = [row for row in rows if row["policy"] == policy and row["step"] == step]
                    out.writerow((*facts.values(), policy, f"{capacity(points):.3f}", step, len(own), f"{part:.4f}",
                                  f"{seconds:.4f}", all(row["same"] != "False" for row in own)))


def draw(runs, path):
    """Two panels a run: the part in time, and mean completion times."""
    pyplot = plot.pyplot()
    if not pyplot:
        return
    figure, panels = pyplot.subplots(len(runs), 2, squeeze=False, figsize=(10, 3.6 * len(runs)))
    for (facts, rows), (left, right) in zip(runs, panels):
        for policy, points in by_policy(rows).items():
            steps = [point[0] for point in points]
            left.plot(steps, [point[1] for point in points], label=policy, marker="o", markersize=3, linewidth=1)
            right.plot(steps, [point[2] for point in points], label=policy, marker="o", markersize=3, linewidth=1)
        left.axhline(GOAL, color="black", linestyle="--", linewidth=1)
        disk = f"{facts['disk']} MB/s" if facts["disk"] != "0" else "disk as it is"
        left.set(title=f"{facts['models']}, {disk}, {facts['arrivals']}", xlabel="rate, of one by one", ylabel="in time")
        right.set(title=f"n* {float(facts['share']):.1f}", xlabel="rate, of one by one", ylabel="mean completion time, s")
    panels.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
