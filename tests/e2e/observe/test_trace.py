"""SWAPNET_TRACE=FILE: a Chrome trace with a row for compute and one for the disk, in which overlap can be seen; and what
PyTorch's profiler shows."""
import pytest

import harness
import traces


@pytest.mark.by_turns
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize("program", ["infer mlp-batch 12", "threads thread-per-batch 12"])
def test_reads_are_ahead(torch, program, disk):
    """Reads continue while a thread computes, also where each inference has a thread of its own (invariant 14). Fetched
    on demand, none would: the computing thread would be waiting. A tensor counts as a weight when it is 64 operators old
    and has been read twice since, which half of this model is in the fourth inference: the last nine are looked at.
    Where computing were the shorter, the best plan would keep all it can and have room ahead for next to nothing."""
    path = disk / "trace.json"
    run = harness.both(torch, *program.split(), budget=48, env={"SWAPNET_TRACE": str(path)})[1]
    harness.assert_streamed(run)
    assert run.stats["plans"] > 0, run.describe()
    compute, reads = traces.compute_and_disk(path)
    fourth = compute[-9 * 24]["ts"]
    reads = [event for event in reads if event["ts"] >= fourth]
    ahead = traces.count_ahead(reads, compute)
    assert len(reads) >= 9 * 24 / 4, f"only {len(reads)} reads\n{run.describe()}"
    harness.in_time(ahead >= 0.5 * len(reads),
                    f"{ahead} of {len(reads)} reads went on while something computed\n{run.describe()}")


@pytest.mark.by_turns
@pytest.mark.timed
def test_trace_has_overlapping_rows(torch, disk):
    path = disk / "trace.json"
    run = harness.both(torch, "infer", "mlp", "8", budget=48, env={"SWAPNET_TRACE": str(path)})[1]
    harness.assert_streamed(run)
    compute, reads = traces.compute_and_disk(path)
    assert len(compute) >= 8 * 24 / 2, f"only {len(compute)} events for 192 linear layers, half of which have to be streamed"
    for event in compute + reads:
        assert event["dur"] >= 0 and event["ts"] >= 0 and event["name"], event
    harness.in_time(traces.count_ahead(reads, compute), "reads never overlap with compute")


def test_no_trace_unless_asked(torch113, disk):
    harness.start(torch113, "infer", "mlp", where=disk, budget=48).finish()
    assert not [path for path in disk.iterdir() if "trace" in path.name]


def test_profiler_shows_operators_once(torch):
    """PyTorch's own profiler, in the program, shows what it shows plainly of operators in slices, and no trials."""
    run = harness.both(torch, "profiled", budget=32)[1]
    harness.assert_streamed(run)
    assert run.stats["slices"] > 40, run.describe()
