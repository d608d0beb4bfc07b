"""swapnetctl add-torch builds backends for a PyTorch that swapnet was not built for, and only then does a program run under swapnet."""
import fcntl
import json
import os
import shutil
import subprocess

import pytest

import harness

NAME = "aten-2.13.so"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed swapnet that was not built for PyTorch 2.13."""
    if not harness.TORCH213.python:
        pytest.skip("PyTorch 2.13 is left out")
    path = tmp_path_factory.mktemp("add_torch")
    subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", path], check=True, capture_output=True)
    for kind in "aten", "serve":
        (path / "lib" / "swapnet" / f"{kind}-2.13.so").unlink()
    return path


def add_torch(prefix, data, *args, where=None, **variables):
    env = harness.clean_env({"XDG_DATA_HOME": str(data), **variables})
    return subprocess.run([prefix / "bin" / "swapnetctl", "add-torch", *args], env=env, cwd=where, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=900, check=False)


def backends(own):
    """What is there, but for the list of who had it built."""
    return sorted(path.name for path in own.iterdir() if path.name != "used-by")


def own_directory(data):
    """Of this user, this machine and this build of swapnet."""
    [machine] = (data / "swapnet" / "backends").iterdir()
    [own] = machine.iterdir()
    return own


def run_under(prefix, data, where):
    return harness.start(harness.TORCH213, "infer", "mlp-deep", "6", where=where, budget=64,
                         preload=prefix / "lib" / "libswapnet.so", env={"XDG_DATA_HOME": str(data)}).finish()


@pytest.mark.slow
def test_builds_what_was_missing(prefix, disk):
    data, reference = disk / "data", harness.plain(harness.TORCH213, "infer", "mlp-deep", "6")
    run = run_under(prefix, data, disk / "without")
    [line] = run.own_lines()
    assert NAME in line and "swapnetctl add-torch PYTHON" in line and run.stats is None
    harness.assert_same(reference, run)

    made = add_torch(prefix, data, "--no-serve", harness.TORCH213.python)
    assert made.returncode == 0 and not made.stdout, made
    own = own_directory(data)
    assert backends(own) == [NAME], "no more is left than the backend"
    assert own.stat().st_mode & 0o777 == 0o700

    run = run_under(prefix, data, disk / "with")
    assert not run.own_lines(), run.describe()
    harness.assert_same(reference, run)
    harness.assert_streamed(run)

    own.chmod(0o770)  # others could have put something there
    run = run_under(prefix, data, disk / "open")
    [line] = run.own_lines()
    assert NAME in line and "others than its user" in line and run.stats is None
    own.chmod(0o700)
    os.rename(own, disk / "elsewhere")
    own.symlink_to(disk / "elsewhere")
    run = run_under(prefix, data, disk / "linked")
    assert run.own_lines() and run.stats is None


def test_says_what_is_missing(prefix, disk):
    """Before it builds anything: a compiler, a PyTorch, a directory that is the user's alone."""
    refused = add_torch(prefix, disk / "data", harness.TORCH213.python, CXX="no-such-compiler")
    assert refused.returncode == 1 and "no no-such-compiler here" in refused.stderr and "CXX" in refused.stderr, refused
    python = disk / "python-without"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", python], check=True)
    refused = add_torch(prefix, disk / "data", python / "bin" / "python")
    assert refused.returncode == 1 and "has no PyTorch" in refused.stderr, refused
    refused = add_torch(prefix, disk / "data", disk / "nowhere")
    assert refused.returncode == 1 and "cannot run" in refused.stderr, refused
    own = own_directory(disk / "data")
    own.chmod(0o707)
    refused = add_torch(prefix, disk / "data", harness.TORCH213.python)
    assert refused.returncode == 1 and "is not yours alone" in refused.stderr, refused
    assert not list(own.iterdir())
    refused = add_torch(prefix, disk / "data", "--jobs", "none")
    assert refused.returncode == 2 and "--jobs" in refused.stderr, refused


def test_leaves_nothing_in_the_home_of_another_user(prefix, disk):
    """As root, by su or sudo -E: that user could neither use nor remove it."""
    if os.geteuid():
        pytest.skip("only root can have another user's home")
    os.chown(disk, 65534, 65534)
    refused = add_torch(prefix, disk / "data", harness.TORCH213.python)
    assert refused.returncode == 1 and "is not yours alone" in refused.stderr, refused
    assert not list(disk.iterdir())


def stand_in(compiler):
    """A compiler that gives the backend of this build, so that only the trial takes time."""
    compiler.write_text("#!/bin/sh\n"
                        'while [ $# -gt 1 ]; do [ "$1" = -o ] && to=$2; shift; done\n'
                        f'from={harness.BUILD / "lib" / "swapnet" / NAME}\n'
                        f'case $to in *torch.so) from={harness.BUILD / "torch_link" / "libswapnet-torch.so"} ;; esac\n'
                        'cp "$from" "$to"\n')
    compiler.chmod(0o755)


