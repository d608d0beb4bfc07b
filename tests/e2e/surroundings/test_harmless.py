"""Processes without PyTorch must not notice: same output, exit status, threads, descriptors and time."""
import os
import shutil
import statistics
import subprocess
import time

import pytest

import harness

PYTHON = harness.TORCH113.python
LIST_SELF = "import os; print(len(os.listdir('/proc/self/task')), sorted(os.listdir('/proc/self/fd'), key=int))"
SPAWN = """
import os, subprocess
print(subprocess.run(['sh', '-c', 'echo child; exit 3'], capture_output=True))
pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'echo spawned; exit 4'], os.environ)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pid = os.fork()
if pid == 0:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os.execvp('sh', ['sh', '-c', 'echo $0 replaced; exit 6'])
"""
COMMANDS = {
    "bash": ["bash", "-c", "echo out; echo err >&2; for i in 1 2 3; do /bin/echo $i; done | sort -r; exit 3"],
    # No pipe and no child: bash's own descriptors would change while they are counted.
    "bash-self": ["bash", "-c", "here=(/proc/$$/task/* /proc/$$/fd/*); echo ${#here[@]}"],
    "git": ["git", "-c", "init.defaultBranch=x", "init", "."],
    "git-status": ["git", "-C", str(harness.REPO), "rev-parse", "--git-dir"],
    "node": ["node", "-e", "const fs = require('fs'); console.log([1, 2].map(x => x * 2), "
             "fs.readdirSync('/proc/self/fd').length, fs.readdirSync('/proc/self/task').length); process.exit(2)"],
    "node-spawn": ["node", "-e", "console.log(require('child_process').spawnSync('sh', ['-c', 'echo x; exit 2']))"],
    "python": [PYTHON, "-c", "import sys, json, ssl; print(sum(range(1000))); print('e', file=sys.stderr); exit(4)"],
    "python-self": [PYTHON, "-c", LIST_SELF],
    "python-spawn": [PYTHON, "-c", SPAWN],
    "python-numpy": [PYTHON, "-c", "import numpy; print(numpy.ones((512, 512)) @ numpy.ones(512))"],
    "crash": [PYTHON, "-c", "import ctypes; ctypes.string_at(8)"],
}
SETTINGS = {
    "good": {"SWAPNET_BUDGET": "64M"},
    # Even settings that are wrong are no business of a process without PyTorch.
    "bad": {"SWAPNET_BUDGET": "nonsense", "SWAPNET_NO_SUCH": "1", "SWAPNET_STORE": "/proc/none", "SWAPNET_VERBOSE": "1"},
}


def _run(command, cwd, extra=None):
    cwd.mkdir()
    extra = dict(extra or {})
    process = harness.Process(command, extra, cwd=cwd)
    return process.finish()


def _need(command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")


def _preload(settings, disk):
    return {"LD_PRELOAD": str(harness.LIBRARY), "SWAPNET_STATS": str(disk / "stats.json"),
            "SWAPNET_TRACE": str(disk / "trace.json")} | settings


def _without_pids(text, cwd):
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("pid:")]
    return "\n".join(lines).replace(str(cwd), "CWD")


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", COMMANDS)
def test_same_behaviour(name, settings, disk):
    command = COMMANDS[name]
    _need(command)
    assert harness.LIBRARY.exists(), f"{harness.LIBRARY} is not there: ld.so would only warn"
    plain = _run(command, disk / "plain")
    run = _run(command, disk / "with", _preload(SETTINGS[settings], disk))
    assert run.rc == plain.rc, run.describe()
    assert _without_pids(run.stdout, disk / "with") == _without_pids(plain.stdout, disk / "plain"), run.describe()
    assert _without_pids(run.stderr, disk / "with") == _without_pids(plain.stderr, disk / "plain"), run.describe()
    assert sorted(os.listdir(disk)) == ["plain", "with"], "a process without PyTorch wrote a file"


