"""Pages of weights that the kernel is given hold the weights' bytes for as long as it has them."""
import pytest

import harness

QUICK = {("vmsplice", "1.13"), ("vmsplice", "2.13"), ("sendmsg", "2.13"), ("pwrite", "2.13"), ("libaio", "1.13")}
WAYS = ("vmsplice", "send", "sendto", "sendmsg", "sendmmsg", "write", "pwrite", "writev", "libaio", "posix-aio")


def _cases():
    for torch in harness.ALL_TORCH:
        for way in WAYS:
            marks = [] if (way, torch.name) in QUICK else [pytest.mark.slow]
            yield pytest.param(torch, way, id=f"{way}-torch{torch.name}", marks=marks)


@pytest.mark.parametrize("torch, way", _cases(), indirect=["torch"])
def test_zero_copy_sends_arrive_as_they_were(torch, way):
    reference, run = harness.both(torch, "zero_copy", str(harness.zero_copy()), way, budget=40)
    assert reference.record["values"]["all arrived as they were"], reference.describe()
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()
