"""SWAPNET_WITHOUT leaves parts out, for measurements: same bits, and the part does not work."""
import pytest

import harness


def _run(torch, without, *program, budget):
    env = {"SWAPNET_WITHOUT": without} if without else None
    return harness.both(torch, *program, budget=budget, env=env, timeout=300)[1]


def test_nothing_kept_nothing_ahead(torch113):
    """96 MiB of weights in 48."""
    whole, unkept, waiting = (_run(torch113, part, "infer", "mlp", "16", budget=48)
                              for part in ("", "kept", "prefetch"))
    harness.assert_streamed(unkept)
    harness.assert_bounded(unkept)
    assert unkept.stats["streamed_bytes"] > 1.25 * whole.stats["streamed_bytes"], unkept.describe()
    assert waiting.stats["stall_ns"] > whole.stats["stall_ns"], waiting.describe()


@pytest.mark.slow
@pytest.mark.parametrize("without", ["slices", "lodging", "places", "prefetch,kept,slices,lodging,places"])
def test_bits(torch, without):
    run = _run(torch, without, "sliced", "float32", budget=32)
    assert (run.stats["slices"] == 0) == ("slices" in without), run.describe()
    assert "places" not in without or run.stats["placed_bytes"] == 0, run.describe()
