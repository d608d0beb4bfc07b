"""Signals that interrupt reads, writes, waits and operators at any point."""
import pytest

import harness


@pytest.mark.parametrize("fetch", ["auto", "pread"])
def test_signal_storm(torch113, fetch, disk):
    _, run = harness.both(torch113, "signal_storm", str(disk), budget=32, env={"SWAPNET_FETCH": fetch})
    assert run.record["notes"]["signals"] > 100, run.record["notes"]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()
