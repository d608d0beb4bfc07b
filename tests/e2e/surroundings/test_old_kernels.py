"""Programs under the kernels that docs/design/io-and-failures.md lists: equal bits, the budget kept, by the stated way to read."""
import subprocess

import pytest

import harness
import old_kernel

pytestmark = pytest.mark.skipif(not old_kernel.MADVISE, reason="the filter knows two architectures")


@pytest.mark.parametrize("version, path", [((4, 19), "pread"), ((5, 4), "pread"), ((5, 10), "uring")])
def test_an_older_kernel(torch113, disk, version, path):
    if path == "uring" and (why := harness.uring_refused()):
        pytest.skip(f"this kernel has no io_uring for us: {why}")
    run = harness.start(torch113, "infer", "mlp", where=disk, budget=48, preexec=old_kernel.of(version)).finish()
    assert run.rc == 0, run.describe()
    harness.assert_same(harness.plain(torch113, "infer", "mlp"), run)
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert path in run.stats["fetch_path"], run.describe()
    assert all("no huge pages" in line and "older than 6.1" in line for line in run.own_lines()), run.describe()


# Each asks its kernel for something that came after 4.19. t_huge_pages is not among them: before 5.4 the kernel splits no page.
UNITS = ["t_prefault", "t_frame_pool", "t_reserve", "t_process", "t_fetch_paths", "t_fd_registry", "t_daemon",
         "t_pagemap_proof"]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
def test_units_on_linux_4_19(name):
    done = subprocess.run([harness.BUILD / "tests" / name], preexec_fn=old_kernel.of((4, 19)), capture_output=True, text=True)
    assert done.returncode in (0, 77), done.stdout[-2000:] + done.stderr[-2000:]
