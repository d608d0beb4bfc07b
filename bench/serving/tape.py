"""What the tape of a model takes beside the model's own forward(), with all weights in memory and without the server."""
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pythons
import table
import zoo
from plan import MIB

GOAL = 1.03
WORKER = Path(__file__).with_name("tape_worker.py")
COLUMNS = ("model", "weights MiB", "groups", "forward ms", "tape ms", "tape / forward", "half of the pairs in", "same bits")


def add_options(parser):
    parser.add_argument("--rounds", type=int, default=12, help="pairs of runs for each of two loadings; default: 12")


def run(setup, args):
    models = zoo.make(setup.tracing, setup.python, setup.folder, args.models or zoo.TWENTY)
    worker = subprocess.Popen(
        [setup.python, str(WORKER), str(setup.build / "lib"), str(args.rounds), *(str(m.file) for m in models.values())],
        stdout=subprocess.PIPE, text=True, env=pythons.plain_environment())
    found = {}
    with worker:
        try:
            for name in models:
                line = worker.stdout.readline()
                if not line:
                    sys.exit(f"the tape of {name} was not measured: the program has ended")
                found[name] = json.loads(line)
                setup.say(f"{name}: {_ratio(found[name]['pairs']):.3f}")
            if worker.wait(60):
                sys.exit(f"the program that runs tapes ended with {worker.returncode}")
        finally:
            worker.kill()
    return _report(setup, models, found)


def _ratio(pairs):
    return statistics.median(tape / forward for forward, tape in pairs)


def _report(setup, models, found):
    rows, failed = [], []
    for name, f in found.items():
        ratios = [tape / forward for forward, tape in f["pairs"]]
        low, _, high = statistics.quantiles(ratios, n=4)
        rows.append((name, f"{models[name].weight_bytes / MIB:.0f}", str(f["groups"]),
                     *(f"{statistics.median(p[k] for p in f['pairs']) * 1e3:.1f}" for k in (0, 1)),
                     f"{_ratio(f['pairs']):.3f}", f"{low:.2f} to {high:.2f}", table.same_bits(f["same"])))
        if not f["same"]:
            failed.append(f"{name}: other bits than forward's")
    mean = statistics.geometric_mean(_ratio(f["pairs"]) for f in found.values())
    rows.append(("all", "", "", "", "", f"{mean:.3f}", "", table.same_bits(all(f["same"] for f in found.values()))))
    if mean > GOAL:
        failed.append(f"the tapes take {mean:.3f} times what forward() takes, in the geometric mean; the goal is {GOAL}")
    setup.print_table(COLUMNS, rows)
    return failed, {"found": found}
