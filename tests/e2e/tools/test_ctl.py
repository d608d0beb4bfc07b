"""swapnetctl as people and scripts use it: exit codes, the environment `run` makes, what `status` shows.

Needs a build (SWAPNET_BUILD) but no PyTorch: what runs under the library here is no PyTorch program, and where a
process with a status socket is wanted, a thread of this test plays it.
"""
import contextlib
import csv
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

import harness

CTL = harness.BUILD / "bin" / "swapnetctl"
FIELDS = ["pid", "name", "budget_bytes", "demand_bytes", "resident_bytes", "peak_resident_bytes", "urgency", "state",
          "streamed_bytes", "swap_ins", "stall_ns", "fetch_path", "torch_version", "unified",
          "device_budget_bytes", "device_resident_bytes", "device_kept_bytes"]


def ctl(*args, env=None, cwd=None, **options):
    """It waits long for an answer of what plays a process here, unless the environment preloads something else."""
    return subprocess.run([CTL, *map(str, args)], env=harness.clean_env(harness.patience(args) | (env or {})), cwd=cwd,
                          capture_output=True, text=True, timeout=harness.HANG_S, stdin=subprocess.DEVNULL, **options)


def run(*args, env=None, **options):
    return ctl("run", "--budget", "64M", *args, env=env, **options)


def fails(result, code, *parts):
    """One line on stderr with all of `parts` in it, nothing on stdout."""
    assert result.returncode == code, result
    assert result.stdout == ""
    assert result.stderr.startswith("swapnetctl: ") and result.stderr.count("\n") == 1, result.stderr
    for part in parts:
        assert part in result.stderr
    return True


# ---- run ----

@pytest.mark.parametrize("args, part", [
    ((), "no command"),
    (("--",), "no command"),
    (("--nonsense", "true"), "--nonsense"),
    (("-x", "true"), "'-x'"),
    (("--store",), "--store"),
    (("--store", "", "true"), "empty"),
    (("--fetch", "mmap", "true"), "auto, uring, pread or buffered"),
    (("--budget", "12x", "true"), "budget '12x' is not a size: use e.g. 256M or 2G"),
    (("--budget", "50%", "true"), "swapnetctl run --budget N% --profile FILE"),
    (("--memory", "1M", "true"), "at least 4M"),
    (("--budget", "3M", "true"), "4 MiB"),
    (("--budget", "99999999T", "true"), "too large"),
    (("--library", "/nonexistent/libswapnet.so", "true"), "/nonexistent/libswapnet.so"),
    (("--library", "/tmp", "true"), "/tmp"),
    (("--name", "two words", "true"), "without spaces"),
    (("--name", "12", "true"), "a process's number"),
    (("--urgency", "1e3", "true"), "0.001 to 1000"),
    (("--daemon", "on", "true"), "auto, off or the absolute path"),
    (("--unified", "yes", "true"), "pageable, registered or managed"),
])
def test_run_refuses(args, part):
    assert fails(run(*args), 125, part)


def test_run_needs_a_budget():
    assert fails(ctl("run", "true"), 125, "--budget")
    assert ctl("run", "true", env={"SWAPNET_BUDGET": "64M"}).returncode == 0


def profile_of(path, kind="model"):
    """80 MiB of weights in two, one of 32 KiB that never leaves, and 20 MiB besides."""
    layers = [{"name": f"l{i}", "bytes": size, "depth": 1} for i, size in enumerate((30 << 20, 50 << 20, 32768))]
    model = {"schema": 1, "kind": "model", "name": "m", "other_bytes": 20 << 20, "layers": layers}
    device = {"schema": 1, "kind": "device", "name": "d", "coefficients": {"alpha_s_per_byte": 1e-9}}
    path.write_text(json.dumps(model if kind == "model" else device))
    return path


def test_run_with_a_share(tmp_path):
    """Invariant 3: b = a + (s - e) + p e."""
    profile = profile_of(tmp_path / "p.json")
    for text, weights in (("50%", 40 << 20), ("12.5%", 10 << 20), ("100%", 80 << 20)):
        env = environment(ctl("run", "--budget", text, "--profile", profile, "--", "env", "-0"))
        assert env["SWAPNET_BUDGET"] == str((20 << 20) + 32768 + weights)
        assert "SWAPNET_PROFILE" not in env
    for args, part in (
            (("--budget", "0%"), "1% to 100%"), (("--budget", "5x%"), "1% to 100%"), (("--budget", "64M"), "--budget 50%"),
            (("--budget", "50%", "--profile", "/nonexistent"), "/nonexistent"),
            (("--budget", "50%", "--profile", profile_of(tmp_path / "d.json", "device")), "no profile of a model")):
        given = args if "--profile" in args else (*args, "--profile", profile)
        assert fails(ctl("run", *given, "true"), 125, part)