TIMED = {
    "bash": ["bash", "-c", "for i in 1 2 3 4 5 6 7 8; do /bin/true; done"],
    "git": ["git", "--version"],
    "node": ["node", "-e", "0"],
    "python": [PYTHON, "-c", "import json"],
}


def _seconds(command, env):
    start = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize("name", TIMED)
def test_same_time(name, disk):
    """Interleaved, medians of 11. The bound is wide: it is to catch work at start, not noise."""
    _need(TIMED[name])
    plain_env = harness.clean_env()
    env = harness.clean_env(_preload(SETTINGS["good"], disk))
    pairs = [(_seconds(TIMED[name], plain_env), _seconds(TIMED[name], env)) for _ in range(11)]
    plain, loaded = (statistics.median(times) for times in zip(*pairs))
    harness.in_time(loaded <= 1.5 * plain + 0.030, f"{name}: {plain * 1e3:.1f} ms plain, {loaded * 1e3:.1f} ms with swapnet")


LIB_DIRS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
OTHER_PRELOADS = {
    "jemalloc": ["libjemalloc.so.2"],
    "mimalloc": ["libmimalloc.so.2"],
    "tcmalloc": ["libtcmalloc_minimal.so.4"],
    "faketime": ["faketime/libfaketimeMT.so.1"],
    "fiu": ["fiu/fiu_run_preload.so", "fiu/fiu_posix_preload.so"],
}


def _other_preload(name):
    """The files of another preload library, as LD_PRELOAD wants them."""
    found = []
    for file in OTHER_PRELOADS[name]:
        paths = [path for directory in LIB_DIRS if os.path.exists(path := f"{directory}/{file}")]
        if not paths:
            pytest.skip(f"{file} is not installed (Debian: libjemalloc2, libmimalloc2.0, libtcmalloc-minimal4, libfaketime, fiu-utils)")
        found.append(paths[0])
    return found


@pytest.mark.halved
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("name", OTHER_PRELOADS)
def test_beside_another_preload(torch, name, order):
    """On either side of ours: three that replace malloc, one that shifts the clock, one in front of system calls."""
    if name == "fiu" and torch.name == "1.13":
        pytest.skip("libfiu 1.1 deadlocks while Debian's OpenBLAS starts its threads, with or without swapnet")
    other, ours = _other_preload(name), [str(harness.LIBRARY)]
    env = {"LD_PRELOAD": " ".join(other + ours if order == "before" else ours + other), "FAKETIME": "-1d"}
    run = harness.both(torch, "infer", "mlp", budget=48, env=env)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("percent", ["5", "50"])
def test_failing_maps(torch213, percent):
    """No memory, from outside: libfiu lets mmap fail at random. What cannot be mapped stays where it is."""
    env = {"LD_PRELOAD": " ".join(_other_preload("fiu") + [str(harness.LIBRARY)])}
    reference, run = harness.both(torch213, "no_maps", percent, budget=48, env=env)
    assert run.record["notes"]["failing"] and not reference.record["notes"]["failing"], run.describe()
    harness.assert_streamed(run)


STATIC = "#include <stdio.h>\nint main(void) { puts(\"static\"); return 9; }\n"


def test_static_program(disk):
    """Has no loader that would read LD_PRELOAD."""
    source, program = disk / "static.c", disk / "static"
    source.write_text(STATIC)
    subprocess.run(["cc", "-static", "-o", program, source], check=True)
    run = _run([program], disk / "with", _preload(SETTINGS["good"], disk))
    assert (run.rc, run.stdout, run.stderr) == (9, "static\n", ""), run.describe()
    assert not (disk / "stats.json").exists()


