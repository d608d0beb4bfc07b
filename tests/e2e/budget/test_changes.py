"""Another budget for a program that computes: what it does to the weights, and to the files that they are in."""
import os
import random

import pytest

from daemons import SERVE, TORCH, dnns, plain_bits, wait_for
from harness import MIB

pytestmark = pytest.mark.usefixtures("torch113")


def set_budget(dnn, mib):
    answer = dnn.ask({"op": "set", "budget": mib * MIB})
    assert "error" not in answer, answer
    wait_for(lambda: dnn.stats()["state"] == "running")


def test_first_one_that_is_too_small(place):
    """A program that never had to stream begins to, also where it makes small tensors only."""
    with dnns() as make:
        dnn = make(place, 16, SWAPNET_BUDGET="1G")  # 64 MiB of weights, 16 KiB of each activation
        dnn.goes_on(3)
        assert dnn.stats()["streamed_bytes"] == 0
        set_budget(dnn, 32)
        wait_for(lambda: (now := dnn.stats())["streamed_bytes"] > 0 and now["plans"] > 0, why="no operator is watched")
        assert dnn.end() == (plain_bits(16), "")


def files_of(dnn):
    """The files that weights are in: a store's size and time of change; a spill file's size, as it is only added to, and
    gives up what nobody needs any more."""
    found = {}
    for name in os.listdir(f"/proc/{dnn.pid}/fd"):
        path = f"/proc/{dnn.pid}/fd/{name}"
        if os.path.realpath(path).startswith(f"{dnn.directory}/store"):
            st = os.stat(path)
            found[st.st_ino] = (st.st_size, st.st_mtime_ns if st.st_nlink else None)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["spilled", "loaded"])
def test_changes_write_nothing(place, disk, how):
    """The plan switches by moving indices: weights that are in a spill file or a store are never written again."""
    chance = random.Random(5)
    with dnns() as make:
        more = ("600", disk / "model.pth") if how == "loaded" else ()
        dnn = make(place, 24, *more, SWAPNET_BUDGET="16M")  # 96 MiB of weights
        wait_for(lambda: dnn.state() and dnn.stats()["plans"] > 0)
        dnn.goes_on(5)
        before, files = dnn.stats(), files_of(dnn)
        assert before["deferred_bytes" if how == "loaded" else "spilled_bytes"] > 90 * MIB and files, (before, files)
        for _ in range(60):
            set_budget(dnn, chance.randrange(16, 110))
            if chance.random() < 0.5:
                dnn.goes_on(1)
        dnn.goes_on(2)
        after = dnn.stats()
        assert after["plans"] > before["plans"] + 10 and after["streamed_bytes"] > before["streamed_bytes"]
        assert after["spilled_bytes"] == before["spilled_bytes"] and files_of(dnn) == files, (before, after)
        assert dnn.end() == (plain_bits(24), "")
