"""Names that others chose, of files, layers, programs and devices, do not act on the terminal that shows them, and do not
keep a program from its JSON."""
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest

import harness
from daemons import CTL, DAEMON
from terminal import Terminal
from test_partition import PARTITION, write_safetensors

# Both sets of control characters, a line's end, and what turns the direction of writing; of files also bytes that no
# UTF-8 has.
HOSTILE = "n\x1b[2J\x07\x9b31m\u202e\u061c\u2028\n\x7fz"
HOSTILE_FILE = os.fsencode(HOSTILE.replace("\n", "")) + b"\x9b31m\xff"


def run(*command, **extra):
    """Both outputs as bytes, and the exit status. None of what others chose acts in them."""
    done = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, env=harness.clean_env(extra))
    for said in done.stdout, done.stderr:
        text = said.decode()  # is UTF-8
        assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text), ascii(text)
    return done


def good(*command, **extra):
    done = run(*command, **extra)
    assert done.returncode == 0, done
    return done.stdout.decode()


@pytest.fixture
def profiles(tmp_path):
    """Of a model and of a device."""
    coefficients = {"alpha_s_per_byte": 1e-9, "beta_s_per_reference": 1e-5, "gamma_s_per_flop": 1e-10, "eta_s_per_reference": 1e-6}
    layers = [{"name": name, "bytes": 1 << 20, "depth": 1, "compute_s": 0.01} for name in (HOSTILE, "b")]
    model, device = tmp_path / "model.json", tmp_path / "device.json"
    model.write_text(json.dumps({"schema": 1, "kind": "model", "name": HOSTILE, "other_bytes": 0, "torch_version": HOSTILE,
                                 "layers": layers}))
    device.write_text(json.dumps({"schema": 1, "kind": "device", "name": HOSTILE, "coefficients": coefficients}))
    return model, device


def test_names_in_profiles(profiles):
    model, device = profiles
    assert "n?[2J?" in good(CTL, "profile", "--show", model)
    good(CTL, "profile", "--show", device)
    for form in "table", "json", "csv":
        assert "z" in good(CTL, "plan", "-t", "64M", "-d", device, "-o", form, f"{model},name={HOSTILE}")
    assert "n?[2J?" in good(PARTITION, "plan", "-b", "8M", "-d", device, model)
    shown = json.loads(good(PARTITION, "plan", "-b", "8M", "-n", "2", "-d", device, "-o", "json", model))
    assert shown["blocks"][0]["first"] == HOSTILE


def test_names_of_files(tmp_path):
    """Of a checkpoint, a store, a directory: on a terminal, in tables, in JSON, and in what is said of errors."""
    place = os.fsencode(tmp_path)
    checkpoint, store, cache = place + b"/" + HOSTILE_FILE + b".safetensors", place + b"/s" + HOSTILE_FILE, place + b"/c" + HOSTILE_FILE
    write_safetensors(pathlib.Path(os.fsdecode(checkpoint)), {HOSTILE: [1] * 1000})
    out = subprocess.run([PARTITION, "build", "-q", checkpoint, "-o", store], capture_output=True, check=True).stdout
    assert out == store + b"\n", "a program that reads it opens it"
    subprocess.run([PARTITION, "build", "-q", checkpoint, "-s", cache], capture_output=True, check=True)
    with Terminal(PARTITION, "build", "-q", os.fsdecode(checkpoint), "-o", os.fsdecode(store), env=harness.clean_env()) as t:
        assert t.wait() == 0, t.read()
        assert "\x1b" not in t.read() and "?[2J" in t.shown
    good(PARTITION, "inspect", store)
    shown = json.loads(good(PARTITION, "inspect", "-o", "json", store))
    assert shown["path"].startswith(str(tmp_path)) and shown["sources"][0]["path"].endswith(".safetensors")
    good(PARTITION, "verify", store)
    for form in "table", "json", "csv":
        shown = good(CTL, "cache", "ls", "-s", cache, "-o", form)
        assert "safetensors" in shown
    assert json.loads(good(CTL, "cache", "ls", "-s", cache, "-o", "json"))["directory"].startswith(str(tmp_path))
    good(CTL, "cache", "cap", "-s", cache, "1G")
    gone = store + b"gone"
    for args in ("inspect", gone), ("build", "-q", gone), ("verify", gone), ("plan", "-b", "1M", gone), ("extract", gone, "-o", gone):
        assert run(PARTITION, *args).returncode not in (0, 2)
    assert run(CTL, "profile", "--show", gone).returncode == 1


def test_words_of_a_command_line(tmp_path):
    for program in CTL, PARTITION, DAEMON:
        for word in HOSTILE_FILE, b"--" + HOSTILE_FILE, b"-\x9b":
            assert run(program, word).returncode == 2
    assert run(CTL, "plan", "-o", HOSTILE_FILE).returncode == 2
    assert run(DAEMON, "--total", HOSTILE_FILE).returncode == 2
    assert run(DAEMON, "--config", os.fsencode(tmp_path) + HOSTILE_FILE).returncode == 2
    (tmp_path / "conf").write_bytes(HOSTILE_FILE + b" = " + HOSTILE_FILE + b"\n")
    assert run(DAEMON, "--config", tmp_path / "conf").returncode == 2
    run(CTL, "status", HOSTILE_FILE, XDG_RUNTIME_DIR=str(tmp_path))
    run(CTL, "set", HOSTILE_FILE, "budget=1M", XDG_RUNTIME_DIR=str(tmp_path))


@contextlib.contextmanager
def answering(path, answer):
    """Says `answer` to everyone who asks the control socket."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve():
            with contextlib.suppress(OSError):  # the test has ended
                while True:
                    client, _ = listening.accept()
                    with client, contextlib.suppress(OSError):
                        client.makefile("rb").readline()
                        client.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_names_of_programs_and_what_a_daemon_says(place):
    """Whoever listens there: swapnetctl believes no text."""
    process = {"schema": 1, "pid": 999999999, "name": HOSTILE, "state": HOSTILE, "fetch_path": HOSTILE, "torch_version": HOSTILE}
    listed = {"schema": 1, "total_bytes": 1 << 30, "leased_bytes": 0, "policy": HOSTILE, "processes": [process]}
    with answering(f"{place}/swapnet/999999999.sock", process), answering(f"{place}/swapnet/swapnetd.sock", listed):
        for form in "table", "json", "csv":
            assert "999999999" in good(CTL, "list", "-o", form, XDG_RUNTIME_DIR=place, **harness.patience(["list"]))
            good(CTL, "top", "-n", "1", "-o", form, XDG_RUNTIME_DIR=place)
    error = {"schema": 1, "op": "error", "error": HOSTILE, "text": HOSTILE}
    with answering(f"{place}/swapnet/999999998.sock", error), answering(f"{place}/swapnet/swapnetd.sock.2", error):
        run(CTL, "set", "999999998", "budget=1M", XDG_RUNTIME_DIR=place)
        run(CTL, "list", XDG_RUNTIME_DIR=place)
