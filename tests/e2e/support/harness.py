"""Runs one program plainly and under swapnet, and compares what the two recorded.

A test program gets the path of a JSON file as its first argument and leaves its record there: hashes of raw tensor
bytes, never rounded numbers. Its standard output stays its own, so that a library which prints would be seen.

Environment: SWAPNET_BUILD (default build/release), SWAPNET_PY113 and SWAPNET_PY213, the two interpreters;
SWAPNET_LAUNCHER, which runs programs of another architecture (tests/aarch64/emulate) and needs no more than their names;
SWAPNET_TEST_FORKS, 0 or 1, which overrules the markers `forked` and `whole`.
"""
import atexit
import contextlib
import ctypes
import dataclasses
import enum
import functools
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
E2E = HERE.parent
REPO = E2E.parent.parent
PROGRAMS = {path.stem: path for path in (E2E / "programs").rglob("*.py")}
SHARED = E2E / "programs" / "shared"  # what the programs import
BUILD = REPO / os.environ.get("SWAPNET_BUILD", "build/release")
LIBRARY = BUILD / "lib" / "libswapnet.so"
LAUNCHER = os.environ.get("SWAPNET_LAUNCHER", "").split()
PATIENCE = 8 if LAUNCHER else 1  # times as long may a program take that is emulated
MIB = 1 << 20
# Limits only find what never ends: on a busy machine with a slow disk `import torch` alone may take a minute.
HANG_S = 400

STATS_KEYS = frozenset(
    "schema pid budget_bytes minimum_bytes urgency demand_bytes resident_bytes peak_resident_bytes pool_bytes kept_bytes small_bytes "
    "streamed_bytes encoded_bytes decoded_bytes spilled_bytes deferred_bytes swap_ins window_hits window_misses stalls stall_ns "
    "filled_bytes dropped_bytes placed_bytes slices rows fallback_reads "
    "over_budget_bytes untracked_bytes untracked_weight_bytes passes read_errors plans plan_reviews plan_budget_bytes plan_since_ns budget_since_ns bound_ns in_flight_ns unified unified_elided_bytes unified_copied_bytes device_budget_bytes "
    "device_resident_bytes device_peak_bytes device_kept_bytes device_swap_ins device_swapped_bytes device_stall_ns fetch_path torch_version daemon_socket state name".split())


@dataclasses.dataclass(frozen=True)
class Torch:
    """One PyTorch to test: `name` is how the tests call it, `python` runs it."""
    name: str
    python: str

    def missing(self):
        """Why this PyTorch cannot be tested here, or None."""
        return _missing(self.python, "torch")

    def has(self, module):
        return _missing(self.python, module) is None


TORCH113 = Torch("1.13", os.environ.get("SWAPNET_PY113", "/usr/bin/python3"))
TORCH213 = Torch("2.13", os.environ.get("SWAPNET_PY213", str(REPO / ".deps" / "torch-2.13" / "bin" / "python")))
ALL_TORCH = [TORCH113, TORCH213]


def program_file(name):
    """The file of a test program, whichever folder of programs/ it is in; a path is a test's own."""
    return name if isinstance(name, pathlib.Path) else PROGRAMS[name]


@functools.cache
def _missing(python, module):
    """Whether the module is found. It is not imported, which takes 3 s of PyTorch's: one that cannot be fails the tests anyway,
    and says why."""
    if not shutil.which(python):
        return f"{python} is not there"
    command = [*LAUNCHER, python, "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{module}'))"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_env())
    return None if done.returncode == 0 else f"{python} has no {module}{done.stderr.strip()[-200:]}"


