"""Threads of the program that no hook sees begin: those that the C library starts itself."""
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