CUDA = """
#include <stdio.h>
int cudaHostRegister(void *p, size_t bytes, unsigned flags);
int cudaHostUnregister(void *p);
char bytes[8192];
int main(void)
{
    int twice[] = {cudaHostRegister(bytes, 8192, 0), cudaHostRegister(bytes, 8192, 0)};
    int gone[] = {cudaHostUnregister(bytes), cudaHostUnregister(bytes)};
    printf("%d %d %d %d\\n", twice[0], twice[1], gone[0], gone[1]);
}
"""


def test_cuda_program(disk):
    """Linked with a CUDA runtime, and without PyTorch: its calls come through, and so do their errors."""
    source, program = disk / "cuda.c", disk / "cuda"
    runtime = harness.BUILD / "tests" / "fakes"
    source.write_text(CUDA)
    subprocess.run(["cc", "-o", program, source, runtime / "libcudart.so.12", f"-Wl,-rpath,{runtime}"], check=True)
    for where, env in {"plain": {}, "with": _preload(SETTINGS["good"], disk)}.items():
        run = _run([program], disk / where, env)
        assert (run.rc, run.stdout, run.stderr) == (0, "0 712 0 713\n", ""), run.describe()


def test_no_cuda(disk):
    """Whoever finds our functions where there is no runtime gets the error of one that is not initialised."""
    show = "import ctypes; c = ctypes.CDLL(None); print(c.cudaHostRegister(None, 1, 0), c.cuMemHostUnregister(None))"
    run = _run([PYTHON, "-c", show], disk / "with", _preload(SETTINGS["good"], disk))
    assert (run.rc, run.stdout, run.stderr) == (0, "3 3\n", ""), run.describe()


KEYS = """
#include <pthread.h>
#include <stdio.h>
static pthread_key_t keys[2000];
static void *look(void *n)
{
    printf("%d keys, the first is %p in a new thread\\n", *(int *)n, pthread_getspecific(keys[0]));
    return n;
}
int main(void)
{
    pthread_t t;
    int n = 0;
    while (n < 2000 && !pthread_key_create(&keys[n], 0))
        n++;
    return pthread_create(&t, 0, look, &n) || pthread_join(t, 0);
}
"""


def test_all_keys_are_taken(disk):
    """By a program that starts threads then: none of its keys has a value of ours."""
    source, program = disk / "keys.c", disk / "keys"
    source.write_text(KEYS)
    subprocess.run(["cc", "-o", program, source, "-lpthread"], check=True)
    plain = _run([program], disk / "plain")
    run = _run([program], disk / "with", _preload(SETTINGS["good"], disk))
    assert plain.rc == 0 and "(nil)" in plain.stdout, plain.describe()
    assert (run.rc, run.stdout, run.stderr) == (0, plain.stdout, ""), run.describe()


def test_constructor_that_waits_for_a_thread(disk):
    """The loader holds its lock while a constructor runs: a hook that looked something up then would never return."""
    show = f"import ctypes; print(ctypes.CDLL({str(harness.waits_in_constructor())!r}).calls_that_failed())"
    for where, env in {"plain": {}, "with": _preload(SETTINGS["good"], disk)}.items():
        run = _run([PYTHON, "-c", show], disk / where, env)
        assert (run.rc, run.stdout, run.stderr) == (0, "0\n", ""), run.describe()


def test_needs_only_libc():
    """Every process of the user maps this library: it may pull in nothing (DESIGN.md, D10)."""
    text = subprocess.run(["readelf", "-d", harness.LIBRARY], capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line]
    allowed = ("libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux")
    assert needed and all(name.startswith(allowed) for name in needed), needed


@pytest.mark.by_turns
def test_no_thread_before_the_first_tensor(torch, disk):
    """`import torch` alone is not a reason to start anything either."""
    show = "import torch, os; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))"
    plain = _run([torch.python, "-c", show], disk / "plain")
    run = _run([torch.python, "-c", show], disk / "with", _preload(SETTINGS["good"], disk))
    assert (run.rc, run.stdout, run.stderr) == (plain.rc, plain.stdout, plain.stderr), run.describe()


