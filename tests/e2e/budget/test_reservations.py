"""What swapnet reserves harms nobody: a program that locks its memory, limits it, forks it or dumps it takes no more than
plain and its budget, and computes the same bits.

Whatever may fill a reservation runs in a memory cgroup, so that a failure is the program's and not the machine's.
"""
import contextlib
import functools
import os
import pathlib
import resource
import shutil

import pytest

import cgroup
import harness

MIB = harness.MIB
pytestmark = pytest.mark.by_turns
BUDGET = 24
ROOM = 2 << 30  # plain takes a quarter of it
CURRENT, FUTURE = 1, 2
FORKS = 100
PROMISED = 1 << 40  # far more than plain and its children are charged, far less than a hundred arenas
STRICT = pathlib.Path("/proc/sys/vm/overcommit_memory")
RATIO, KBYTES = STRICT.with_name("overcommit_ratio"), STRICT.with_name("overcommit_kbytes")


@pytest.fixture(scope="module", autouse=True)
def _needs_a_cgroup():
    if why := cgroup.why_not():
        pytest.skip(why)


def _run(torch, *args, where, budget=None, core=0, rc=0):
    def enter():
        group.enter()
        if core:
            resource.setrlimit(resource.RLIMIT_CORE, (core, core))

    with cgroup.Group("reserved") as group:
        group.limit(ROOM)
        run = harness.start(torch, "reserved", *args, where=where, budget=budget, preexec=enter).finish()
    assert run.rc == rc and run.record is not None, run.describe()
    return run


def _both(torch, disk, *args, **how):
    reference = _run(torch, *args, where=disk / "plain", **how)
    run = _run(torch, *args, where=disk / "swapped", budget=BUDGET, **how)
    harness.assert_same(reference, run)
    return reference, run


@functools.cache
def _free(torch):
    """What the plain program takes where nothing limits it."""
    with harness.disk_dir() as where:
        return _run(torch, "nothing", where=where).record["notes"]


def _off(run):
    return [line for line in run.own_lines() if "off" in line and "mlockall" in line]


@pytest.mark.parametrize("flags", [CURRENT, CURRENT | FUTURE], ids=["current", "future"])
@pytest.mark.parametrize("when", ["before", "begun", "built", "run"])
def test_locked_memory(torch, disk, when, flags):
    """Whoever locks gets what plain gets, and one line that says so, unless nothing of ours is locked."""
    reference, run = _both(torch, disk, "lock", when, flags)
    assert run.record["notes"]["peak"] <= reference.record["notes"]["peak"] + (BUDGET + 32) * MIB, run.describe()
    if when == "before" and not flags & FUTURE:
        harness.assert_streamed(run)
        assert not _off(run), run.describe()
    else:
        assert len(_off(run)) == 1, run.describe()


def test_lock_that_is_refused(torch, disk):
    """Many programs try it and go on without: nothing changes for them."""
    _, run = _both(torch, disk, "refused", "run", CURRENT | FUTURE)
    assert run.record["values"]["refused"] == [[-1, 12]], run.describe()  # ENOMEM
    harness.assert_streamed(run)
    assert not _off(run), run.describe()


@pytest.mark.parametrize("when", ["begun", "built", "run"])
def test_address_space_limited_by_the_program(torch, disk, when):
    """Before there is a pool it still runs within its budget, and whenever it is, it runs."""
    limit = _free(torch)["space"] + 512 * MIB
    _, run = _both(torch, disk, "space", when, limit)
    if when == "begun":
        harness.assert_streamed(run)


@pytest.mark.parametrize("when", ["before", "begun", "built", "run"])
def test_data_limited_by_the_program(torch, disk, when):
    _, run = _both(torch, disk, "data", when, _free(torch)["data"] + 64 * MIB)
    harness.assert_streamed(run)


def _core_in(where):
    found = [path for path in where.glob("core*") if path.is_file()]
    assert len(found) == 1, found
    return found[0].stat()


def _not_much_more(run, plain):
    for size, least in ((run.st_size, plain.st_size), (run.st_blocks * 512, plain.st_blocks * 512)):
        assert size <= 1.2 * least, (run, plain)


def test_core_dump(torch, disk):
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text(encoding="ascii").strip()
    if not pattern.startswith("core"):
        pytest.skip(f"core dumps go elsewhere: {pattern}")
    _both(torch, disk, "abort", core=8 << 30, rc=-6)
    _not_much_more(_core_in(disk / "swapped"), _core_in(disk / "plain"))


def test_gcore(torch, disk):
    """gdb reads every page that it writes: of what has left it must not."""
    if not shutil.which("gcore"):
        pytest.skip("gdb is not installed")
    reference = _run(torch, "gcore", "", disk / "core-plain", where=disk / "plain")
    run = _run(torch, "gcore", "", disk / "core-swapped", where=disk / "swapped", budget=BUDGET)
    harness.assert_same(reference, run)
    harness.assert_streamed(run)
    assert run.record["notes"]["grown"] <= reference.record["notes"]["grown"] + 8 * MIB, run.describe()
    (swapped,), (plain,) = disk.glob("core-swapped*"), disk.glob("core-plain*")
    _not_much_more(swapped.stat(), plain.stat())


def _committed():
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Committed_AS:"))


def _in_a_container():
    """Why the kernel's settings are not ours to change, or None: its own threads are seen from here, and see what we do."""
    try:
        kernel, own = os.readlink("/proc/2/ns/mnt"), os.readlink("/proc/self/ns/mnt")
        if pathlib.Path("/proc/2/comm").read_text(encoding="ascii").strip() == "kthreadd" and kernel == own:
            return None
    except OSError:
        pass
    return "the accounting is not this container's to change"


@contextlib.contextmanager
def _strict_accounting(room):
    """The kernel promises no more memory than there is: this many bytes more than it has promised already."""
    if why := _in_a_container():
        pytest.skip(why)
    mode, ratio = STRICT.read_text(encoding="ascii"), RATIO.read_text(encoding="ascii")
    kbytes = KBYTES.read_text(encoding="ascii")
    try:
        KBYTES.write_text(str(_committed() + (room >> 10)), encoding="ascii")
        STRICT.write_text("2", encoding="ascii")
    except OSError as error:
        pytest.skip(f"the kernel's accounting cannot be changed here: {error}")
    try:
        yield
    finally:
        STRICT.write_text(mode, encoding="ascii")
        if int(kbytes):
            KBYTES.write_text(kbytes, encoding="ascii")
        else:
            RATIO.write_text(ratio, encoding="ascii")


@pytest.mark.alone
def test_strict_accounting(torch, disk):
    """Where plain may start, and be there a hundred times over, so may we: what is only reserved is charged to nobody."""
    reference = _run(torch, "forks", "", FORKS, where=disk / "plain")
    assert (FORKS + 10) * reference.record["notes"]["data"] < PROMISED
    with _strict_accounting(PROMISED):
        run = _run(torch, "forks", "", FORKS, where=disk / "swapped", budget=BUDGET)
    harness.assert_same(reference, run)
    harness.assert_streamed(run)