def test_run_not_found():
    assert fails(run("/nonexistent/program"), 127, "/nonexistent/program")
    assert fails(run("--", "no-such-program-anywhere"), 127, "no-such-program-anywhere")


def test_run_not_executable(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("just text")
    assert fails(run(plain), 126, str(plain))
    assert fails(run(tmp_path), 126, str(tmp_path))


@pytest.mark.parametrize("code", [0, 1, 2, 77, 125, 255])
def test_run_passes_the_exit_code_on(code):
    result = run("sh", "-c", f"exit {code}")
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "")


def test_run_passes_a_signal_on():
    assert run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_run_leaves_other_programs_alone():
    """Not PyTorch: no output of ours, whatever the settings."""
    result = run("--strict", "--verbose", "--", "sh", "-c", "echo out; echo err >&2")
    assert (result.returncode, result.stdout, result.stderr) == (0, "out\n", "err\n")


def environment(result):
    assert result.returncode == 0, result
    return dict(line.split("=", 1) for line in result.stdout.split("\0") if line)


def test_run_sets_variables():
    env = environment(ctl("run", "-b", "1.5G", "-s", "/s", "--stats", "st.json", "--trace=/t", "--fetch", "pread",
                          "--strict", "--verbose", "--device-budget", "2G", "--unified", "off", "--name", "camera",
                          "--urgency", "2.5", "--daemon", "/d.sock", "--", "env", "-0",
                          env={"SWAPNET_STORE": "/other"}))
    ours = {k: v for k, v in env.items() if k.startswith("SWAPNET")}
    assert ours == {"SWAPNET_BUDGET": "1.5G", "SWAPNET_STORE": "/s", "SWAPNET_STATS": "st.json",
                    "SWAPNET_TRACE": "/t", "SWAPNET_FETCH": "pread", "SWAPNET_STRICT": "1", "SWAPNET_VERBOSE": "1",
                    "SWAPNET_DEVICE_BUDGET": "2G", "SWAPNET_UNIFIED": "off", "SWAPNET_NAME": "camera",
                    "SWAPNET_URGENCY": "2.5", "SWAPNET_DAEMON": "/d.sock"}
    assert env["LD_PRELOAD"] == str(harness.LIBRARY.resolve())


def test_run_sets_nothing_it_was_not_told():
    env = environment(run("env", "-0"))
    assert {k for k in env if k.startswith("SWAPNET")} == {"SWAPNET_BUDGET"}


def test_run_options_end_at_the_command():
    assert run("echo", "--budget", "12x").stdout == "--budget 12x\n"
    assert run("--", "echo", "--", "-x").stdout == "-- -x\n"


def test_run_keeps_the_preload_list():
    library = str(harness.LIBRARY.resolve())
    for before in ("libm.so.6", "libm.so.6 libdl.so.2", "libm.so.6:libdl.so.2"):
        assert environment(run("env", "-0", env={"LD_PRELOAD": before}))["LD_PRELOAD"] == f"{library}:{before}"
    for before in (library, f"{library}:libm.so.6", f"{library} libm.so.6"):
        assert environment(run("env", "-0", env={"LD_PRELOAD": before}))["LD_PRELOAD"] == before
    assert environment(run("env", "-0", env={"LD_PRELOAD": ""}))["LD_PRELOAD"] == library


def test_run_nested():
    inner = environment(run(CTL, "run", "--budget", "32M", "env", "-0"))
    assert inner["SWAPNET_BUDGET"] == "32M"
    assert inner["LD_PRELOAD"] == str(harness.LIBRARY.resolve())