@functools.cache
def session_dir(name):
    """A directory that lives as long as the tests do."""
    path = tempfile.mkdtemp(prefix=f"swapnet-e2e-{name}-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@dataclasses.dataclass
class Run:
    """How a program ended, and what it and the library left behind."""
    command: list
    rc: int
    stdout: str
    stderr: str
    record: dict | None
    stats: dict | None
    seconds: float

    def own_lines(self):
        """The lines on stderr that the library wrote."""
        return [line for line in self.stderr.splitlines() if line.startswith("swapnet:")]

    def program_stderr(self):
        return "".join(line for line in self.stderr.splitlines(True) if not line.startswith("swapnet:"))

    def describe(self):
        tail = "\n".join(self.stderr.splitlines()[-40:])
        return (f"command: {' '.join(map(str, self.command))}\nexit status {self.rc} after {self.seconds:.1f} s\n"
                f"stats: {self.stats}\nstderr (last 40 lines):\n{tail}")


def same_kernels():
    """Which slices have the bits of the whole depends on the math libraries' kernels, and they choose by processor: with
    AVX-512 OpenBLAS has others for small products, and MKL goes by sizes. Tests that count slices want the same ones
    everywhere."""
    if " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        return {}
    return {"OPENBLAS_CORETYPE": "Haswell", "MKL_CBWR": "AVX2,STRICT"}


def clean_env(extra=None):
    """This process's environment without anything that changes what is measured, plus `extra`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SWAPNET") and k != "LD_PRELOAD"}
    env |= same_kernels() | {
        "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2",
        "PYTHONPATH": str(SHARED), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1",
        # The plain run goes on beside: threads that spin would take its cores. OpenBLAS's own threads yield for 2^26 cycles after
        # each product before they sleep, which took a fifth of the processor time; now for 2^10.
        "OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "10",
        "TORCHINDUCTOR_CACHE_DIR": session_dir("inductor"),
        # One process compiles, so that no helper of inductor writes the run's stats file as well.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    env |= extra or {}
    if LAUNCHER and "LD_PRELOAD" in env:  # the program's, not the launcher's
        env["EMULATED_PRELOAD"] = env.pop("LD_PRELOAD")
    return env


def swapnet_env(budget, stats, store, **extra):
    """The variables a user sets. `budget` is a number of MiB, or the text of SWAPNET_BUDGET."""
    env = {"LD_PRELOAD": str(LIBRARY), "SWAPNET_STATS": str(stats), "SWAPNET_STORE": str(store),
           "SWAPNET_DAEMON": "off"}
    env["SWAPNET_BUDGET"] = f"{budget}M" if isinstance(budget, (int, float)) else budget
    return env | extra


@contextlib.contextmanager
def disk_dir():
    """An empty directory on a real disk: /tmp may be memory, where O_DIRECT does not exist and nothing is saved."""
    path = tempfile.mkdtemp(prefix="swapnet-e2e-", dir=os.environ.get("SWAPNET_TEST_DIR", "/var/tmp"))
    try:
        yield pathlib.Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def mounted(*args, at, must=False):
    """Mounts something at the directory `at`, for which it takes root; where the machine does not let us, the test is
    skipped, unless it `must` work because it did before."""
    os.makedirs(at, exist_ok=True)
    done = subprocess.run(["mount", *args, at], capture_output=True, text=True)
    if done.returncode:
        assert not must, done.stderr
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield pathlib.Path(at)
    finally:
        subprocess.run(["umount", at], check=True)


@contextlib.contextmanager
def overlay_in_memory(at):
    """An overlay whose upper layer lies in memory, as a live system's root; below is an empty directory of the disk."""
    with mounted("-t", "tmpfs", "-o", "size=90m,mode=700", "swapnet-test", at=at / "upper") as upper:
        for path in (at / "lower", upper / "files", upper / "work"):
            path.mkdir()
        layers = f"lowerdir={at}/lower,upperdir={upper}/files,workdir={upper}/work"
        with mounted("-t", "overlay", "-o", layers, "swapnet-test", at=at / "overlay") as where:
            yield where


class Untimely(Exception):
    """Something took too long, or came too late. A test marked timed has another try; no other failure has one."""


def in_time(condition, what):
    """Asserts what is only a matter of real times, in a test marked timed."""
    if not condition:
        raise Untimely(what)


class Hang(AssertionError):
    """A program that did not end. Its stack is not wanted, its stderr is."""


class Process:
    """A program started in its own session, so that all of it can be killed. `finish` gives the Run."""

    def __init__(self, command, env=None, cwd=None, preexec=None, record=None, stats=None, stdin=subprocess.DEVNULL):
        self.command = [*LAUNCHER, *map(str, command)]
        self.record, self.stats = record, stats
        self.start = time.monotonic()
        # Files rather than pipes: a child left behind cannot hold the reader up.
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.popen = subprocess.Popen(self.command, env=clean_env(env), cwd=cwd, stdin=stdin, stdout=self.out,
                                      stderr=self.err, start_new_session=True, preexec_fn=preexec)

    def finish(self, timeout=HANG_S):
        hung = False
        timeout *= PATIENCE
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        run = Run(self.command, self.popen.returncode, _text(self.out), _text(self.err), _json(self.record),
                  _json(self.stats), time.monotonic() - self.start)
        if hung:
            raise Hang(f"hang: still running after {timeout} s\n{run.describe()}")
        return run


def _text(stream):
    stream.seek(0)
    text = stream.read().decode(errors="replace")
    stream.close()
    return text


def _json(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (TypeError, FileNotFoundError):
        return None


def start(torch, program, *args, where, budget=None, env=None, preexec=None, preload=None):
    """Starts the program of that name in the directory `where`; under swapnet when a budget is given."""
    where = pathlib.Path(where)
    where.mkdir(parents=True, exist_ok=True)
    record, stats = where / "record.json", where / "stats.json"
    variables = dict(env or {})
    if budget is not None:
        assert LIBRARY.exists(), f"{LIBRARY} is not there: build swapnet first, or set SWAPNET_BUILD"
        store = where / "store"
        store.mkdir(exist_ok=True)
        variables = swapnet_env(budget, stats, store) | variables
    if preload is not None:
        variables["LD_PRELOAD"] = str(preload)
    command = [torch.python, program_file(program), record, *args]
    return Process(command, variables, cwd=where, preexec=preexec, record=record, stats=stats)


# Programs whose runs have to be processes from their start: they set what PyTorch reads when it is loaded, note what a process
# of their own weighs, or (denormal) depend on what OpenBLAS's threads inherit, which a child starts anew.
WHOLE_PROCESS = {"create_delete", "denormal", "device_kernels", "fork_storm", "observed", "registered", "reserved",
                 "rpc_weights", "steady"}


class Forks(enum.Enum):
    """Which of its swapped programs a test forks, too: that takes half the time. A forked program shows nothing of the library's
    start in a new process: the library is loaded in the server, and begins with the first tensor, in a child."""
    NONE, REPEATED, ALL = range(3)  # REPEATED: those that the test has started before


forks, started = Forks.NONE, set()  # of the test that runs: conftest sets them
FORKS = os.environ.get("SWAPNET_TEST_FORKS")  # 1 has all tests fork, 0 none


class Server:
    """One fork_server.py: runs that need not import PyTorch. With `preload`, under that library."""

    def __init__(self, torch, preload=None):
        self.torch = torch
        self.process = subprocess.Popen([torch.python, HERE / "fork_server.py"], bufsize=0, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, start_new_session=True,
                                        env=clean_env({"LD_PRELOAD": str(preload)} if preload else None))
        atexit.register(self.process.kill)

    def _answer(self, timeout):
        """The next number, or None where it takes longer."""
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        line = self.process.stdout.readline()
        assert line, f"fork_server.py of PyTorch {self.torch.name} has ended: {self.process.wait()}"
        return int(line)

    def run(self, program, args, where, timeout, variables=None, stats=None):
        record, out, err = (pathlib.Path(where) / name for name in ("record.json", "stdout", "stderr"))
        for path in (out, err):
            path.write_bytes(b"")
        argv = [str(word) for word in (program_file(program), record, *args)]
        begin = time.monotonic()
        job = {"argv": argv, "cwd": str(where), "out": str(out), "err": str(err), "env": variables or {}}
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        pid = self._answer(HANG_S)
        assert pid, "fork_server.py does not answer"
        status = self._answer(timeout)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        hung = status is None
        if hung:
            status = self._answer(HANG_S)
        run = Run([self.torch.python, *argv], os.waitstatus_to_exitcode(status), out.read_text(errors="replace"),
                  err.read_text(errors="replace"), _json(record), _json(stats), time.monotonic() - begin)
        if hung:
            raise Hang(f"hang: still running after {timeout} s\n{run.describe()}")
        return run


@functools.cache
def _server(torch, preload=None):
    return Server(torch, preload)


plain_runs = {}


def plain(torch, program, *args, timeout=HANG_S, whole=False):
    """The run without swapnet. Kept: it is the same for every budget and every fetch path. `whole`: in a process of its
    own from the start, for what a test reads in its notes of the process; else PyTorch may have been imported before."""
    which = torch, program, args, whole
    if which not in plain_runs:
        with disk_dir() as where:
            if whole or LAUNCHER or program in WHOLE_PROCESS:
                run_ = start(torch, program, *args, where=where).finish(timeout)
            else:
                run_ = _server(torch).run(program, args, where, timeout)
            plain_runs[which] = _require_record(run_)
    return plain_runs[which]


def make(torch, program, *args, where, timeout=HANG_S):
    """A run without swapnet for the files that it makes, not for what it says."""
    where.mkdir(parents=True, exist_ok=True)
    if LAUNCHER:
        run = start(torch, program, *args, where=where).finish(timeout)
    else:
        run = _server(torch).run(program, args, where, timeout)
    assert run.rc == 0, run.describe()
    return run


def _forked(torch, program, args, where, budget, env, timeout):
    store, stats = where / "store", where / "stats.json"
    store.mkdir(parents=True, exist_ok=True)
    variables = {key: str(value) for key, value in (swapnet_env(budget, stats, store) | dict(env or {})).items()}
    del variables["LD_PRELOAD"]
    return _server(torch, LIBRARY).run(program, args, where, timeout, variables, stats)


def _may_fork(torch, program, env):
    if LAUNCHER or FORKS == "0" or program in WHOLE_PROCESS or "LD_PRELOAD" in (env or {}):
        return False
    if FORKS == "1" or forks is Forks.ALL:
        return True
    repeated = (torch, program) in started
    started.add((torch, program))
    return forks is Forks.REPEATED and repeated


@contextlib.contextmanager
def made_once(fill):
    """A function: the directory that fill(torch, directory) has filled for a PyTorch, at the first call."""
    made = {}
    with contextlib.ExitStack() as directories:
        def make(torch):
            if torch.name not in made:
                where = directories.enter_context(disk_dir())
                fill(torch, where)
                made[torch.name] = where
            return made[torch.name]
        yield make


@contextlib.contextmanager
def setting_up():
    """Swapped runs for what they leave behind, and for several tests: they are none of the starts of the one that comes first."""
    global forks
    before, forks = forks, Forks.ALL
    try:
        yield
    finally:
        forks = before


def run(torch, program, *args, where, budget, env=None, timeout=HANG_S):
    """A swapped run in the directory `where`, which is made if it is missing, however it ends."""
    where.mkdir(parents=True, exist_ok=True)
    if _may_fork(torch, program, env):
        return _forked(torch, program, args, where, budget, env, timeout)
    return start(torch, program, *args, where=where, budget=budget, env=env).finish(timeout)


def swapped(torch, program, *args, budget, env=None, timeout=HANG_S):
    with disk_dir() as where:
        return _require_record(run(torch, program, *args, where=where, budget=budget, env=env, timeout=timeout))


def both(torch, program, *args, budget, env=None, timeout=HANG_S):
    """Runs the program plainly and under swapnet, side by side (the tests' own time is mostly `import torch`), and
    checks that both ended well and recorded the same. Returns (plain run, swapped run)."""
    with disk_dir() as where:
        if _may_fork(torch, program, env):
            reference = plain(torch, program, *args, timeout=timeout)
            got = _forked(torch, program, args, where, budget, env, timeout)
        else:
            process = start(torch, program, *args, where=where, budget=budget, env=env)
            try:
                reference = plain(torch, program, *args, timeout=timeout)
            finally:
                got = process.finish(timeout)
    assert_same(reference, _require_record(got))
    return reference, got


def _require_record(run):
    assert run.rc == 0, run.describe()
    assert run.record is not None, f"no record written\n{run.describe()}"
    return run


def assert_same(reference, run):
    """Equal bits, name by name, and nothing on stdout that the program did not write. Notes are not compared."""
    want, got = reference.record["values"], run.record["values"]
    assert want, "the program recorded nothing"
    different = [name for name in want if got.get(name) != want[name]]
    different += [name for name in got if name not in want]
    assert not different, f"different from the plain run: {different[:20]}\n{run.describe()}"
    assert run.stdout == reference.stdout, run.describe()
    assert run.rc == reference.rc, run.describe()


def assert_streamed(run, mapped=False):
    """The library did its work: a program that ran with swapnet off would have equal bits as well. With `mapped`, the
    weights of an operator that are too many for the pool may have been read through their mapping instead."""
    stats = run.stats
    assert stats is not None, f"no stats file\n{run.describe()}"
    missing = STATS_KEYS - stats.keys()
    assert not missing, f"stats lack {sorted(missing)}\n{run.describe()}"
    if mapped:
        assert stats["swap_ins"] + stats["fallback_reads"] > 0, run.describe()
    else:
        assert stats["swap_ins"] > 0 and stats["streamed_bytes"] > 0, run.describe()
    assert stats["read_errors"] == 0, run.describe()


def assert_bounded(run):
    stats = run.stats
    assert stats["over_budget_bytes"] == 0, run.describe()
    assert stats["peak_resident_bytes"] <= stats["budget_bytes"], run.describe()


def _built(name, *libraries):
    library = pathlib.Path(session_dir(name)) / f"{name}.so"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, HERE / f"{name}.c", *libraries],
                   check=True)
    return library


