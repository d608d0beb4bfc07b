"""Shortest makespans by CP-SAT (Masa paper, section 3): run by the interpreter of .deps/ortools. In: a JSON list of
{"workers", "memory", "networks": [[[load, compute, activations], ...], ...]}, times equal to the load's units. Out: a list of
makespans, null where none was proven optimal in time."""
import json
import sys

from ortools.sat.python import cp_model

SECONDS_MOST = 60


def solve(instance):
    model = cp_model.CpModel()
    horizon = sum(load + compute for layers in instance["networks"] for load, compute, _ in layers)
    tasks, held, needs, ends = [], [], [], []
    for layers in instance["networks"]:
        before = None
        for load, compute, activations in layers:
            start_load, start = (model.new_int_var(0, horizon, "") for _ in range(2))
            end = model.new_int_var(0, horizon, "")
            tasks.append(model.new_fixed_size_interval_var(start_load, load, ""))
            running = model.new_interval_var(start, compute, end, "")
            tasks.append(running)
            model.add(start >= start_load + load)
            if before is not None:
                model.add(start >= before)
            # Weights are in memory from the start of the load to the end of computing (the paper's locked memory).
            size = model.new_int_var(0, horizon, "")
            held += [model.new_interval_var(start_load, size, end, ""), running]
            needs += [load, activations]
            before = end
        ends.append(before)
    model.add_cumulative(tasks, [1] * len(tasks), instance["workers"])
    model.add_cumulative(held, needs, instance["memory"])
    last = model.new_int_var(0, horizon, "")
    model.add_max_equality(last, ends)
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = SECONDS_MOST
    status = solver.solve(model)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


json.dump([solve(instance) for instance in json.load(sys.stdin)], sys.stdout)
