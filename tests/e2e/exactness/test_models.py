"""torchvision's models at 50 and 75 % of their weights: equal bits, a held budget, and no byte read twice in a pass."""
import pytest

import harness
from harness import MIB

pytestmark = pytest.mark.forked

SLOW = pytest.mark.slow
MODELS = ["mobilenet_v2", pytest.param("resnet101", marks=SLOW), pytest.param("resnet152", marks=SLOW), pytest.param("vit_b_16", marks=SLOW),
          pytest.param("vgg19", marks=SLOW)]
# Inferences, and how many in a row of them are measured.
ALL, LAST = 12, 4


def _one_layer_exceeds(sizes, share):
    """Its largest weight alone does not fit beside the activations: it may, and can only, exceed the budget."""
    return sizes.largest > share * sizes.streamable


def _check_budget(run, exceeds):
    stats = run.stats
    if exceeds and not stats["slices"]:
        assert len(run.own_lines()) == 1, f"to be said once\n{run.describe()}"
        assert stats["peak_resident_bytes"] <= stats["budget_bytes"] + stats["over_budget_bytes"], run.describe()
    else:  # slice by slice the largest layer needs no more than any other
        harness.assert_bounded(run)
        assert run.own_lines() == [], run.describe()


def _check_traffic(run, sizes, share):
    """Bytes read per pass are at most s - b plus the window (invariant 3: e - r, r = b - a - (s - e) - w)."""
    window = run.stats["pool_bytes"]
    # The window is there to be fast; as an excuse to read more it has to stay small.
    assert window <= max(64 * MIB, 2 * sizes.largest), run.describe()
    per_pass = harness.read_in_a_pass(run, LAST)
    # Whole pages and layers, and activations counted in granules of 64 KiB: half a MiB, which only a small model notices.
    rounding = max(sizes.streamable // 50, MIB)
    # Nor do passes end where reading does: what was ahead of the last of them may not have been ahead of the first.
    rounding += window // LAST
    bound = sizes.streamable - sizes.kept(run.stats["budget_bytes"]) + window + rounding
    assert 0 < per_pass <= min(bound, sizes.streamable + rounding), (
        f"{per_pass / MIB:.1f} MiB a pass, at most {bound / MIB:.1f} expected at {share:.0%}\n{run.describe()}")


@pytest.mark.parametrize("share", [0.5, 0.75])
@pytest.mark.parametrize("model", MODELS)
def test_vision_model_has_equal_bits_within_its_share(torch, model, share):
    sizes = harness.sizes(torch, "vision", model, "2")
    budget = sizes.budget_mib(share)
    reference, run = harness.both(torch, "vision", model, str(ALL), budget=budget)
    assert all(reference.record["values"][f"finite{i}"] for i in range(ALL))
    harness.assert_streamed(run)
    _check_budget(run, _one_layer_exceeds(sizes, share))
    _check_traffic(run, sizes, share)


@pytest.mark.parametrize("model", ["mobilenet_v2", pytest.param("resnet101", marks=SLOW)])
def test_model_that_fits_reads_nothing(torch, model):
    """With room for everything nothing is read from the disk."""
    sizes = harness.sizes(torch, "vision", model, "2")
    budget = -(-(sizes.weights + sizes.activations) // MIB) + 64
    run = harness.both(torch, "vision", model, str(ALL // 2), budget=budget)[1]
    assert run.stats is not None, run.describe()
    harness.assert_bounded(run)
    assert run.stats["streamed_bytes"] == 0, run.describe()
    assert run.stats["swap_ins"] == 0, run.describe()
    assert run.stats["fallback_reads"] == 0, run.describe()