@functools.cache
def coroutines():
    """A library whose coroutines store into memory."""
    return _built("coroutines")


@functools.cache
def small_sockets():
    """A library to preload, with which sockets hold what Linux lets them by default."""
    return _built("small_sockets", "-ldl")


@functools.cache
def waits_in_constructor():
    """A library whose constructor waits for a thread that calls all that swapnet stands before."""
    return _built("waits_in_constructor")


@functools.cache
def hostile_calls():
    """A library that calls all that swapnet stands before with NULL and extreme arguments."""
    return _built("hostile_calls")


@functools.cache
def alloc_meter():
    """Builds alloc_meter.c, a preload that only counts tensor bytes, once per session."""
    return _built("alloc_meter", "-ldl")


@functools.cache
def no_memory_for_part():
    """Builds no_memory_for_part.c, a preload that lets an allocation fail at a given point."""
    return _built("no_memory_for_part", "-ldl")


@functools.cache
def die_at():
    """Builds die_at.c, a preload that kills a process at a step of its protocol, once per session."""
    return _built("die_at", "-ldl")


@functools.cache
def other_version():
    """Builds other_version.c, a preload that makes swapnetd one of another version, once per session."""
    return _built("other_version", "-ldl")


@functools.cache
def malloc_meter():
    """Builds malloc_meter.c, a preload that counts what the library allocates for itself, once per session."""
    return _built("malloc_meter")


