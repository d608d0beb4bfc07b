#!/usr/bin/env python3
"""Mixtures of experts within a budget: how many bytes are read for each token, against those of the experts that the
router chose and that do not fit the budget. See README.md.

Kept are, of all weights, those that are read for every token, and as many experts as there is room for: by odds, those
that the router prefers, which is the best that anybody can do who does not know the future; by hindsight, those that it
chose most often in the run itself, chance included. The exit status is 1 if an answer has other bits than the plain program's."""
import collections
import json
import statistics
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent / part) for part in ("language", "lib")]

import runs
import table
from plan import MIB

WARM_UP, ANSWERS = 3, 4
MODELS, POINTS, KINDS = ("olmoe", "mixtral"), (25, 50, 75), ("uniform", "skewed")
SKEW_PART = 4  # as in language_models.py, which needs PyTorch
RING_LEAST = MIB // 2  # which the least budget has beside what is no weight
COLUMNS = ("model", "router", "budget", "MiB", "read/token", "routed/token", "not kept: odds", "x odds",
           "hindsight", "x hindsight", "same bits")


def choices(answers, layers):
    """Of each token but the first, the (layer, expert) pairs that it reads."""
    for answer in answers:
        steps = answer["chosen"][layers:]
        for at in range(0, len(steps), layers):
            yield [(layer, expert) for layer, experts in steps[at:at + layers] for expert in experts]


def not_kept_by_odds(tokens, room, facts, router):
    """Bytes a token of experts that are not kept where nothing is known but the router's odds."""
    experts, layers, each = facts["experts"], facts["layers"], facts["expert_bytes"]
    preferred = max(experts // SKEW_PART, 2) if router == "skewed" else 0
    fits, missing = max(0, room) // each, 0
    for first, end in (0, preferred), (preferred, experts):
        size = (end - first) * layers
        kept = min(fits, size)
        fits -= kept
        uses = sum(first <= expert < end for token in tokens for _, expert in token)
        missing += uses * (1 - kept / size) if size else 0
    return missing * each / len(tokens)


def not_kept(tokens, room, each):
    """Bytes a token of experts that are not among those that were chosen most often."""
    uses = collections.Counter(pair for token in tokens for pair in token)
    kept = {pair for pair, _ in uses.most_common(max(0, room) // each)}
    return sum(n for pair, n in uses.items() if pair not in kept) * each / len(tokens)


def answers_of(run, variant, title, budget=None):
    """The answers to a few prompts, and statistics."""
    worker = run.start(variant, title, budget)
    answers = [worker.infer(index, runs.TIMEOUT_SECONDS) for index in range(WARM_UP + ANSWERS)]
    return answers, run.end(worker)


def row_of(run, point, plain):
    facts = run.facts
    budget = facts["weight_bytes"] * point // 100
    answers, stats = answers_of(run, runs.SWAPNET, f"{run.router}.{point}", budget)
    ours = answers[WARM_UP:]
    tokens = list(choices(ours, facts["layers"]))
    each = facts["expert_bytes"]
    experts = facts["experts"] * facts["layers"] * each
    room = budget - (facts["weight_bytes"] - experts) - (stats["minimum_bytes"] - RING_LEAST)
    read = statistics.mean(value for answer in ours for value in answer["token_bytes"][1:])
    ideal, odds = not_kept(tokens, room, each), not_kept_by_odds(tokens, room, facts, run.router)
    return {"model": run.model, "router": run.router, "point": point, "budget_bytes": budget,
            "weight_bytes": facts["weight_bytes"], "read_bytes": read,
            "routed_bytes": sum(map(len, tokens)) * each / len(tokens), "not_kept_bytes": ideal, "odds_bytes": odds,
            "odds_ratio": read / odds if odds else None,
            "ratio": read / ideal if ideal else None, "stats": stats,
            "same_bits": [answer["hash"] for answer in answers] == [answer["hash"] for answer in plain]}


def cells(row):
    return [row["model"], row["router"], f"{row['point']} %", f"{row['budget_bytes'] / MIB:.0f}",
            runs.mib(row["read_bytes"]), runs.mib(row["routed_bytes"]), runs.mib(row["odds_bytes"]),
            f"{row['odds_ratio']:.2f}" if row["odds_ratio"] else "-", runs.mib(row["not_kept_bytes"]),
            f"{row['ratio']:.2f}" if row["ratio"] else "-", "yes" if row["same_bits"] else "NO"]


def main():
    parser = runs.parser_of(__doc__)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--points", default=",".join(map(str, POINTS)), help="percent of all weights")
    parser.add_argument("--routers", default=",".join(KINDS))
    args = parser.parse_args()
    rows = []
    for model in args.models.split(","):
        for router in args.routers.split(","):
            run = runs.Runs(args, model, router)
            plain, _ = answers_of(run, runs.PLAIN, router)
            for point in map(int, args.points.split(",")):
                rows.append(row_of(run, point, plain))
                runs.say("experts: " + "  ".join(cells(rows[-1])))
    print(table.markdown_grid(COLUMNS, list(map(cells, rows))))
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")
    return 0 if all(row["same_bits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
