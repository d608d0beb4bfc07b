"""What a user gets wrong, or a machine lacks: one clear line on stderr, and the program runs as without swapnet."""
import contextlib
import os
import resource
import shutil
import subprocess

import pytest

import harness


def _run(torch, disk, *program, env, budget=48):
    """A swapped run that must end well and equal to plain, with `env` on top.
    Nothing is removed: an empty value is a value."""
    reference = harness.plain(torch, *program)
    run = harness.run(torch, *program, where=disk, budget=budget, env=env)
    assert run.rc == 0, run.describe()
    harness.assert_same(reference, run)
    return run


def _assert_one_line(run, *words):
    lines = run.own_lines()
    assert len(lines) == 1, f"one line was expected, not {len(lines)}\n{run.describe()}"
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"{missing} not in {lines[0]!r}"


def _assert_off(run):
    """Off means off: nothing was streamed, and no counters claim otherwise."""
    assert run.stats is None or run.stats["streamed_bytes"] == 0, run.describe()


@pytest.mark.forked
@pytest.mark.parametrize("value", ["12X", "-5M", "64M64", "99999999999999999999G"])
def test_bad_budget(torch113, value, disk):
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_BUDGET": value})
    _assert_one_line(run, "SWAPNET_BUDGET", value, "use")
    _assert_off(run)


def test_bad_budget_on_213(torch213, disk):
    run = _run(torch213, disk, "infer", "mlp", env={"SWAPNET_BUDGET": "abc"})
    _assert_one_line(run, "SWAPNET_BUDGET", "abc", "use")
    _assert_off(run)


def test_empty_budget(torch113, disk):
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_BUDGET": ""})
    _assert_one_line(run, "SWAPNET_BUDGET")
    _assert_off(run)


def test_percentage_without_a_store(torch113, disk):
    """A share of a model whose size nobody has stated means nothing at start (invariant 3)."""
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_BUDGET": "50%"})
    _assert_one_line(run, "SWAPNET_BUDGET", "50%", "use")
    _assert_off(run)


@pytest.mark.forked
@pytest.mark.halved
@pytest.mark.parametrize("value", ["0", "1M"])
def test_budget_below_the_minimum(torch, value, disk):
    run = _run(torch, disk, "infer", "mlp", env={"SWAPNET_BUDGET": value})
    _assert_one_line(run, "SWAPNET_BUDGET", value, "minimum")
    _assert_off(run)


@pytest.mark.forked
@pytest.mark.parametrize("good", ["48M", "49152K", "50331648"])
def test_good_budgets(torch113, good, disk):
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_BUDGET": good})
    assert run.own_lines() == [], run.describe()
    assert run.stats["budget_bytes"] == 48 * harness.MIB
    harness.assert_streamed(run)
    harness.assert_bounded(run)


@pytest.mark.by_turns
def test_store_that_cannot_be_written(torch, disk):
    (disk / "file").write_text("in the way")
    store = str(disk / "file" / "store")  # not by permissions: root has them all
    run = _run(torch, disk, "infer", "mlp", env={"SWAPNET_STORE": store})
    _assert_one_line(run, store)
    _assert_off(run)


@contextlib.contextmanager
def _read_only(directory):
    """A disk that takes nothing; there is a directory on it."""
    with harness.mounted("-t", "tmpfs", "swapnet-test", at=directory) as disk:
        os.mkdir(disk / "cache", 0o755)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        yield disk


def test_store_on_a_read_only_file_system(torch113, disk):
    with _read_only(disk / "image") as image:
        run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_STORE": str(image / "store")})
    _assert_one_line(run, str(image / "store"), "Read-only file system")
    _assert_off(run)


@pytest.mark.forked
def test_cache_on_a_read_only_file_system(torch113, disk):
    """As one that comes with an image: what leaves memory goes to the user's own directory, and nothing is said of a disk that
    nothing is written to."""
    with _read_only(disk / "image") as image:
        run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_STORE": str(image / "cache"), "XDG_CACHE_HOME": str(disk / "own")})
    _assert_one_line(run, str(image / "cache"), "can only be read", str(disk / "own"))
    harness.assert_streamed(run)


def _small_disk(directory, size):
    """A full disk needs a disk of our own."""
    return harness.mounted("-t", "tmpfs", "-o", f"size={size}", "swapnet-test", at=directory)


