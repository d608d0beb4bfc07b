"""Each operator that is computed in slices, or of whose weight single rows are read, with a weight larger than the budget:
equal bits, and counters that show how it was done. The table in docs/design/tiling.md says the same."""
import pytest

import harness

pytestmark = pytest.mark.forked

# MiB: less than the largest weight, enough for two of its slices.
BUDGETS = {"conv1d": 14, "conv3d": 22, "grouped": 14, "lstm": 14, "gru": 14, "attention": 14, "cross": 14, "encoder": 14,
          "batches": 14, "experts": 14, "vectors": 14, "transposed": 14, "sums": 26}
ROWS = ["bags", "lookups"]
SLOW = ["conv3d", "encoder", "gru"]
# Of other types the bits are compared; whether they come in slices is up to the trial.
OTHER = {"1.13": "float64", "2.13": "bfloat16"}
TYPED = ["conv1d", "grouped", "attention", "batches", "vectors", "bags", "sums"]


def _whole(torch, kind, dtype):
    """oneDNN has an LSTM of its own, which takes its weights as a whole; and slices of this convolution differ in bits."""
    return kind == "transposed" or (torch.name, kind, dtype) in (("2.13", "lstm", "float32"),
                                                                 ("1.13", "conv3d", "float32"))


def _cases(kinds):
    for torch in harness.ALL_TORCH:
        for kind in kinds:
            for dtype in ["float32"] + ([OTHER[torch.name]] if kind in TYPED else []):
                slow = dtype != "float32" or kind in SLOW or _whole(torch, kind, dtype)
                yield pytest.param(torch, kind, dtype, id=f"{kind}-{dtype}-torch{torch.name}",
                                   marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("torch, kind, dtype", _cases(BUDGETS))
def test_products_and_convolutions(torch, kind, dtype):
    run = harness.both(torch, "operators", kind, dtype, budget=BUDGETS[kind])[1]
    whole = _whole(torch, kind, dtype)
    harness.assert_streamed(run, mapped=whole or dtype != "float32")
    if dtype == "float32":
        assert run.stats["slices"] == 0 if whole else run.stats["slices"] >= 15, run.describe()


@pytest.mark.parametrize("torch, kind, dtype", _cases(ROWS))
def test_rows_are_looked_up_by_row(torch, kind, dtype):
    run = harness.both(torch, "operators", kind, dtype, budget=14)[1]
    harness.assert_streamed(run, mapped=True)
    assert run.stats["rows"] > 100, run.describe()
