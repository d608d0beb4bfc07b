"""Disks that fail, answer in pieces or stall under a running program: a FUSE file system, so that io_uring and memory maps meet
it as well (support/faulty_fs.py). The program's bits are equal, or it ends with exit code 5 and names file and offset.

    SWAPNET_TEST_POINTS=0 python3 -m pytest tests/e2e/surroundings/test_failing_disks.py -m slow -s

tries each read of a run, one after the other, and prints their number; 20 of them without that variable.
"""
import contextlib
import os
import random
import shutil
import subprocess
import time

import pytest

import harness
from harness import MIB

PYTHON = "/usr/bin/python3"
POINTS = int(os.environ.get("SWAPNET_TEST_POINTS", "20"))


def why_not():
    """Why there is no FUSE here; None when there is."""
    if os.getuid() != 0:
        return "needs root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"no FUSE here: {error}"
    if subprocess.run([PYTHON, "-c", "import fusepy"], stderr=subprocess.DEVNULL, check=False).returncode:
        return "no fusepy (Debian: python3-fusepy)"
    return None


@pytest.fixture(scope="module", autouse=True)
def _needs_fuse():
    if why := why_not():
        pytest.skip(why)


class Disk:
    """Where it is, and afterwards how many reads there were, and how many of them had the fault."""
    at, reads, hits = None, 0, 0


@contextlib.contextmanager
def faulty(directory, fault):
    """`directory`/files seen at `directory`/faulty, with the fault."""
    files, disk = directory / "files", Disk()
    disk.at = directory / "faulty"
    for path in (files / "store", disk.at):
        path.mkdir(parents=True, exist_ok=True)
    server = subprocess.Popen([PYTHON, harness.HERE / "faulty_fs.py", files, disk.at, fault], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        while not os.path.ismount(disk.at):
            if server.poll() is not None:
                said = server.stderr.read()
                if "not permitted" in said:
                    pytest.skip(f"cannot mount here: {said.strip()[-200:]}")
                raise AssertionError(said)
            time.sleep(0.01)
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk.at], check=False)
        said = server.communicate(timeout=harness.HANG_S)[0]
    disk.reads, disk.hits = map(int, said.split())


def spilled(torch, directory, fault, path="auto"):
    """A model of 13.5 MiB within 12: weights are written to the disk, and read back from it."""
    shutil.rmtree(directory / "files", ignore_errors=True)
    return _run(torch, directory, fault, path, 12, "infer", "mlp-narrow")


def stored(torch, directory, fault, path="auto"):
    """A checkpoint, of which a block store lies on the disk already."""
    args = ("load_model", "pth", str(directory / "model.pth"), "lean")
    if not (directory / "model.pth").exists():
        harness.make(torch, "make_weights", "pth", args[2], where=directory / "made")
    if not list((directory / "files").rglob("*.swnstore")):
        disk, run = _run(torch, directory, "none", path, 24, *args)
        assert run.rc == 0 and list((directory / "files").rglob("*.swnstore")), run.describe()
    return _run(torch, directory, fault, path, 24, *args)


def _run(torch, directory, fault, path, budget, program, *args):
    with faulty(directory, fault) as disk:
        env = {"SWAPNET_STORE": str(disk.at / "store"), "SWAPNET_FETCH": path}
        where = directory / "run"
        shutil.rmtree(where, ignore_errors=True)
        run = harness.run(torch, program, *args, where=where, budget=budget, env=env)
    run.plain = harness.plain(torch, program, *args)
    return disk, run


def assert_right_or_ended(disk, run):
    if run.rc == 0:
        harness.assert_same(run.plain, run)
        return
    last = run.own_lines()[-1]
    assert run.rc == 5 and run.record is None, run.describe()
    assert "ending the program" in last and str(disk.at) in last and "offset" in last, run.describe()


@pytest.mark.forked
@pytest.mark.parametrize("how", [spilled, stored])
def test_one_read_fails(torch113, how, disk):
    """It is repeated, and nobody notices."""
    seen, run = how(torch113, disk, "eio:60")
    assert seen.hits == 1 and run.rc == 0, run.describe()
    harness.assert_same(run.plain, run)


@pytest.mark.forked
@pytest.mark.parametrize("how", [spilled, stored])
def test_all_reads_fail(torch113, how, disk):
    seen, run = how(torch113, disk, "eio-after:60")
    assert seen.hits > 1 and run.rc == 5, run.describe()
    assert_right_or_ended(seen, run)


@pytest.mark.forked
def test_short_reads(torch113, disk):
    """By pread: io_uring gets the full length for a short answer from the kernel's FUSE, as Linux 6.18 has it."""
    seen, run = spilled(torch113, disk, "short:1", "pread")
    assert seen.hits > 50 and run.stats["fetch_path"].startswith("pread+O_DIRECT"), run.describe()
    assert run.rc == 0 and run.own_lines() == [], run.describe()
    harness.assert_same(run.plain, run)


@pytest.mark.forked
def test_a_read_that_stalls(torch113, disk):
    """The operator that needs it waits; the others' reads go on, as their number shows."""
    seen, run = spilled(torch113, disk, "stall:60:2")
    assert seen.hits == 1 and seen.reads > 60 and run.rc == 0, run.describe()
    assert run.stats["stall_ns"] > 0.5e9, run.describe()
    harness.assert_same(run.plain, run)


@pytest.mark.forked
def test_a_write_that_stalls(torch113, disk):
    """What leaves waits for the disk, and is whole."""
    seen, run = spilled(torch113, disk, "stall-write:3:1")
    assert seen.hits == 1 and seen.reads > 3 and run.rc == 0 and run.own_lines() == [], run.describe()
    harness.assert_same(run.plain, run)
    harness.assert_bounded(run)


@pytest.mark.slow
@pytest.mark.forked
@pytest.mark.parametrize("how, size", [(spilled, 13 * MIB), (stored, 96 * MIB)])
def test_any_place_cannot_be_read(torch, how, size, disk):
    """As a bad sector: every read that has it fails, and all others are right."""
    points = POINTS or 20
    ended = hit = 0
    for place in sorted(random.Random(2).sample(range(0, size, 4096), points)):
        seen, run = how(torch, disk, f"eio-at:{place}")
        assert_right_or_ended(seen, run)
        assert seen.hits or run.rc == 0, run.describe()
        hit += seen.hits > 0
        ended += run.rc == 5
    print(f"{torch.name} {how.__name__}: {points} places, {hit} of them read, {ended} ended the program")
    assert ended


@pytest.mark.slow
@pytest.mark.forked
@pytest.mark.parametrize("path", ["auto", "pread", "buffered"])
@pytest.mark.parametrize("how", [spilled, stored])
def test_any_read_fails(torch, how, path, disk):
    """Each read in turn, alone and with all that follow."""
    reads = how(torch, disk, "none", path)[0].reads
    assert reads
    points = range(1, reads + 1)
    if POINTS:
        points = sorted(random.Random(1).sample(points, min(POINTS, reads)))
    ended = 0
    for kind in ("eio", "eio-after"):
        for point in points:
            seen, run = how(torch, disk, f"{kind}:{point}", path)
            assert_right_or_ended(seen, run)
            ended += run.rc == 5
    print(f"{torch.name} {how.__name__} {path}: {2 * len(points)} points of {2 * reads} tried, {ended} ended the program")
    assert ended