def _assert_said_once(run, store):
    """The full disk is named in one line. That the budget does not hold may be said in one more; that the disk is none,
    as this one, is said, too."""
    lines = [line for line in run.own_lines() if "lies in memory" not in line]
    named = [line for line in lines if store in line]
    assert len(named) == 1 and "No space left" in named[0], run.describe()
    assert len(lines) <= 2 and len(run.own_lines()) <= len(lines) + 1, run.describe()


@pytest.mark.forked
@pytest.mark.halved
@pytest.mark.parametrize("size", ["64k", "16M", "40M"])
def test_full_disk(torch, size, disk):
    """The weights stay in memory when there is no room for them; the excess is reported, the numbers are right."""
    with _small_disk(disk / "small", size) as store:
        run = _run(torch, disk, "infer", "mlp", env={"SWAPNET_STORE": str(store)})
    _assert_said_once(run, str(store))
    assert run.stats["over_budget_bytes"] > 0, run.describe()


def test_full_disk_in_training(torch113, disk):
    with _small_disk(disk / "small", "8M") as store:
        run = _run(torch113, disk, "train", "sgd", env={"SWAPNET_STORE": str(store)}, budget=20)
    _assert_said_once(run, str(store))


def test_file_size_limit(torch113, disk):
    """EFBIG, and the SIGXFSZ that comes with it and would kill: the program's own files are far smaller. The budget holds
    with as many spill files as it takes, but frames are a file, too."""

    limit = 8 * harness.MIB
    process = harness.start(torch113, "infer", "mlp", where=disk, budget=48,
                            preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    run = process.finish()
    assert run.rc == 0, run.describe()
    harness.assert_same(harness.plain(torch113, "infer", "mlp"), run)
    harness.assert_bounded(run)
    line, = run.own_lines()
    assert "ulimit -f" in line, run.describe()


@pytest.mark.parametrize("when", ["early", "late"])
def test_no_descriptors_for_a_while(torch113, when):
    """The program has taken them all: it has equal bits, and the budget holds again when there are some."""
    run = harness.both(torch113, "descriptors", when, budget=12)[1]
    harness.assert_streamed(run)
    named = [line for line in run.own_lines() if "ulimit -n" in line]
    assert len(named) == (when == "early") and len(run.own_lines()) <= 2 * len(named), run.describe()


@pytest.mark.parametrize("limit", [pytest.param(n, marks=[] if n in (6, 16) else pytest.mark.slow) for n in range(4, 21)])
def test_descriptor_limit(torch113, limit, disk):
    """swapnet keeps some open, so that a program for which there are just enough meets the limit; nothing worse happens."""
    run = harness.start(torch113, "infer", "mlp-narrow", where=disk, budget=12,
                        preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))).finish()
    said = run.own_lines()  # what cannot be opened, that the budget is exceeded for it, and that there are no statistics
    assert len(set(said)) == len(said) <= 3 and (not said or "Too many open files" in said[0]), run.describe()
    if limit >= 16:
        harness.assert_streamed(run)
    if limit >= 16 or run.rc == 0:
        harness.assert_same(harness.plain(torch113, "infer", "mlp-narrow"), run)
    else:
        assert run.rc == 1 and "Errno 24" in run.program_stderr(), run.describe()