@functools.cache
def zero_pagemap():
    """Builds zero_pagemap.c, a preload whose page map says nothing, once per session."""
    return _built("zero_pagemap")


@functools.cache
def zero_copy():
    """Builds zero_copy.c, a library for programs/zero_copy.py, once per session."""
    return _built("zero_copy")


def _built_with(torch, name):
    done = subprocess.run([torch.python, REPO / "cmake" / "torch_info.py"], capture_output=True, text=True, check=True)
    info = dict(line.split("=", 1) for line in done.stdout.splitlines())
    library = pathlib.Path(session_dir(name)) / f"{name}-{torch.name}.so"
    includes = [flag for path in info["INCLUDES"].split(";") for flag in ("-isystem", path)]
    standard = "17" if info["MAJOR"] == "1" else "20"
    subprocess.run(["g++", "-O1", f"-std=c++{standard}", "-DNDEBUG", "-Wall", "-shared", "-fPIC", "-fopenmp", *includes,
                    f"-D_GLIBCXX_USE_CXX11_ABI={info['CXX11_ABI']}", "-o", library, HERE / f"{name}.cpp",
                    info["TORCH_CPU"], info["C10"]], check=True)
    return library


@functools.cache
def stress(torch):
    """Builds stress.cpp, a library for programs/stress.py, against that PyTorch, once per session."""
    return _built_with(torch, "stress")


