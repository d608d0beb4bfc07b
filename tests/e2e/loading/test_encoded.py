"""Weights that a store has in fewer bytes as well are read from there, and the bits are the same."""
import pytest

import harness
from harness import both

pytestmark = pytest.mark.forked

BUDGET = 36  # MiB; the model has 88, two layers of 20


@pytest.mark.halved
@pytest.mark.parametrize("kind", ["bf16", "fp16", "mixed", "full"])
def test_equal_bits(torch, kind):
    """Whole weights, slices of large ones, rows of a table, and every weight's own address."""
    _, run = both(torch, "encoded", kind, budget=BUDGET)
    harness.assert_streamed(run)
    stats = run.stats
    assert stats["slices"] > 0 and stats["rows"] > 0, run.describe()
    if kind == "full":
        assert stats["encoded_bytes"] == stats["decoded_bytes"] == 0, run.describe()
        return
    assert stats["encoded_bytes"] <= stats["streamed_bytes"], run.describe()
    assert stats["decoded_bytes"] == 2 * stats["encoded_bytes"] > 0, run.describe()


def test_damaged_copies(torch113):
    """A copy that is not what was stored is given up, said once, and the extent itself is read."""
    _, run = both(torch113, "encoded", "bf16", "corrupt", budget=BUDGET)
    assert sum("its checksum does not match" in line for line in run.own_lines()) == 1, run.describe()
    assert run.stats["read_errors"] == 0, run.describe()


@pytest.mark.parametrize("fetch", ["pread", "buffered"])
def test_fetch_paths(torch113, fetch):
    _, run = both(torch113, "encoded", "bf16", budget=BUDGET, env={"SWAPNET_FETCH": fetch})
    assert run.stats["encoded_bytes"] > 0, run.describe()
