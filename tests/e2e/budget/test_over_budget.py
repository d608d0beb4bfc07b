"""Programs that once exceeded their budget although it had room, or wrote what need not be written: exact, within the
budget, and with no more written than has to be."""
import resource

import pytest

import harness
from harness import MIB

pytestmark = pytest.mark.forked


def _run(torch, scenario, budget, disk):
    plain, swapped = disk / "plain", disk / "swapped"
    for directory in (plain, swapped):
        directory.mkdir()
    reference = harness.plain(torch, "over_budget", scenario, plain)
    run = harness.run(torch, "over_budget", scenario, swapped, where=disk, budget=budget)
    harness.assert_same(reference, run)
    harness.assert_bounded(run)
    return run


def test_rows_then_whole_stays_within_budget(torch, disk):
    """128 MiB in 48. Its pages are the file system's while it is written to."""
    harness.assert_streamed(_run(torch, "rows_then_whole", 48, disk))


@pytest.mark.parametrize("budget", [40, 56])
def test_replaced_weights_stay_within_budget(torch213, disk, budget):
    harness.assert_streamed(_run(torch213, "replaced", budget, disk))


def test_idle_model_gives_way(torch, disk):
    """96 MiB that the checkpoint's store has, and two new layers of 16 MiB each, in 64: the clean ones leave,
    and at most one of the new is written, which a plan may stream."""
    harness.swapped(torch, "over_budget", "make", disk, budget=256)
    _, run = harness.both(torch, "over_budget", "idle_model", disk, budget=64)
    harness.assert_bounded(run)
    harness.assert_streamed(run)
    assert run.stats["spilled_bytes"] <= 16 * MIB, run.describe()


def test_spill_file_that_may_not_grow(torch113, disk):
    """Far more is written in all than a file may hold, though never as much at a time: another one takes its place, and
    the first is gone when nothing lies in it any more."""
    limit = 160 * MIB
    run = harness.start(torch113, "over_budget", "made_anew", disk, where=disk / "swapped", budget=48,
                        preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))).finish()
    assert run.rc == 0, run.describe()
    harness.assert_same(harness.plain(torch113, "over_budget", "made_anew", disk), run)
    assert run.stats["spilled_bytes"] > 2 * limit and run.stats["over_budget_bytes"] == 0, run.describe()
    assert run.own_lines() == [], run.describe()


def test_what_no_operator_writes_leaves_again(torch, disk):
    """96 MiB in 48. What numpy stores in tensors that have left comes to count, and leaves again."""
    reference, run = harness.both(torch, "over_budget", "written_aside", disk, budget=48)
    saved = reference.record["notes"]["anonymous_bytes"] - run.record["notes"]["anonymous_bytes"]
    assert saved > 32 * MIB, f"{saved >> 20} MiB: " + run.describe()


UNTRACKED = "did not allocate"


@pytest.mark.forked
@pytest.mark.halved
@pytest.mark.parametrize("how", ["array", "frombuffer", "read", "shared"])
def test_weights_that_pytorch_did_not_allocate(torch, how, disk):
    """32 MiB that the budget does not cover are counted, and said once."""
    _, run = harness.both(torch, "untracked", how, str(disk), budget=16)
    assert run.stats["untracked_weight_bytes"] == 32 * MIB, run.describe()
    said, = run.own_lines()
    assert UNTRACKED in said, run.describe()


@pytest.mark.forked
def test_copies_of_arrays_are_covered(torch113, disk):
    _, run = harness.both(torch113, "untracked", "copied", str(disk), budget=16)
    assert run.stats["untracked_weight_bytes"] == 0 and run.own_lines() == [], run.describe()
    harness.assert_bounded(run)