def test_run_library_elsewhere(tmp_path):
    """By option, by variable, beside a moved binary; always absolute, whatever the working directory."""
    copy = tmp_path / "libswapnet.so"
    shutil.copy(harness.LIBRARY, copy)
    real = str(copy.resolve())
    assert environment(run("--library", "libswapnet.so", "env", "-0", cwd=tmp_path))["LD_PRELOAD"] == real
    by_variable = run("env", "-0", env={"SWAPNET_LIBRARY": real})
    assert environment(by_variable)["LD_PRELOAD"] == real
    for name in ("with space", "with:colon"):
        odd = tmp_path / name
        odd.mkdir()
        shutil.copy(harness.LIBRARY, odd)
        assert fails(run("--library", odd / "libswapnet.so", "true"), 125, "LD_PRELOAD cannot name it")


def test_run_without_a_library(tmp_path):
    (tmp_path / "bin").mkdir()
    moved = tmp_path / "bin" / "swapnetctl"
    shutil.copy(CTL, moved)
    result = subprocess.run([moved, "run", "--budget", "64M", "true"], env=harness.clean_env(), capture_output=True,
                            text=True, timeout=harness.HANG_S)
    assert fails(result, 125, str(tmp_path / "lib" / "libswapnet.so"), "--library")


# ---- plan ----

def test_plan_says_why_it_cannot_cut(tmp_path):
    """2^62 bytes are more than any model has."""
    layers = [{"name": f"l{i}", "bytes": 1 << 48, "depth": 1} for i in range((1 << 14) + 1)]
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"schema": 1, "kind": "model", "name": "m", "other_bytes": 0, "layers": layers}))
    done = ctl("plan", "-t", "100G", path)
    assert done.returncode == 1 and done.stdout == "" and "cannot cut it into blocks: it has too many" in done.stderr, done
    with_times = [layer | {"compute_s": 0.001} for layer in layers]
    path.write_text(json.dumps({"schema": 1, "kind": "model", "name": "m", "other_bytes": 0, "layers": with_times,
                                "coefficients": {"alpha_s_per_byte": 1e-9}}))
    for command in (("plan", "-b", "100G"), ("table",)):
        done = subprocess.run([CTL.parent / "swapnet-partition", *command, path], capture_output=True, text=True, timeout=harness.HANG_S)
        assert done.returncode == 5 and done.stdout == "" and "cut into blocks: it has too many" in done.stderr, done


# ---- status ----

class Fake:
    """Answers at <runtime>/swapnet/<pid>.sock as a swapnet process does; `answer` None: accepts and stays silent."""

    def __init__(self, runtime, pid, answer):
        directory = runtime / "swapnet"
        directory.mkdir(mode=0o700, exist_ok=True)
        self.requests = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(directory / f"{pid}.sock"))
        self.socket.listen(8)
        if answer is not None:
            self.answer = (answer if isinstance(answer, str) else json.dumps(answer)) + "\n"
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.socket.accept()
            with client, client.makefile("rb") as stream:
                self.requests.append(json.loads(stream.readline()))
                client.sendall(self.answer.encode())


@pytest.fixture
def runtime(tmp_path):
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    return path


def status(runtime, *args, impatient=False, **options):
    env = {"XDG_RUNTIME_DIR": str(runtime)} | ({"LD_PRELOAD": ""} if impatient else {})
    return ctl("status", *args, env=env, **options)


def stats(pid, **changes):
    document = {"schema": 1, **dict.fromkeys(harness.STATS_KEYS - {"schema"}, 0)}
    return document | {"pid": pid, "name": "python3", "state": "running", "budget_bytes": 268435456,
                       "demand_bytes": 575000000, "resident_bytes": 1, "peak_resident_bytes": 2,
                       "streamed_bytes": 1572864, "swap_ins": 7, "stall_ns": 1500000000,
                       "fetch_path": "io_uring+O_DIRECT", "torch_version": None, "unified": "none", "urgency": 2.5} | changes


def ours(document, *pids):
    """The entries of the fakes; real processes of this machine may be in /run/swapnet as well."""
    return [p for p in document["processes"] if p["pid"] in pids]


