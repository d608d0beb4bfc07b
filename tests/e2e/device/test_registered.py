"""Memory of CPU tensors that a program registers with the driver itself. tests/unit/skeleton/device/t_host_register.c has the rest."""
import pytest

import harness

pytestmark = pytest.mark.unified
STANDIN = harness.BUILD / "tests" / "fakes"
WHERE = pytest.mark.parametrize(
    "torch, device, runtimes", [(harness.TORCH113, "discrete", "two"), (harness.TORCH213, "orin", "one")],
    indirect=["torch"], ids=["torch1.13-card", "torch2.13-orin"])


@WHERE
def test_registered_memory_stays_where_it_is(torch, device, runtimes):
    """It stays where the device has it while the rest of the model comes and goes, and is as the rest afterwards."""
    env = {"STANDIN_DEVICE": device, "SWAPNET_DEVICE": "privateuseone"}
    run = harness.both(torch, "registered", str(STANDIN), runtimes, budget=14, env=env)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.stats["device_kept_bytes"] == 0 and run.own_lines() == [], run.describe()