# For a set-user-ID program ld.so takes preloads from its own directories only, and only those marked set-user-ID: there,
# in a mount namespace of its own, the library is put. $1 the directory, $2 the build's lib, $3 the record, $4 the budget.
SECURE = """
set -e
mkdir -p upper work
mount -t tmpfs swapnet-test "$PWD/upper"
mkdir upper/up upper/work
mount -t overlay swapnet-test -o "lowerdir=$1,upperdir=$PWD/upper/up,workdir=$PWD/upper/work" "$1"
cp "$2/libswapnet.so" "$1"
cp -r "$2/swapnet" "$1"
chmod u+s "$1/libswapnet.so"
cp -L "$3" upper/python3
chown root upper/python3
shift 3
for mode in 0755 4755; do
    chmod $mode upper/python3
    setpriv --reuid 65534 --regid 65534 --clear-groups env LD_PRELOAD=libswapnet.so SWAPNET_BUDGET=64M \
        SWAPNET_STORE="$PWD/store" SWAPNET_STATS="$PWD/store/$mode.json" "$PWD/upper/python3" "$@"
done
"""
SECURE_PROGRAM = """
import torch
with open("/proc/self/maps") as maps:
    print("libswapnet" in maps.read(), float(torch.ones(300, 300).sum()))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mark a program set-user-ID")
def test_steps_aside_in_a_set_user_id_program(disk):
    directory = next(path for path in LIB_DIRS if os.path.isdir(path))
    python = os.path.realpath(PYTHON)
    os.chmod(disk, 0o755)
    (disk / "store").mkdir()
    os.chmod(disk / "store", 0o777)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SECURE, "sh", directory, harness.LIBRARY.parent, python, "-c", SECURE_PROGRAM],
        cwd=disk, env=harness.clean_env(), capture_output=True, text=True)
    if done.stderr.startswith(("mount:", "unshare:")):
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    # Loaded both times: as an ordinary program it starts, set-user-ID it does not, and says nothing.
    assert done.stdout == "True 90000.0\nTrue 90000.0\n" and done.stderr == "", (done.stdout, done.stderr)
    assert [path.name for path in (disk / "store").glob("*.json")] == ["0755.json"]


CPUS = sorted(os.sched_getaffinity(0))


BIND = {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}


@pytest.mark.by_turns
@pytest.mark.parametrize("binding, when", [
    pytest.param(BIND, "late", id="bind"), pytest.param(BIND, "early", id="bind-early"),
    pytest.param({"OMP_PLACES": "threads"}, "late", id="places"),
    pytest.param({"GOMP_CPU_AFFINITY": " ".join(map(str, CPUS))}, "late", id="gomp"), pytest.param({}, "late", id="none")])
def test_openmp_binds_the_program(torch, binding, when):
    """OpenMP binds the program's threads to a processor each; swapnet's are none of them, and would read only while the
    thread that started them does not compute. Where the user binds all, also before most of swapnet's are there, all are bound."""
    if len(CPUS) < 2:
        pytest.skip("one processor")
    with harness.disk_dir() as where:
        plain, swapped = (harness.start(torch, "bound", CPUS[-1], when, where=where / name, budget=budget, env=binding).finish()
                          for name, budget in (("plain", None), ("swapped", 24)))
    assert plain.record and swapped.record, (plain.describe(), swapped.describe())
    harness.assert_same(plain, swapped)
    harness.assert_streamed(swapped)
    notes = swapped.record["notes"]
    assert notes["main"] == plain.record["notes"]["main"] == (CPUS[:1] if binding else CPUS)
    ours = [(name, where) for name, where in notes["threads"] if name.startswith("swn-")]
    assert "swn-fetch" in dict(ours) and all(where == (CPUS if when == "late" else CPUS[-1:]) for _, where in ours), notes
    assert all(where == CPUS[-1:] for _, where in notes["moved"]), notes
