"""Threads of the program that no hook sees begin, as those that the C library starts itself, and coroutines."""
import pytest

import harness


@pytest.mark.parametrize("torch", [harness.TORCH113, pytest.param(harness.TORCH213, marks=pytest.mark.slow)],
                         ids=lambda torch: f"torch{torch.name}", indirect=True)
def test_timer_thread_keeps_the_views_it_took(torch):
    """What it takes of weights that others compute with is theirs for good."""
    reference, run = harness.both(torch, "timer_views", budget=40)
    failed = [name for name, value in reference.record["values"].items() if value is False]
    assert not failed, f"the plain run fails its own checks: {failed}\n{reference.describe()}"
    harness.assert_streamed(run)


@pytest.mark.by_turns
def test_coroutines_that_store(torch):
    """On stacks of 16 KiB, with SIGSEGV blocked in their contexts, while another thread's operators need the memory."""
    plain, run = harness.both(torch, "coroutines", "stores", str(harness.coroutines()), 16384, budget=32)
    assert plain.record["notes"]["blocked"] and not run.record["notes"]["blocked"], run.describe()
    harness.assert_streamed(run, mapped=True)
    # What a coroutine stores between two operators may be more than the budget.
    assert all("code beside PyTorch's operators" in line for line in run.own_lines()), run.describe()


def test_coroutines_that_compute(torch):
    if not torch.has("greenlet"):
        pytest.skip("no greenlet (Debian: python3-greenlet)")
    run = harness.both(torch, "coroutines", "greenlets", budget=32)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()