@functools.cache
def cancelled(torch):
    """Builds cancelled.cpp, a library for programs/cancelled.py, against that PyTorch, once per session."""
    return _built_with(torch, "cancelled")


@functools.cache
def fork_in_handler():
    """Builds fork_in_handler.c, a preload for programs/fork_in_handler.py, once per session."""
    return _built("fork_in_handler", "-ldl")


@functools.cache
def child_of_vfork():
    """Builds child_of_vfork.c, a library for programs/children.py, once per session."""
    return _built("child_of_vfork")


@functools.cache
def hurry():
    """Builds hurry.c, a preload that has time pass faster for C++, once per session."""
    return _built("hurry", "-ldl")


@functools.cache
def _patient():
    """Builds patient.c, a preload with which swapnetctl waits long for an answer, once per session."""
    return _built("patient", "-ldl")


def patience(args):
    """The variables with which swapnetctl with these arguments waits for others as long as a busy machine may take. Programs that
    `run` starts would have them, too, and `top` would show what there is as rarely."""
    if LAUNCHER or not args or args[0] not in ("status", "list", "set", "total", "drain"):
        return {}
    return {"LD_PRELOAD": str(_patient()), "ASAN_OPTIONS": "verify_asan_link_order=0"}


@functools.cache
def uring_read():
    """Builds uring_read.c, a library for programs/read_into.py, once per session."""
    return _built("uring_read", "-luring")


