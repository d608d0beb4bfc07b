"""Only the kernel's page map tells which weights the program has written, and pages may be small."""
import ctypes

import pytest

import harness

THP_DISABLE = 41  # of prctl; stays in force over exec


def _no_huge_pages():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(THP_DISABLE, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@pytest.mark.parametrize("torch", [harness.TORCH113, pytest.param(harness.TORCH213, marks=pytest.mark.slow)],
                         ids=lambda torch: f"torch{torch.name}", indirect=True)
def test_page_map_of_zeros_switches_off(torch):
    """Where it answers zeros, what numpy stores into weights that have left would be lost without a word: the program
    runs plainly, and one line says why."""
    preloads = f"{harness.LIBRARY} {harness.zero_pagemap()}"
    run = harness.both(torch, "numpy_views", budget=48, env={"LD_PRELOAD": preloads})[1]
    assert len(run.own_lines()) == 1, run.describe()
    assert run.own_lines()[0].startswith("swapnet: off: /proc/self/pagemap does not tell"), run.describe()
    assert run.stats is None, run.describe()


@pytest.mark.by_turns
def test_without_huge_pages_bits_are_equal(torch, disk):
    """Weights come and go by pages of 4 KiB: one line says so, and the bits are the same."""
    reference = harness.plain(torch, "infer", "mlp-deep")
    run = harness.start(torch, "infer", "mlp-deep", where=disk, budget=96, preexec=_no_huge_pages).finish()
    assert run.rc == 0 and run.record is not None, run.describe()
    harness.assert_same(reference, run)
    harness.assert_streamed(run)
    said = [line for line in run.own_lines() if "no huge pages" in line]
    assert len(said) == 1 and "the same result" in said[0], run.describe()


@pytest.mark.by_turns
def test_huge_pages(torch, disk):
    """Where there are some, nothing is said."""
    run = harness.start(torch, "infer", "mlp-deep", where=disk, budget=96).finish()
    harness.assert_streamed(run)
    assert not run.own_lines(), run.describe()


@pytest.mark.by_turns
@pytest.mark.parametrize("budget", [48, 96, 160])
def test_resident_set(torch, disk, budget):
    """Tools that go by it (systemd's, psutil) see plain's less the weights that have left: no page of a frame counts
    twice, though the fetcher sees them as well. Pages of libraries are left out of both."""
    reference = harness.plain(torch, "infer", "mlp-deep", "8", whole=True)
    run = harness.start(torch, "infer", "mlp-deep", "8", where=disk, budget=budget).finish()
    harness.assert_same(reference, run)
    harness.assert_streamed(run)
    notes = reference.record["notes"]
    most = notes["resident_bytes"] - notes["weight_bytes"] + (budget + 16) * harness.MIB
    assert run.record["notes"]["resident_bytes"] <= most, (most, run.describe())
