"""Checkpoints as programs write them, with whatever they hold, made from a seed (programs/loading/odd_checkpoints.py).

What PyTorch 2.13 reads with weights_only=True (1.13 knows fewer types) is read here, with equal bytes, or refused by a reason that names the culprit. What
is read here PyTorch reads as well, so nothing is taken for a checkpoint that is none. Many of them, made by both PyTorches:

    SWAPNET_TEST_FILES=5000 python3 -m pytest tests/e2e/loading/test_odd_checkpoints.py -m slow -s

The readers are those of build/asan where that has them (test_checkpoints.tool).
"""
import os
import re
import resource
import subprocess

import pytest

import harness
import test_checkpoints as readers

PROGRAM = harness.program_file("odd_checkpoints")
# A type or function, a quoted name, an entry of the archive or index, or the format as a whole.
CULPRIT = re.compile(r"[A-Za-z_]\w*\.\w+|'[^']*'|data\.pkl|weight_map|PyTorch before 1\.6")


def make(torch, where, count, seed):
    where.mkdir()
    done = subprocess.run([torch.python, PROGRAM, "make", where, str(count), str(seed)], capture_output=True, text=True,
                          env=harness.clean_env(), timeout=600)
    paths = done.stdout.split()
    assert done.returncode == 0 and len(paths) == count, done.stderr[-3000:]
    return paths


def check(torch213, paths):
    """How many both read, and how many only PyTorch."""
    mine, theirs = readers.dump(paths), readers.loaded(torch213, paths, weights_only=True)
    both = refused = 0
    for path, description in mine.items():
        accepts = "error" not in theirs[path]
        if "error" in description:
            where, why = path, description["why"]
            assert CULPRIT.search(why.replace(where, "").replace(os.path.dirname(where), "")), f"{path}: {why}"
            refused += accepts
            continue
        assert accepts, f"{path} is accepted, but the loader says {theirs[path]['error']}"
        names, tensors = readers.described(description), theirs[path]["tensors"]
        if path.endswith(".ts"):  # a module's state is its parameters and buffers; the archive has other attributes, too
            names = {name: value for name, value in names.items() if name in tensors}
        readers.assert_same(names, tensors, path)
        both += 1
    readers.mapped.cache_clear()
    return both, refused


def test_odd_checkpoints(torch, torch213, tmp_path):
    both, refused = check(torch213, make(torch, tmp_path / "made", 50, 7))
    assert both > 5, (both, refused)


@pytest.mark.slow
def test_many_odd_checkpoints(torch, torch213, tmp_path):
    count, both, refused = int(os.environ.get("SWAPNET_TEST_FILES", "500")), 0, 0
    for batch in range(0, count, 500):
        where = tmp_path / str(batch)
        some, only = check(torch213, make(torch, where, min(500, count - batch), 1000 + batch))
        both, refused = both + some, refused + only
        subprocess.run(["rm", "-r", where], check=True)
    print(f"{torch.name}: {count} files, {both} read by both with equal bytes, {refused} by PyTorch alone; {readers.tool()}")
    assert both > count // 10


SIZES = """
import sys
import torch
for n in 2000, 16000:
    torch.save({f"layer{i}.weight": torch.ones(2) for i in range(n)}, f"{sys.argv[1]}/flat-{n}.pt")
    torch.save([{"a": (torch.ones(2), {"b": [i]})} for i in range(n)], f"{sys.argv[1]}/nested-{n}.pt")
    one = torch.ones(n)
    torch.save({f"v{i}": one[i:] for i in range(n)}, f"{sys.argv[1]}/views-{n}.pt")
"""


def cpu_seconds(path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([harness.BUILD / "tests" / "ckpt_dump", path], stdout=subprocess.DEVNULL, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.slow
@pytest.mark.timed
def test_time_is_linear(torch113, tmp_path):
    """Eight times the tensors take at most sixteen times the processor's time; a square would take 64 times."""
    subprocess.run([torch113.python, "-c", SIZES, tmp_path], check=True, env=harness.clean_env())
    for kind in "flat", "nested", "views":
        small, large = (cpu_seconds(tmp_path / f"{kind}-{n}.pt") for n in (2000, 16000))
        assert large < 16 * max(small, 0.01), (kind, small, large)
