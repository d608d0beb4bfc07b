"""Which weights somebody has written is known from the kernel's page map alone."""
import pytest

import harness


@pytest.mark.parametrize("torch", [harness.TORCH113, pytest.param(harness.TORCH213, marks=pytest.mark.slow)],
                         ids=lambda torch: f"torch{torch.name}", indirect=True)
def test_one_that_tells_nothing(torch):
    """Where it answers zeros, what numpy stores into weights that have left would be lost without a word: the program
    runs plainly, and one line says why."""
    preloads = f"{harness.LIBRARY} {harness.zero_pagemap()}"
    run = harness.both(torch, "numpy_views", budget=48, env={"LD_PRELOAD": preloads})[1]
    assert len(run.own_lines()) == 1, run.describe()
    assert run.own_lines()[0].startswith("swapnet: off: /proc/self/pagemap does not tell"), run.describe()
    assert run.stats is None, run.describe()
