"""Weights larger than the budget, taken slice by slice: equal bits for every way of multiplying by them, within the
budget, and read by the fetcher rather than through their mappings. Likewise embeddings, row by row."""
import pytest

import harness
from harness import MIB

pytestmark = pytest.mark.forked


# The largest weight has 49 MiB of floats, and twice that of doubles. On which PyTorch it is a quick test, on which it is
# one at all.
CASES = [("float32", 32, "1.13 2.13"), ("float64", 64, ""), ("bfloat16", 24, "2.13"), ("float16", 24, ""),
         ("shapes", 40, ""), ("odd", 32, ""), ("products", 40, "1.13"), ("out", 32, "1.13 2.13"),
         ("changes", 40, "2.13"), ("gradients", 40, ""), ("threads", 48, "1.13"), ("library", 24, "1.13")]


def _cases():
    for torch in harness.ALL_TORCH:
        for kind, budget, quick in CASES:
            if (torch.name, kind) in (("1.13", "float16"), ("2.13", "library")):
                continue  # which has no such product on the processor; which computes with a library linked into it
            marks = [] if torch.name in quick.split() else [pytest.mark.slow]
            yield pytest.param(torch, kind, budget, id=f"{kind}-torch{torch.name}", marks=marks)


@pytest.mark.parametrize("torch, kind, budget", _cases())
def test_bits_in_slices_are_equal(torch, kind, budget):
    run = harness.both(torch, "sliced", kind, budget=budget)[1]
    harness.assert_streamed(run)
    # With some numbers of threads OpenBLAS's slices have other bits, and nothing is sliced.
    assert run.stats["slices"] > (8 if kind == "library" else 20), run.describe()
    if kind == "float32":
        # The budget is less than either of the large weights, and holds; what is computed in slices is not read by
        # page faults, beyond the once while nothing is known of it.
        harness.assert_bounded(run)
        assert run.stats["fallback_reads"] * 4096 < 60 * MIB, run.describe()
        assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("torch", [harness.TORCH113, pytest.param(harness.TORCH213, marks=pytest.mark.slow)],
                         ids=lambda torch: torch.name, indirect=True)
def test_rare_shapes_change_nothing_for_common_ones(torch):
    """What comes once, and has other bits in slices, changes nothing for what comes again and again."""
    with harness.disk_dir() as runtime:
        runtime.chmod(0o700)
        run = harness.both(torch, "sliced", "visitors", budget=32, env={"XDG_RUNTIME_DIR": str(runtime)})[1]
    harness.assert_streamed(run)
    assert run.record["notes"]["slices"] > 8 * 15, run.describe()


def test_embedding_reads_only_its_rows(torch):
    """Of an embedding that is not in memory, what a row lies in is read, and nothing else."""
    run = harness.both(torch, "sliced", "rows", budget=24)[1]
    harness.assert_streamed(run)
    assert run.stats["rows"] > 8 * 2000, run.describe()
    # Two pages at most, but something may have been read ahead for the layers meanwhile.
    assert sorted(run.record["notes"]["read_bytes"])[0] <= 2 * 4096, run.describe()
    # The whole of one table is gone through by column in every pass; that, and what was written to, is not by rows.
    assert run.stats["fallback_reads"] * 4096 < (8 * 24 + 80) * MIB, run.describe()


def test_tied_embedding(torch):
    run = harness.both(torch, "sliced", "tied", budget=16)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.stats["slices"] > 20 and run.stats["rows"] > 60, run.describe()
    assert run.stats["fallback_reads"] == 0, run.describe()


@pytest.mark.parametrize("kind, budget", [("convs", 16), pytest.param("conv types", 40, marks=pytest.mark.slow)])
def test_convolutions(torch, kind, budget):
    run = harness.both(torch, "sliced", kind, budget=budget)[1]
    harness.assert_streamed(run)
    assert run.stats["slices"] > 60, run.describe()


def test_large_convolutions(torch):
    """What their kernels take beside the weight, and what it takes to try out whether slices have the same bits, is within
    the budget: a strict one, or the program would end."""
    run = harness.both(torch, "sliced", "large convs", budget=16, env={"SWAPNET_STRICT": "1"})[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.stats["slices"] > 60 and run.stats["fallback_reads"] == 0 and run.own_lines() == [], run.describe()


def test_large_fills_have_the_same_numbers(torch):
    """Tensors larger than the budget get the same numbers piece by piece, and the generator goes on as it would."""
    run = harness.both(torch, "filled", budget=16)[1]
    assert run.own_lines() == [], run.describe()
    harness.assert_bounded(run)
    # Two times three types, and two more; through a shared mapping they would not count.
    assert run.stats["spilled_bytes"] >= 8 * 20 * MIB, run.describe()


@pytest.mark.parametrize("torch", [harness.TORCH213], ids=lambda torch: torch.name, indirect=True)
def test_of_a_mixture_only_chosen_experts_are_read(torch):
    """128 MiB of experts, of which a token chooses 16 MiB, within 72 MiB: about half of what it chooses has to be read."""
    run = harness.both(torch, "mixture", budget=72)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    notes = run.record["notes"]
    # Of uniform choices it does not matter which experts stay. There is room for all but the dense layers, what a token
    # computes with and two frames of the ring.
    read, routed = sum(notes["read_bytes"][20:]), sum(notes["routed_bytes"][20:])
    room = (72 - 8) * MIB
    missing = 1 - room / notes["expert_bytes"]
    # Another plan may have other frames, and what stays is read once more.
    assert read <= 1.1 * missing * routed + (run.stats["plans"] - 1) * room, (read / routed, missing, run.describe())
    # From the first step on nothing is read whole, and once there is a plan nothing through a mapping.
    assert max(notes["read_bytes"]) <= max(notes["routed_bytes"]) + 16 * MIB, run.describe()
    assert run.own_lines() == [], run.describe()
