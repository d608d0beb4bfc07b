"""`swapnetctl doctor` where one thing is broken, and `run` where the library cannot be had.

The break is real each time: a filter on system calls, a file system in memory, a limit, a process without huge pages.
"""
import ctypes
import errno
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import pytest

import harness
import old_kernel

CTL = harness.BUILD / "bin" / "swapnetctl"
PYTHON = harness.TORCH113.python
PR_SET_THP_DISABLE = 41


def doctor(store, python="/nonexistent/python", env=None, break_it=None):
    """Its exit status, and its findings by what they are about."""
    done = subprocess.run([CTL, "doctor", "--json", "--store", store, "--", python], env=harness.clean_env(env), preexec_fn=break_it,
                          capture_output=True, text=True, timeout=harness.HANG_S, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 1), done
    document = json.loads(done.stdout)
    assert document["usable"] == (done.returncode == 0) == all(one["level"] != "fail" for one in document["findings"])
    return done.returncode, {one["check"]: one for one in document["findings"]}


@pytest.mark.usefixtures("torch113")
def test_a_machine_with_pytorch(tmp_path):
    """All is well with the interpreter of the tests: a program of it was within its budget."""
    code, found = doctor(tmp_path, PYTHON)
    assert code == 0
    assert found["trial"]["level"] == "ok" and "64 MiB" in found["trial"]["text"]
    assert found["pytorch"]["text"].endswith("has PyTorch " + subprocess.run(
        [PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True).stdout.strip())


def test_the_same_interpreter_as_add_torch(tmp_path):
    done = subprocess.run([CTL, "doctor", "-s", tmp_path], env=harness.clean_env({"SWAPNET_PYTHON": "/nonexistent/python"}),
                          capture_output=True, text=True, timeout=harness.HANG_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "fail  python      /nonexistent/python: there is no such program\n" in done.stdout


def test_text_says_what_to_change(tmp_path):
    done = subprocess.run([CTL, "doctor", "-s", tmp_path, "/nonexistent/python"], env=harness.clean_env(), capture_output=True,
                          text=True, timeout=harness.HANG_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and not done.stderr
    assert "fail  python      /nonexistent/python: there is no such program\n" in done.stdout
    assert "-> name the interpreter with PyTorch" in done.stdout
    assert done.stdout.endswith('change what says "fail".\n')


def wait_until(happens):
    end = time.monotonic() + harness.HANG_S
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


@pytest.mark.usefixtures("torch113")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_leaves_nothing_when_it_is_ended(tmp_path, ending):
    """During its trial, which goes on for as long as PyTorch takes."""
    site, temporary, began = tmp_path / "site", tmp_path / "tmp", tmp_path / "began"
    site.mkdir()
    temporary.mkdir()
    (site / "sitecustomize.py").write_text(  # in place of a slow import
        "import os, time\n"
        "if 'libswapnet' in os.environ.get('LD_PRELOAD', ''):\n"
        f"    with open('{began}.new', 'w') as file: file.write(str(os.getpid()))\n"
        f"    os.rename('{began}.new', '{began}')\n"
        "    time.sleep(900)\n")
    env = harness.clean_env({"PYTHONPATH": str(site), "TMPDIR": str(temporary)})
    with subprocess.Popen([CTL, "doctor", "--store", tmp_path / "store", PYTHON], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as doctor_process:
        wait_until(began.exists)
        child = int(began.read_text())
        assert runs(child) and list(temporary.glob("swapnet-doctor-*"))
        doctor_process.send_signal(ending)
        assert doctor_process.wait(harness.HANG_S) == -ending
    wait_until(lambda: not runs(child))
    assert ending == signal.SIGKILL or not list(temporary.iterdir())


def test_io_uring_forbidden(tmp_path):
    _, found = doctor(tmp_path, break_it=lambda: old_kernel.install([(425, None, errno.EPERM)]))
    advice = found["io_uring"]["advice"]
    assert found["io_uring"]["level"] == "slow" and ("seccomp" in advice or "sysctl" in advice)
    assert found["reads"]["text"].startswith("pread+")


def test_io_uring_unknown(tmp_path):
    _, found = doctor(tmp_path, break_it=old_kernel.of((4, 19)))
    assert found["io_uring"]["level"] == "slow" and "Linux 5.6" in found["io_uring"]["advice"]
    assert found["huge pages"]["level"] == "slow"
    assert found["swapnetd"]["level"] == "note"


def test_store_in_memory():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no tmpfs at /dev/shm")
    store = pathlib.Path(f"/dev/shm/swapnet-doctor-{os.getpid()}")
    try:
        _, found = doctor(store)
        assert found["store"]["level"] == "slow" and "lies in memory" in found["store"]["text"]
    finally:
        store.rmdir()


def test_store_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    code, found = doctor(tmp_path / "file" / "store")
    assert code == 1 and found["store"]["level"] == "fail" and "Not a directory" in found["store"]["text"]


def test_no_huge_pages(tmp_path):
    libc = ctypes.CDLL(None)
    _, found = doctor(tmp_path, break_it=lambda: libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
    assert found["huge pages"]["level"] == "slow" and "PR_SET_THP_DISABLE" in found["huge pages"]["advice"]


def test_what_is_left_of_pytorch(tmp_path):
    """A folder without code, as after `pip uninstall` of one that had files of its own made."""
    (tmp_path / "site" / "torch" / "lib").mkdir(parents=True)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')
    python.chmod(0o755)
    code, found = doctor(tmp_path / "store", python=python, env={"PYTHONPATH": str(tmp_path / "site")})
    assert code == 1 and found["pytorch"]["text"] == f"{python} has no PyTorch"


def test_limits(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))
    _, found = doctor(tmp_path, break_it=limit)
    assert found["limits"]["level"] == "note" and "4096.0 MiB (RLIMIT_AS)" in found["limits"]["text"]


def test_limit_of_files(tmp_path):
    """It makes files of up to 2 MiB itself, and the limit's signal would end it."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    _, found = doctor(tmp_path, break_it=limit)
    assert found["limits"]["level"] == "note" and "1.0 MiB (RLIMIT_FSIZE)" in found["limits"]["text"]


@pytest.mark.parametrize("library, part", [("/nonexistent/libswapnet.so", "No such file"), (__file__, "no shared library")])
def test_library_that_is_none(tmp_path, library, part):
    code, found = doctor(tmp_path, env={"SWAPNET_LIBRARY": library})
    assert code == 1 and found["library"]["level"] == "fail" and part in found["library"]["text"]


def test_other_preloads(tmp_path):
    """One that is fine, one that is gone, and a second swapnet."""
    other = tmp_path / "libswapnet.so"
    other.write_bytes(harness.LIBRARY.read_bytes())
    _, found = doctor(tmp_path, env={"LD_PRELOAD": "libm.so.6"})
    assert found["preloads"]["level"] == "note" and "libm.so.6" in found["preloads"]["text"]
    _, found = doctor(tmp_path, env={"LD_PRELOAD": "/nonexistent/x.so"})
    assert found["preloads"]["level"] == "note" and "/nonexistent/x.so" in found["preloads"]["text"]
    code, found = doctor(tmp_path, env={"LD_PRELOAD": str(other)})
    assert code == 1 and found["preloads"]["level"] == "fail" and str(other) in found["preloads"]["text"]


def musl(path):
    """A program that musl's loader starts, as far as its headers say."""
    loader = b"/lib64/ld-linux-x86-64.so.2"
    program = pathlib.Path("/bin/true").read_bytes()
    if loader not in program:
        pytest.skip("no x86-64")
    path.write_bytes(program.replace(loader, b"/lib/ld-musl-x86_64.so.1".ljust(len(loader), b"\0"), 1))
    path.chmod(0o755)
    return path


def test_python_of_musl(tmp_path):
    code, found = doctor(tmp_path, musl(tmp_path / "python"))
    assert code == 1 and "needs glibc" in found["python"]["text"]


def run(*args):
    return subprocess.run([CTL, "run", "--budget", "64M", *args], env=harness.clean_env(), capture_output=True, text=True,
                          timeout=harness.HANG_S, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("make, part", [
    (lambda path: None, "No such file"),
    (lambda path: path.write_bytes(b""), "no shared library"),
    (lambda path: path.write_bytes(harness.LIBRARY.read_bytes()[:40]), "not a whole one"),
])
def test_run_says_that_the_library_is_none(tmp_path, make, part):
    library = tmp_path / "libswapnet.so"
    make(library)
    done = run("--library", library, "true")
    assert done.returncode == 125 and part in done.stderr and done.stderr.count("\n") == 1, done


def test_run_says_that_the_program_cannot_have_the_library(tmp_path):
    done = run("--", musl(tmp_path / "python"), "app.py")
    assert done.returncode == 125 and "needs glibc" in done.stderr and done.stderr.count("\n") == 1, done