@functools.cache
def in_openmp():
    """Builds in_openmp.c, a library for programs/openmp.py, once per session."""
    return _built("in_openmp", "-fopenmp")


@functools.cache
def uring_refused():
    """Why io_uring_setup (425 on every architecture) fails here, or None."""
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)
    fd = libc.syscall(425, 4, params)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    os.close(fd)
    return None


def read_in_a_pass(run, passes=4):
    """Bytes that a pass of the program reads from the disk once there is a plan: the average of so many passes in a row, of those that
    read least. A plan comes when it comes, and where another one takes its place, what that keeps is read once more."""
    read = run.record["notes"]["read_bytes"][1:]  # what there is to read is known then
    return min(after - before for before, after in zip(read, read[passes:])) / passes


@functools.cache
def measured(torch, program, *args, timeout=HANG_S):
    """The notes of a plain run under the meter: invariant 3 defines budgets by what it counts."""
    with disk_dir() as where:
        run = _require_record(start(torch, program, *args, where=where, preload=alloc_meter()).finish(timeout))
    return run.record["notes"]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of a model as invariant 3 names them: a activations, e streamable weights, s all weights."""
    activations: int
    streamable: int
    weights: int
    largest: int

    def budget_mib(self, share):
        """a + (s - e) + share * e, rounded up to whole MiB as a user would write it."""
        need = self.activations + (self.weights - self.streamable) + share * self.streamable
        return -(-int(need) // MIB)

    def kept(self, budget_bytes):
        """Bytes of streamable weights that fit beside the activations and small tensors when nothing is staged."""
        return max(0, min(self.streamable, budget_bytes - self.activations - (self.weights - self.streamable)))


def sizes(torch, program, *args, timeout=HANG_S):
    notes = measured(torch, program, *args, timeout=timeout)
    return Sizes(notes["activation_bytes"], notes["streamable_bytes"], notes["weight_bytes"], notes["largest_bytes"])
