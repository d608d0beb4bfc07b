"""SWAPNET_WITHOUT leaves parts out, for measurements: same bits, and the part does not work."""
import itertools
import statistics

import pytest

import harness
import traces


def _run(torch, without, *program, budget, env=()):
    env = dict(env, SWAPNET_WITHOUT=without) if without else dict(env)
    return harness.both(torch, *program, budget=budget, env=env)[1]


def test_nothing_kept(torch113):
    """96 MiB of weights in 48. Before there is a plan both keep what was used last, so the last half of the passes says it."""
    whole, unkept = (_run(torch113, part, "infer", "mlp", "24", budget=48) for part in ("", "kept"))
    harness.assert_streamed(unkept)
    harness.assert_bounded(unkept)
    counts = (run.record["notes"]["read_bytes"][12:] for run in (whole, unkept))
    read = [statistics.median(after - before for before, after in itertools.pairwise(count)) for count in counts]
    assert read[1] > 1.25 * read[0], (read, unkept.describe())


@pytest.mark.timed
def test_nothing_ahead(torch113, disk):
    """A trace tells it on any disk: a thread that reads for itself does not compute meanwhile."""
    ahead = []
    for part in ("", "prefetch"):
        path = disk / f"trace-{part}.json"
        run = _run(torch113, part, "infer", "mlp-batch", "8", budget=48, env={"SWAPNET_TRACE": str(path)})
        harness.assert_streamed(run)
        compute, reads = traces.compute_and_disk(path)
        ahead.append(traces.count_ahead(reads, compute))
    assert ahead[1] == 0, ahead
    harness.in_time(ahead[0] > 24, ahead)


@pytest.mark.slow
@pytest.mark.parametrize("without", ["slices", "places", "prefetch,kept,slices,places"])
def test_parts_left_out_have_equal_bits(torch, without):
    run = _run(torch, without, "sliced", "float32", budget=32)
    assert (run.stats["slices"] == 0) == ("slices" in without), run.describe()
    assert "places" not in without or run.stats["placed_bytes"] == 0, run.describe()
