"""Parameters and markers of the end-to-end tests; support/harness.py does the work."""
import collections
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))  # for the tests of every folder

import harness  # noqa: E402

TRIES = 3  # of a test marked timed


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: more than about 20 s, left out by -m 'not slow'")
    config.addinivalue_line("markers", "halved: each parameter is met with either PyTorch, but not in all combinations: the "
                            "others are slow")
    config.addinivalue_line("markers", "by_turns: the tests of the file that are so marked are met with one PyTorch each, by turns, as "
                            "what they test does not depend on it; with the other one they are slow. Parameters besides are halved")
    config.addinivalue_line("markers", "forked(PROGRAM): of each test, or of all that run the program, one combination starts its "
                            "swapped programs, each once; all others are forked after `import torch`, as tests/README.md says")
    config.addinivalue_line("markers", "starts: of those marked forked the one that starts each of its programs once (set here)")
    config.addinivalue_line("markers", "whole: starts all its programs, though its file is marked forked")
    config.addinivalue_line("markers", "unified: of devices; `ctest -L unified` runs them too")
    config.addinivalue_line("markers", "alone: compares times, or what memory there is; scripts/test runs nothing beside it")
    config.addinivalue_line("markers", "presses: has programs wait for memory; others would wait until the kernel's average of that "
                            "has fallen, so it comes last")
    config.addinivalue_line("markers", "timed: compares real times, by harness.in_time; where these are not as they should be, "
                            f"it has {TRIES} tries")


def _halve(items):
    """With an even number of bits set in its number among those of one test and one PyTorch a combination is for one of
    the two, with an odd number for the other: so each of several parameters comes to be met with both. Of tests by turns the
    number within the file is added."""
    seen, turns = collections.Counter(), collections.defaultdict(dict)
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        by_turns = item.get_closest_marker("by_turns")
        if "torch" in params and (by_turns or item.get_closest_marker("halved") and len(params) > 1):
            newer = params["torch"] is harness.TORCH213
            key = item.path, item.originalname, newer
            turn = turns[item.path].setdefault(item.originalname, len(turns[item.path])) if by_turns else 0
            if (seen[key].bit_count() + newer + turn) % 2:
                item.add_marker("slow")
            seen[key] += 1


def _of_newer(item):
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return harness.TORCH213 in params or "torch213" in item.fixturenames


def _start(item):
    """What tests of a file have in common that is to be started once: their function. Where the marker names a program, all
    tests of the file run it, and a start differs by the device."""
    program = item.get_closest_marker("forked").args
    if not program:
        return item.originalname
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return *program, params.get("device")


def _choose_starts(items):
    """Of the tests marked forked that have a start in common one that is not slow starts its programs, by turns under either
    PyTorch: so each has one. What is slow is whole: `scripts/test` runs it when time does not matter."""
    tests = collections.defaultdict(dict)
    for item in items:
        if item.get_closest_marker("forked") and not item.get_closest_marker("whole"):
            if item.get_closest_marker("slow"):
                item.add_marker("whole")
            else:
                tests[item.path].setdefault(_start(item), []).append(item)
    for starts in tests.values():
        for number, same in enumerate(starts.values()):
            wanted = [item for item in same if _of_newer(item) == bool(number % 2)]
            (wanted or same)[0].add_marker("starts")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what is slow for its number, and what starts its programs; -m comes after. The files with most tests come first:
    where several run at once (pytest-xdist), the short ones fill up the end."""
    _halve(items)
    _choose_starts(items)
    tests = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: (bool(item.get_closest_marker("presses")), -tests[item.path], item.path))


def _usable(torch):
    """An interpreter that is not there fails the tests: skipped by accident, half of them would look like success.
    SWAPNET_PY113= or SWAPNET_PY213= (empty) leaves one out on purpose."""
    if not torch.python:
        pytest.skip(f"PyTorch {torch.name} left out by an empty SWAPNET_PY{torch.name.replace('.', '')}")
    if why := torch.missing():
        pytest.fail(f"PyTorch {torch.name}: {why}", pytrace=False)
    return torch


def _empty(directory):
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Another try for a time that shared machines spoil, and for nothing else: what fails once otherwise is a failure."""
    if not pyfuncitem.get_closest_marker("timed"):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for attempt in range(1, TRIES + 1):
        try:
            pyfuncitem.obj(**arguments)
            return True
        except harness.Untimely as late:
            if attempt == TRIES:
                raise
            pyfuncitem.warn(pytest.PytestWarning(f"try {attempt} of {TRIES}: {late}"))
            if "disk" in arguments:
                _empty(arguments["disk"])


@pytest.fixture(autouse=True)
def _beginning(request):
    """How harness.both, swapped and run begin their programs in this test."""
    node = request.node
    harness.started.clear()
    harness.forks = harness.Forks.NONE
    if node.get_closest_marker("forked") and not node.get_closest_marker("whole"):
        harness.forks = harness.Forks.REPEATED if node.get_closest_marker("starts") else harness.Forks.ALL


@pytest.fixture(params=harness.ALL_TORCH, ids=lambda torch: f"torch{torch.name}")
def torch(request):
    """Each PyTorch in turn."""
    return _usable(request.param)


@pytest.fixture
def torch113():
    return _usable(harness.TORCH113)


@pytest.fixture
def torch213():
    return _usable(harness.TORCH213)


@pytest.fixture
def disk():
    """An empty directory on a real disk."""
    with harness.disk_dir() as path:
        yield path


@pytest.fixture
def place():
    """A session's runtime directory, short enough for sockets."""
    path = tempfile.mkdtemp(prefix="swnd-", dir="/tmp")
    os.mkdir(f"{path}/swapnet", 0o700)
    yield path
    shutil.rmtree(path)
