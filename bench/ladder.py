#!/usr/bin/env python3
"""One model within 16 budgets, from the smallest to one for everything: latency, bytes read, and whether every answer has
the plain program's bits. Drawn to --png. See README.md.

    python3 bench/ladder.py smollm_360m           # a language model: latencies are those of an answer
    python3 bench/ladder.py resnet101             # a model of pictures
    python3 bench/ladder.py olmoe --png build/bench/olmoe.png

The smallest budget is what swapnet itself says (minimum_bytes of its statistics, as `swapnetctl status` and its first
warning have it) in a run with the least that can be set. The plain program takes turns with each budget's. The exit
status is 1 if an answer differs."""
import hashlib
import json
import signal
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent / part) for part in ("language", "lib")]

import config
import language_names
import plot
import runs
import table
import variants
from plan import MIB

STEPS, ROUNDS = 16, 3
WARM_UP, WARM_UP_ANSWERS = 6, 2  # of pictures, and of language models, of whose answers each token is a pass
LEAST_BYTES = 8 * MIB
ROOM_PART = 8  # of the weights, beside all of them and the smallest budget
PICTURES = tuple(name for name in config.KNOWN_MODELS if name not in variants.TRANSFORMERS)
COLUMNS = ("budget MiB", "% of weights", "ms", "x plain", "read MiB", "hash", "same bits", "over MiB")


def budgets(smallest, all_bytes, steps):
    return [smallest + (all_bytes - smallest) * step // (steps - 1) for step in range(steps)]


def warm_up(run, worker):
    for index in range(WARM_UP if run.model in PICTURES else WARM_UP_ANSWERS):
        worker.infer(index % ROUNDS, runs.TIMEOUT_SECONDS)


def smallest_of(run):
    """What it says that it cannot do without."""
    worker = run.start(runs.SWAPNET, "least", LEAST_BYTES)
    warm_up(run, worker)
    stats = run.end(worker)
    return max(stats["minimum_bytes"], LEAST_BYTES)


def step(run, plain, number, budget):
    worker = run.start(runs.SWAPNET, f"ladder{number}", budget)
    warm_up(run, worker)
    ours, theirs = [], []
    before = worker.infer(0, runs.TIMEOUT_SECONDS)["read_bytes"]
    for index in range(ROUNDS):
        for who, answers in (worker, ours), (plain, theirs):
            answers.append(who.infer(index, runs.TIMEOUT_SECONDS))
            who.wait_until_quiet()
    stats = run.end(worker)
    return {"model": run.model, "variant": runs.SWAPNET, "budget_bytes": budget,
            "weight_bytes": run.facts["weight_bytes"], "limit_s": None,
            "latency_s": statistics.median(answer["seconds"] for answer in ours),
            "plain_s": statistics.median(answer["seconds"] for answer in theirs),
            "read_bytes": (ours[-1]["read_bytes"] - before) / ROUNDS, "hashes": [answer["hash"] for answer in ours],
            "same_bits": [answer["hash"] for answer in ours] == [answer["hash"] for answer in theirs],
            "over_bytes": stats["over_budget_bytes"]}


def digest(hashes):
    """Of the outputs of all rounds."""
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:12]


def cells(row):
    return [f"{row['budget_bytes'] / MIB:.0f}", f"{100 * row['budget_bytes'] / row['weight_bytes']:.0f}",
            f"{row['latency_s'] * 1e3:.0f}", f"{row['latency_s'] / row['plain_s']:.2f}", runs.mib(row["read_bytes"]),
            digest(row["hashes"]), "yes" if row["same_bits"] else "NO", runs.mib(row["over_bytes"])]


def main():
    # Ends through the finally block, so that no worker is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = runs.parser_of(__doc__)
    parser.add_argument("model", choices=(*language_names.NAMES, *PICTURES))
    parser.add_argument("--png", type=Path, help="the picture (default: out/MODEL.ladder.png)")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of budgets, two at least")
    args = parser.parse_args()
    run = (runs.PictureRuns if args.model in PICTURES else runs.Runs)(args, args.model)
    plain = run.start(runs.PLAIN, "ladder")
    rows = []
    try:
        smallest = smallest_of(run)
        everything = run.facts["weight_bytes"] * (ROOM_PART + 1) // ROOM_PART + smallest
        for number, budget in enumerate(budgets(smallest, everything, args.steps)):
            rows.append(step(run, plain, number, budget))
            runs.say("ladder: " + "  ".join(cells(rows[-1])))
    finally:
        plain.close()
    print(table.markdown_grid(COLUMNS, list(map(cells, rows))))
    drawn = rows + [{**row, "variant": runs.PLAIN, "latency_s": row["plain_s"]} for row in rows]
    plot.draw(drawn, args.png or args.dir / f"{args.model}.ladder.png")
    if args.json:
        args.json.write_text(json.dumps({"smallest_bytes": smallest, "rows": rows}, indent=1), encoding="utf-8")
    one = len({tuple(row["hashes"]) for row in rows}) == 1
    return 0 if one and all(row["same_bits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
