"""Many threads at once that do to weights what programs do, at a third of the weights: no other bit.

SWAPNET_STRESS_SECONDS is how long the slow ones take (600)."""
import os

import pytest

import harness

LONG = os.environ.get("SWAPNET_STRESS_SECONDS", "600")
BUDGET = 32  # of 95 MiB
ALONE = 12  # for one part, which has a share of them
# The loop's threads are asked for by number; OpenBLAS's workers and forks do not go together, in a plain run either.
ENV = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _stress(torch, seconds, *parts, budget=BUDGET):
    """A plain run of each step, and one under swapnet that takes so long."""
    program = "stress", str(harness.stress(torch))
    with harness.disk_dir() as where:
        reference = harness.start(torch, *program, "0", *parts, where=where / "plain", env=ENV).finish()
        assert reference.rc == 0, reference.describe()
        failed = [name for name, value in reference.record["values"].items() if value is False]
        assert not failed, f"the plain run fails its own checks: {failed}\n{reference.describe()}"
        process = harness.start(torch, *program, seconds, *parts, where=where / "swapped", budget=budget, env=ENV)
        run = process.finish(float(seconds) + harness.HANG_S)
    assert run.rc == 0 and run.record is not None, run.describe()
    harness.assert_same(reference, run)
    harness.assert_streamed(run, mapped=True)


@pytest.mark.parametrize("torch", [harness.TORCH113, pytest.param(harness.TORCH213, marks=pytest.mark.slow)],
                         ids=lambda torch: f"torch{torch.name}", indirect=True)
def test_for_a_while(torch):
    _stress(torch, "5")


@pytest.mark.slow
def test_for_long(torch):
    _stress(torch, LONG)


@pytest.mark.parametrize("torch", [harness.TORCH113, pytest.param(harness.TORCH213, marks=pytest.mark.slow)],
                         ids=lambda torch: f"torch{torch.name}", indirect=True)
@pytest.mark.parametrize("part", ["openmp", "timers", "kernels"])
def test_where_python_has_one_thread(torch, part):
    """Who else reads weights is not announced: a team's threads, a thread of the C library's, a kernel of the program's
    within an operator."""
    _stress(torch, "3", part, budget=ALONE)
