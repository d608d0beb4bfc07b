"""Programs that look at a weight while an operator has it, or in which the same numbers need not come out in the same
way: bits are those of the plain run."""
import pytest

import harness
from harness import both


@pytest.mark.by_turns
@pytest.mark.parametrize("scenario", ["layer", "network"])
def test_openmp_threads_run_operators(torch, scenario):
    """Threads that a compute library started may be the program's: none of them gets an address but the weight's."""
    _, run = both(torch, "openmp", str(harness.in_openmp()), scenario, budget=20)
    harness.assert_streamed(run)
    assert run.own_lines() == [], run.describe()


@pytest.mark.forked
def test_kernel_of_the_programs_within_an_operator(torch):
    """What an operator is made of may be the program's, which keeps what it sees of a weight."""
    _, run = both(torch, "own_part", budget=16)
    assert run.record["values"]["views"] == 240 and run.record["values"]["elsewhere"] == 0, run.describe()
    harness.assert_streamed(run)


@pytest.mark.forked
def test_refused_overwrite(torch):
    """An operator that PyTorch refuses leaves its tensor as it was, though it would have written all of it."""
    _, run = both(torch, "overwritten", "refused", budget=32)
    assert run.stats["spilled_bytes"] > 0, run.describe()


@pytest.mark.forked
def test_overwrite_of_a_lazy_clone(torch213):
    """It lies at another tensor's address until it is written, and is then written elsewhere."""
    _, run = both(torch213, "overwritten", "shared", budget=32)
    assert run.stats["spilled_bytes"] > 0, run.describe()


@pytest.mark.by_turns
def test_copy_that_a_dispatch_mode_changes(torch):
    """The kernel of an operator need not get what the operator got."""
    _, run = both(torch, "overwritten", "rerouted", budget=32)
    assert run.stats["spilled_bytes"] > 0, run.describe()


@pytest.mark.forked
@pytest.mark.parametrize("how", ["copied", "filled"])
def test_reader_of_what_is_overwritten(torch, how):
    """Another thread sees what was stored before or after, never what nobody stored."""
    _, run = both(torch, "overwritten", how, budget=32)
    assert run.stats["spilled_bytes"] > 0, run.describe()


@pytest.mark.by_turns
@pytest.mark.parametrize("scenario", ["flushed", "switched", "threads"])
def test_threads_that_flush_denormals_compute_whole(torch, scenario):
    """Whether denormal numbers are 0 is each thread's own: where that shows, a weight is not computed in slices."""
    _, run = both(torch, "denormal", scenario, budget=32)
    harness.assert_streamed(run, mapped=True)


@pytest.mark.by_turns
def test_bytes_that_change_on_the_disk(torch):
    """A store's bytes are checked each time that they are read, not only the first: a program whose weights are others
    than before ends."""
    with harness.disk_dir() as where:
        run = harness.start(torch, "flipped", "bytes", where=where, budget=16).finish()
    assert run.rc == 5 and run.record is None, run.describe()
    assert run.stdout.splitlines() == ["computed"], run.describe()
    assert len(run.own_lines()) == 1 and "checksum" in run.stderr, run.describe()


@pytest.mark.forked
@pytest.mark.parametrize("what", ["cut", pytest.param("emptied", marks=pytest.mark.slow)])
def test_store_that_is_cut_while_it_is_in_use(torch113, what):
    """It cannot go on without its weights: it ends, by no signal, and says of which store."""
    with harness.disk_dir() as where:
        run = harness.start(torch113, "flipped", what, where=where, budget=16).finish()
    assert run.rc == 5 and run.record is None and run.stdout.splitlines() == ["computed"], run.describe()
    assert ".swnstore" in run.own_lines()[-1] and "ending the program" in run.own_lines()[-1], run.describe()


@pytest.mark.forked
@pytest.mark.parametrize("what", ["removed", *(pytest.param(what, marks=pytest.mark.slow) for what in ("replaced", "closed"))])
def test_store_whose_name_goes_to_another_file(torch113, what):
    """The program has the old one open, and goes on with it."""
    _, run = both(torch113, "flipped", what, budget=16)
    harness.assert_streamed(run)
    assert run.own_lines() == [], run.describe()
