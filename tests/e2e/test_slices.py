"""Weights larger than the budget, taken slice by slice: equal bits for every way of multiplying by them, within the
budget, and read by the fetcher rather than through their mappings."""
import pytest

import harness
from harness import MIB

SLOW = pytest.mark.slow


def _case(kind, budget, torch=None, quick=True):
    return pytest.param(kind, budget, torch, id=kind, marks=[] if quick else [SLOW])


# The largest weight has 49 MiB of floats, and twice that of doubles.
CASES = [
    _case("float32", 32), _case("float64", 64, quick=False), _case("bfloat16", 24), _case("float16", 24, "2.13"),
    _case("shapes", 40), _case("odd", 32), _case("products", 40), _case("changes", 40), _case("gradients", 40, quick=False),
    _case("threads", 48),
]


@pytest.mark.parametrize("kind, budget, only", CASES)
def test_bits(torch, kind, budget, only):
    if only and torch.name != only:
        pytest.skip(f"PyTorch {torch.name} has no {kind} product on the processor")
    run = harness.both(torch, "sliced", kind, budget=budget, timeout=300)[1]
    harness.assert_streamed(run)
    assert run.stats["slices"] > 20, run.describe()


def test_no_more_memory_and_no_stray_reads(torch):
    """The budget is less than any of the large weights, and holds; what is computed in slices is not read by page faults."""
    run = harness.both(torch, "sliced", "float32", budget=32, timeout=300)[1]
    harness.assert_bounded(run)
    assert run.stats["stray_reads"] * 4096 < 60 * MIB, run.describe()  # once, while nothing is known yet
    assert run.own_lines() == [], run.describe()