def test_removes_what_a_build_replaces(prefix, disk):
    """Backends of other builds of the same version. Nothing through a link, nothing of a build under way, nothing that was put there."""
    data, compiler = disk / "data", disk / "compiler"
    stand_in(compiler)
    assert add_torch(prefix, data, disk / "nowhere").returncode == 1  # makes the directory
    own = own_directory(data)
    version = own.name[:-len("-0123456789ab")]
    gone, linked, busy, mixed = (own.with_name(f"{version}-{digit * 12}") for digit in "abcd")
    others = [own.with_name("0.0.1-" + "e" * 12), own.with_name(f"{version}-notes"), disk / "elsewhere"]
    for path in gone, busy, mixed, *others:
        path.mkdir()
        (path / NAME).write_bytes(b"of another build")
    (gone / "aten-2.4-precxx11.so").write_bytes(b"")
    (gone / ".making-killed").mkdir()
    (gone / ".making-killed" / "0.o").write_bytes(b"")
    (mixed / "notes.txt").write_text("mine")
    linked.symlink_to(disk / "elsewhere")
    building = os.open(busy, os.O_RDONLY)
    try:
        fcntl.flock(building, fcntl.LOCK_SH)
        made = add_torch(prefix, data, "--no-serve", harness.TORCH213.python, CC=str(compiler), CXX=str(compiler))
    finally:
        os.close(building)
    assert made.returncode == 0 and (own / NAME).exists(), made
    assert not gone.exists() and linked.is_symlink() and [path.name for path in mixed.iterdir()] == ["notes.txt"]
    assert all((path / NAME).exists() for path in (busy, *others))


def test_keeps_what_another_installation_uses(prefix, disk):
    """Of the same version, but built of other sources: neither removes the other's, until that one is replaced."""
    data, compiler, another = disk / "data", disk / "compiler", disk / "another" / "lib" / "swapnet"
    stand_in(compiler)
    assert add_torch(prefix, data, disk / "nowhere").returncode == 1  # makes the directory
    own = own_directory(data)
    theirs = own.with_name(own.name[:-len("0123456789ab")] + "a" * 12)
    theirs.mkdir()
    (theirs / NAME).write_bytes(b"of another build")
    (theirs / "used-by").write_text(f"{disk / 'gone'}\n{another}\n")
    recipe = another / "add_torch" / "recipe.json"
    recipe.parent.mkdir(parents=True)
    for build, is_kept in (theirs.name, True), (own.name, False):
        recipe.write_text(json.dumps({"build": build}))
        made = add_torch(prefix, data, "--no-serve", harness.TORCH213.python, CC=str(compiler), CXX=str(compiler))
        assert made.returncode == 0 and backends(own) == [NAME], made
        assert theirs.exists() == is_kept and (own / "used-by").read_text() == f"{prefix / 'lib' / 'swapnet'}\n"


def test_imports_nothing_from_the_working_directory(prefix, disk):
    where, compiler = disk / "where", disk / "compiler"
    where.mkdir()
    for name in "ctypes", "json", "torch", "shutil":
        (where / f"{name}.py").write_text(f"open({str(disk / 'was-run')!r}, 'w').close()\n")
    stand_in(compiler)
    made = add_torch(prefix, disk / "data", "--no-serve", harness.TORCH213.python, where=where, CC=str(compiler), CXX=str(compiler))
    assert made.returncode == 0 and backends(own_directory(disk / "data")) == [NAME], made
    assert not (disk / "was-run").exists()


def test_a_backend_of_another_build_is_not_loaded(prefix, disk):
    """It has the same number of the interface, and lies where this swapnet's own would be found."""
    assert add_torch(prefix, disk / "data", disk / "nowhere").returncode == 1  # makes the directory
    own = own_directory(disk / "data")
    shutil.copy(harness.BUILD / "lib" / "swapnet" / NAME, own)
    run = run_under(prefix, disk / "data", disk / "same")
    assert not run.own_lines() and run.stats, run.describe()
    for other in own.name[:-1] + ("0" if own.name[-1] != "0" else "1"), "0.1.0":
        own = own.rename(own.with_name(other))
        run = run_under(prefix, disk / "data", disk / other)
        [line] = run.own_lines()
        assert NAME in line and "swapnetctl add-torch" in line and run.stats is None


def test_builds_nothing_for_what_came_with_swapnet(prefix, disk):
    for kind in "aten", "serve":
        shutil.copy(harness.BUILD / "lib" / "swapnet" / f"{kind}-2.13.so", prefix / "lib" / "swapnet")
    try:
        made = add_torch(prefix, disk / "data", harness.TORCH213.python)
        assert made.returncode == 0 and "needs nothing" in made.stderr, made
    finally:
        for kind in "aten", "serve":
            (prefix / "lib" / "swapnet" / f"{kind}-2.13.so").unlink()