def test_status_of_nothing(runtime):
    result = status(runtime, "-o", "json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert list(document) == ["schema", "total_bytes", "processes"]
    assert document["schema"] == 1 and document["total_bytes"] is None
    assert isinstance(document["processes"], list)
    if not os.path.isdir("/run/swapnet"):
        assert document["processes"] == []
    assert status(runtime).stdout.split()[:2] == ["PID", "NAME"]
    assert status(runtime, "--output=csv").stdout.splitlines()[0] == ",".join(FIELDS)
    assert list(runtime.iterdir()) == []  # looking makes no directory


def test_status_without_runtime_directory():
    assert ctl("status", env={"XDG_RUNTIME_DIR": ""}).returncode == 0
    assert ctl("status", env={"XDG_RUNTIME_DIR": "/nonexistent"}).returncode == 0


def test_status_json(runtime):
    fake = Fake(runtime, 900002, stats(900002))
    Fake(runtime, 900001, stats(900001, name='a "b", c', torch_version="2.6.0", future_field=[1, 2]))
    for command in ("status", "list"):
        result = ctl(command, "-o", "json", env={"XDG_RUNTIME_DIR": str(runtime)})
        assert (result.returncode, result.stderr) == (0, "")
        first, second = ours(json.loads(result.stdout), 900001, 900002)
        assert list(first) == list(second) == FIELDS
        assert (first["pid"], first["name"], first["torch_version"]) == (900001, 'a "b", c', "2.6.0")
        assert second == {k: stats(900002)[k] for k in FIELDS}
        assert all(isinstance(second[k], int) for k in FIELDS if k.endswith("_bytes") or k.endswith("_ns"))
    assert fake.requests == [{"op": "status"}] * 2


def test_status_csv_and_table(runtime):
    Fake(runtime, 900001, stats(900001, name='a "b", c\n\x1b[31m'))
    rows = csv.DictReader(io.StringIO(status(runtime, "-o", "csv", "900001").stdout))
    row, = rows
    assert list(row) == FIELDS
    assert row["name"] == 'a "b", c??[31m'
    assert (row["budget_bytes"], row["urgency"], row["torch_version"]) == ("268435456", "2.5", "")
    Fake(runtime, 900003, stats(900003, urgency=0.001))
    Fake(runtime, 900004, stats(900004, urgency=12.345))
    rows = csv.DictReader(io.StringIO(status(runtime, "-o", "csv", "900003", "900004").stdout))
    assert [row["urgency"] for row in rows] == ["0.001", "12.345"]
    table = status(runtime, "900001").stdout
    assert "\x1b" not in table and len(table.splitlines()) == 2
    Fake(runtime, 900002, stats(900002, device_kept_bytes=3 << 20))
    line = status(runtime, 900002).stdout.splitlines()[2]
    assert line.split() == "beyond its budgets: 3.0 MiB of weights that a device keeps for good".split()
    assert "256.0 MiB" in table and "548.4 MiB" in table and "1.500 s" in table and "io_uring+O_DIRECT" in table


def test_a_daemon_with_very_many(runtime):
    """As many processes as it may be told to serve."""
    many = [{"pid": 1000000 + i, "name": "n" * 63, "uid": 0, "budget_bytes": 1 << 40, "counted_bytes": 1 << 40,
             "set_budget_bytes": 1 << 40, "minimum_bytes": 1 << 40, "demand_bytes": 1 << 40, "weight_bytes": 1 << 40,
             "resident_bytes": 1 << 40, "latency_s": 0.12345678901234567, "urgency": 0.12345678901234567,
             "state": "shrinking"} for i in range(4096)]
    Fake(runtime, "swapnetd", {"schema": 1, "total_bytes": 1, "leased_bytes": 1, "policy": "eq1", "processes": many})
    result = status(runtime, "-o", "json")
    assert result.returncode == 0 and len(json.loads(result.stdout)["processes"]) >= 4096, result.stderr

    def most_memory(times):
        process = subprocess.Popen([CTL, "top", "-o", "csv", "-d", "0.1", "-n", str(times)], stdout=subprocess.DEVNULL,
                                   env=harness.clean_env({"XDG_RUNTIME_DIR": str(runtime)}))
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        assert process.returncode == 0
        return usage.ru_maxrss
    assert most_memory(10) < most_memory(1) + (4 << 10), "top keeps what it has shown"


def test_set_does_not_pass_the_daemon_by(runtime):
    """Whoever it serves would be told one thing by us and another one by it."""
    process = Fake(runtime, 900001, stats(900001))
    Fake(runtime, "swapnetd", "nonsense")
    result = ctl("set", "900001", "budget=64M", env={"XDG_RUNTIME_DIR": str(runtime)})
    assert fails(result, 1, "the daemon of process 900001 does not answer") and process.requests == [{"op": "status"}]


def test_set_without_a_daemon(runtime):
    """What the process answers, in each format."""
    Fake(runtime, 900001, stats(900001, budget_bytes=64 << 20, bound=False))
    def changed(form):
        return ctl("set", "900001", "budget=64M", "-o", form, env={"XDG_RUNTIME_DIR": str(runtime)}).stdout
    assert changed("csv") == "pid,budget_bytes,urgency,bound\n900001,67108864,2.5,false\n"
    assert json.loads(changed("json"))["bound"] is False and "it is giving back" in changed("table")


def test_set_asks_the_daemon_of_the_process(runtime, tmp_path):
    """Not that of the environment, which may be another user's."""
    (tmp_path / "theirs").mkdir(mode=0o700)
    known = {"schema": 1, "processes": [{"pid": 900001}], "budget_bytes": 64 << 20, "urgency": 1}
    theirs = Fake(tmp_path / "theirs", "swapnetd", known)
    ours = Fake(runtime, "swapnetd", {"schema": 1, "processes": []})
    where = str(tmp_path / "theirs" / "swapnet" / "swapnetd.sock")
    process = Fake(runtime, 900001, stats(900001, daemon_socket=where))
    for env in {}, {"SWAPNET_DAEMON": str(runtime / "swapnet" / "swapnetd.sock")}:
        result = ctl("set", "900001", "budget=64M", env={"XDG_RUNTIME_DIR": str(runtime)} | env)
        assert result.returncode == 0 and "64.0 MiB" in result.stdout, result
    assert ours.requests == [] and {request["op"] for request in process.requests} == {"status"}
    assert theirs.requests == [{"op": "list"}, {"op": "set", "budget": 64 << 20, "pid": 900001}] * 2
    os.unlink(where)  # it is gone: then it is the process that is told
    ctl("set", "900001", "budget=32M", env={"XDG_RUNTIME_DIR": str(runtime)})
    assert process.requests[-1] == {"op": "set", "budget": 32 << 20}


@contextlib.contextmanager
def of_another_user(serve):
    """A child process of another user calls serve(runtime, told), which writes a byte to the pipe `told` when it is ready.
    Yields (the child's runtime directory, its PID, the pipe's other end)."""
    if os.geteuid() != 0:
        pytest.skip("needs a second user")
    with tempfile.TemporaryDirectory(prefix="swnu-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        runtime = pathlib.Path(place) / "run"
        runtime.mkdir(mode=0o700)
        os.chown(runtime, 65534, 65534)
        ready, told = os.pipe()
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                serve(runtime, told)
                time.sleep(60)
            os._exit(0)
        try:
            assert os.read(ready, 1) == b"."
            yield runtime, pid, ready
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(ready)
            os.close(told)


def test_set_by_root_for_another_user():
    """As under sudo -E: neither past the daemon of that user, nor told that it does not answer."""
    def serve(runtime, told):
        daemon = Fake(runtime, "swapnetd", {"schema": 1, "processes": [{"pid": os.getpid()}], "budget_bytes": 1 << 26,
                                            "urgency": 1})
        Fake(runtime, os.getpid(), stats(os.getpid(), daemon_socket=str(runtime / "swapnet" / "swapnetd.sock")))
        os.write(told, b".")
        while len(daemon.requests) < 2:
            time.sleep(0.01)
        os.write(told, json.dumps(daemon.requests).encode())

    with of_another_user(serve) as (runtime, pid, answers):
        result = ctl("set", pid, "budget=64M", env={"XDG_RUNTIME_DIR": str(runtime)})
        assert result.returncode == 0 and "64.0 MiB" in result.stdout, result
        assert json.loads(os.read(answers, 1000))[1] == {"op": "set", "budget": 64 << 20, "pid": pid}


def test_status_of_some(runtime):
    for pid in (900001, 900002, 900003):
        Fake(runtime, pid, stats(pid))
    result = status(runtime, "-o", "json", "900003", "900001")
    assert result.returncode == 0
    assert [p["pid"] for p in json.loads(result.stdout)["processes"]] == [900001, 900003]
    result = status(runtime, "-o", "json", "900002", "900009")
    assert result.returncode == 1
    assert [p["pid"] for p in json.loads(result.stdout)["processes"]] == [900002]
    assert result.stderr == "swapnetctl: no swapnet process 900009\n"


def test_status_skips_what_is_dead_or_foreign(runtime):
    Fake(runtime, 900001, stats(900001))
    Fake(runtime, 900002, None).socket.close()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(runtime / "swapnet" / "900003.sock"))
    dead.close()
    for name in ("x.sock", "900001.sock.bak", "0.sock", "-1.sock", ".sock", "9" * 40 + ".sock", "README"):
        (runtime / "swapnet" / name).write_text("")
    before = sorted(os.listdir(runtime / "swapnet"))
    result = status(runtime, "-o", "json")
    assert (result.returncode, result.stderr) == (0, "")
    assert [p["pid"] for p in ours(json.loads(result.stdout), 900001, 900002, 900003)] == [900001]
    assert sorted(os.listdir(runtime / "swapnet")) == before  # it cleans nothing


@pytest.mark.parametrize("answer", ["", "not json", "[]", "{}", '{"schema":2,"pid":900001}', '{"schema":1,"pid":"x"}',
                                    '{"schema":1,"error":"no"}', "[" * 60000, "x" * 70000])
def test_status_of_one_that_talks_nonsense(runtime, answer):
    Fake(runtime, 900001, answer)
    Fake(runtime, 900002, stats(900002))
    result = status(runtime, "-o", "json")
    assert result.returncode == 0
    assert [p["pid"] for p in ours(json.loads(result.stdout), 900001, 900002)] == [900002]
    assert result.stderr.startswith("swapnetctl: process 900001 ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("answered", [False, True], ids=["resets", "closes"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "stays"])
def test_status_of_one_that_hangs_up(runtime, answered, ends):
    """One that ends while it is asked is as gone as one that ended before; one that stays has to be told of."""
    ending = Fake(runtime, 900001, None)

    def disconnect():
        for _ in range(1 if ends else 2):
            client, _ = ending.socket.accept()
            if answered:
                client.recv(4096)
            if ends:
                ending.socket.close()
            client.close()  # what is not read makes it a reset
    thread = threading.Thread(target=disconnect, daemon=True)
    thread.start()
    Fake(runtime, 900002, stats(900002))
    result = status(runtime, "-o", "json")
    thread.join(10)
    assert not thread.is_alive() and result.returncode == 0
    assert [p["pid"] for p in ours(json.loads(result.stdout), 900001, 900002)] == [900002]
    assert ("process 900001 does not answer" in result.stderr) == (not ends)
    ending.socket.close()


def test_status_of_one_that_lies_about_types(runtime):
    Fake(runtime, 900001, stats(900001, name=None, budget_bytes="much", state=[1], stall_ns=1.5))
    process, = ours(json.loads(status(runtime, "-o", "json").stdout), 900001)
    assert process["name"] is process["budget_bytes"] is process["state"] is process["stall_ns"] is None
    for form in ("table", "csv"):
        assert status(runtime, "-o", form).returncode == 0


def test_status_of_one_that_is_stopped(runtime):
    silent = Fake(runtime, 900001, None)
    Fake(runtime, 900002, stats(900002))
    start = time.monotonic()
    result = status(runtime, "-o", "json", impatient=True)
    assert time.monotonic() - start < 30
    assert result.returncode == 0
    assert [p["pid"] for p in ours(json.loads(result.stdout), 900001, 900002)] == [900002]
    assert "process 900001 does not answer" in result.stderr
    result = status(runtime, "900001", impatient=True)
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and "process 900001 does not answer" in result.stderr
    silent.socket.close()


def test_status_of_one_that_only_the_daemon_knows(runtime):
    """It is shown as the daemon sees it, and has not answered all the same."""
    theirs = {"pid": 900003, "name": "python3", "budget_bytes": 1 << 26, "urgency": 1.0, "state": "away"}
    Fake(runtime, "swapnetd", {"schema": 1, "total_bytes": 1 << 30, "processes": [theirs]})
    Fake(runtime, 900002, stats(900002))
    result = status(runtime, "900003", "900002", "-o", "json")
    assert [p["pid"] for p in json.loads(result.stdout)["processes"]] == [900002, 900003]
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and "process 900003 is shown as swapnetd sees it" in result.stderr
    assert status(runtime, "900002").returncode == 0


def test_status_of_one_that_is_another(runtime):
    """Nobody speaks for a process but itself: `set NAME` goes by what is said."""
    Fake(runtime, 900001, stats(900002, name="trainer"))
    Fake(runtime, 900003, stats(900003, name="trainer"))
    result = status(runtime, "-o", "json")
    assert [p["pid"] for p in ours(json.loads(result.stdout), 900001, 900002, 900003)] == [900003]
    assert "process 900001 gives an answer" in result.stderr
    changed = ctl("set", "trainer", "budget=64M", env={"XDG_RUNTIME_DIR": str(runtime)})
    assert changed.returncode == 0 and changed.stdout.startswith("process 900003: "), changed


def test_status_by_root_of_another_user():
    """As under sudo -E: what a user says of a process that is not the user's does not count, and is no error unless asked for."""
    def serve(runtime, told):
        Fake(runtime, 1, stats(1, name="trainer"))
        Fake(runtime, "swapnetd", {"schema": 1, "processes": []})
        os.write(told, b".")

    with of_another_user(serve) as (runtime, _, _):
        result = status(runtime, "-o", "json")
        assert (result.returncode, result.stderr) == (0, "") and not ours(json.loads(result.stdout), 1)
        result = status(runtime, "-o", "json", "1")
        assert result.returncode == 1 and "process 1 does not answer: Operation not permitted" in result.stderr


@pytest.mark.parametrize("args", [("-o", "xml"), ("-o",), ("-x",), ("--output=",), ("abc",), ("0",), ("-5",), ("1 2",)])
def test_status_usage(runtime, args):
    assert fails(status(runtime, *args), 2)


# ---- the rest ----

def test_help_and_version():
    overview = ctl("help")
    assert overview.returncode == 0 and overview.stderr == ""
    for word in ("run", "status", "list", "version", "help"):
        assert f"  {word} " in overview.stdout
        text = ctl("help", word)
        assert text.returncode == 0 and text.stdout.startswith("Usage: swapnetctl ")
    assert ctl("--help").stdout == ctl("-h").stdout == overview.stdout
    assert ctl("run", "--help").stdout == ctl("help", "run").stdout
    assert ctl("list", "--help").stdout == ctl("help", "status").stdout
    assert ctl("help", "--help").stdout == ctl("help", "-h").stdout == ctl("help", "help").stdout != ""
    version = ctl("version").stdout
    assert version.startswith("swapnetctl ") and version == ctl("--version").stdout
    number = version.split()[1]
    assert json.loads(ctl("version", "-o", "json").stdout) == {"schema": 1, "program": "swapnetctl", "version": number}
    assert ctl("version", "-o", "csv").stdout == f"program,version\nswapnetctl,{number}\n"


@pytest.mark.parametrize("total", ["4097T", "16777215T", "16777216T"])
def test_a_total_that_no_machine_has(total):
    """16777215T is the last that fits 64 bits; no message to swapnetd carries it."""
    assert fails(ctl("total", total), 2, f"total '{total}' is too large: it can be 4096T at most")
    assert fails(ctl("plan", "--total", total, "model.json"), 2, f"total '{total}' is too large")
    assert fails(ctl("cache", "cap", total), 2, f"cap '{total}' is too large")
    assert fails(ctl("serve", "plan", "--from", "models.json", "-b", total, "m,rate=1"), 2, f"'{total}' is not right")
    plan = subprocess.run([CTL.parent / "swapnet-partition", "plan", "-b", total, "model.json"], capture_output=True, text=True,
                          timeout=harness.HANG_S)
    assert plan.returncode == 2 and f"budget '{total}' is too large" in plan.stderr
    assert fails(ctl("set", "1", f"budget={total}"), 2, f"budget '{total}' is too large: it can be 4096T at most")
    refused = subprocess.run([CTL.parent / "swapnetd", "--total", total], capture_output=True, text=True, timeout=harness.HANG_S)
    assert refused.returncode == 2 and "use a size from 8M to 4096T" in refused.stderr


@pytest.mark.parametrize("args", [("nonsense",), ("--nonsense",), ("help", "nonsense"), ("help", "run", "x"),
                                  ("version", "x"), ("version", "-o", "xml"), ("total", "-o", "xml", "64M"),
                                  ("drain", "now"), ("cache", "cap", "-o", "json"), ("cache", "rm", "-o", "csv", "--all")])
def test_usage_errors(args):
    assert fails(ctl(*args), 2)


def test_no_command():
    result = ctl()
    assert result.returncode == 2 and result.stdout == "" and result.stderr.startswith("Usage: ")


def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        for args in (("help",), ("status",), ("version",), ("top", "-n", "1000000000")):
            result = subprocess.run([CTL, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=harness.HANG_S)
            assert result.returncode == 1 and "No space left" in result.stderr