@pytest.mark.parametrize("more", [512, 1024, 8192])
def test_address_space_limit(torch113, more, disk):
    """RLIMIT_AS, from little more than the plain program needs upwards: it runs, with or without its budget, and
    says what it lacks at most once."""
    limit = harness.plain(torch113, "infer", "mlp", whole=True).record["notes"]["peak_address_space"] + more * harness.MIB
    process = harness.start(torch113, "infer", "mlp", where=disk, budget=48,
                            preexec=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    run = process.finish()
    assert run.rc == 0, run.describe()
    harness.assert_same(harness.plain(torch113, "infer", "mlp"), run)
    assert len(run.own_lines()) <= 1, run.describe()
    if more == 8192:
        harness.assert_streamed(run)


@pytest.mark.by_turns
def test_switched_off(torch, disk):
    run = _run(torch, disk, "infer", "mlp", env={"SWAPNET": "0"})
    assert run.own_lines() == [], run.describe()
    _assert_off(run)


def test_unknown_variable_is_named_once(torch113, disk):
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_BUGDET": "64M"})
    _assert_one_line(run, "SWAPNET_BUGDET")
    harness.assert_streamed(run)


def test_verbose_prints_the_settings(torch113, disk):
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_VERBOSE": "1"})
    said = "\n".join(run.own_lines())
    assert "48" in said and str(disk / "store") in said, run.describe()
    harness.assert_streamed(run)


@pytest.mark.parametrize("variable, value", [("SWAPNET_FETCH", "carrier-pigeon"), ("SWAPNET_STATS", "/proc/none/s")])
def test_other_bad_settings(torch113, variable, value, disk):
    run = _run(torch113, disk, "infer", "mlp", env={variable: value})
    _assert_one_line(run, value)


def test_pytorch_it_was_not_built_for(torch, disk):
    """The preload half alone, without lib/swapnet beside it, has no half for any PyTorch."""
    alone = disk / "alone"
    alone.mkdir()
    shutil.copy(harness.LIBRARY, alone)
    run = _run(torch, disk, "infer", "mlp", env={"LD_PRELOAD": str(alone / "libswapnet.so")})
    _assert_one_line(run)
    _assert_off(run)


def test_damaged_second_half(torch113, disk):
    """lib/swapnet holds files that are no libraries: as good as not there."""
    broken = disk / "lib"
    (broken / "swapnet").mkdir(parents=True)
    shutil.copy(harness.LIBRARY, broken)
    halves = list((harness.LIBRARY.parent / "swapnet").glob("*.so"))
    assert halves, "no version-matched half was built"
    for half in halves:
        (broken / "swapnet" / half.name).write_text("not a library")
    run = _run(torch113, disk, "infer", "mlp", env={"LD_PRELOAD": str(broken / "libswapnet.so")})
    _assert_one_line(run)
    _assert_off(run)


def test_strict_fails_the_allocation(torch113, disk):
    """SWAPNET_STRICT=1: a live set above the budget is the program's error, raised where it allocates."""
    env = {"SWAPNET_STRICT": "1"}
    # One tensor larger than the budget would not do: it is written to its file (test_memory.py). Nor would what an
    # operator only reads: that leaves.
    run = harness.start(torch113, "live_sets", "promoted", where=disk, budget=8, env=env).finish()
    assert run.rc == 1, run.describe()
    assert "RuntimeError" in run.stderr, run.describe()
    assert run.stats["peak_resident_bytes"] <= run.stats["budget_bytes"], run.describe()


SECOND = """
import os, sys
how, path = sys.argv[1:]
if how == "closed":
    os.close(2)
file = open(path, "wb", buffering=0)
if how == "redirected":
    os.dup2(file.fileno(), 2)
assert how == "redirected" or file.fileno() == 2
file.write(b"A" * 16)
import torch
tensors = [torch.ones(512, 512) for _ in range(40)]
file.write(b"B" * 16)
"""


@pytest.mark.parametrize("how", ["closed", "redirected"])
def test_stderr_is_another_file(torch113, how, disk):
    """A program closes it, and its next file has the number: nothing of ours goes there. One that is put there with
    dup2 gets what we say."""
    program, path = disk / "second.py", disk / "data"
    program.write_text(SECOND)
    env = {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_BUDGET": "16M", "SWAPNET_STORE": str(disk), "SWAPNET_DAEMON": "off",
           "SWAPNET_VERBOSE": "1"}
    run = harness.Process([torch113.python, program, how, path], env).finish()
    assert run.rc == 0, run.describe()
    data = path.read_bytes()
    assert (data == b"A" * 16 + b"B" * 16) == (how == "closed"), data
    assert (b"swapnet: budget" in data) == (how == "redirected"), data


def test_stats_at_a_relative_path(torch113, disk):
    """Relative to the directory the program was started in."""
    run = _run(torch113, disk, "infer", "mlp", env={"SWAPNET_STATS": "relative.json"})
    assert run.own_lines() == []
    assert os.path.exists(disk / "relative.json")


@pytest.mark.parametrize("program", ["adapt", "load", "predict", "run", "scenario"])
def test_benchmarks_say_how_they_are_run(program):
    """argparse finds out at --help alone that a text of its options cannot be printed."""
    done = subprocess.run(["/usr/bin/python3", harness.REPO / "bench" / f"{program}.py", "--help"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and "usage:" in done.stdout, done
