"""What is installed beside the programs: systemd takes the unit, and bash completes all that there is."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

import harness
import serve_front
from daemons import wait_for

PROGRAMS = ["swapnetctl", "swapnet-partition"]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    path = tmp_path_factory.mktemp("install")
    subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", path], check=True, capture_output=True)
    return path


def test_sources_of_backends_are_complete(prefix):
    """`swapnetctl add-torch` compiles them, and each `#include "..."` of theirs, from what is installed."""
    folder = prefix / "lib" / "swapnet" / "add_torch"
    recipe = json.loads((folder / "recipe.json").read_text())
    ahead = {folder / "source" / name for kind in ("aten", "serve") for name in recipe[kind]["sources"]}
    seen, missing = set(), []
    while ahead:
        file = ahead.pop()
        seen.add(file)
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', file.read_text(), re.M):
            found = [path for path in (file.parent / name, folder / "source" / name, folder / "include" / name) if path.is_file()]
            if not found:
                missing.append(f"{file.relative_to(folder)}: {name}")
            ahead |= set(found[:1]) - seen
    assert not missing
    assert len(seen) > 40, "it has followed the includes"


def unit(prefix, name):
    """{key: values} of a unit, whatever the section."""
    lines = [line.partition("=") for line in (prefix / "lib" / "systemd" / "system" / name).read_text().splitlines() if line[:1].isalpha()]
    return {key: [value for name, _, value in lines if name == key] for key, _, _ in lines}


@serve_front.needs_serve
def test_server_is_not_started_again_for_what_does_not_pass(prefix):
    """Statuses of swapnet-serve(8). Its folder of models is made with the package, and no port that is taken makes it start ten times a second."""
    service = unit(prefix, "swapnet-serve.service")
    assert service["Restart"] == ["on-failure"] and float(service["RestartSec"][0]) >= 1
    assert set(service["RestartPreventExitStatus"][0].split()) == {"2", "3", "216"}
    folder = re.search(r"--model-repository (\S+)", service["Environment"][0])[1]
    made = [line.split()[:5] for line in (prefix / "lib" / "tmpfiles.d" / "swapnet.conf").read_text().splitlines()]
    assert ["d", folder, "0755", "root", "root"] in made


@serve_front.needs_serve
def test_server_may_connect_to_the_daemon(prefix):
    """A user of systemd's making, it has the socket's group, which is made with the package."""
    service, listening = unit(prefix, "swapnet-serve.service"), unit(prefix, "swapnetd.socket")
    assert listening["SocketMode"] == ["0660"] and service["SupplementaryGroups"] == listening["SocketGroup"]
    assert "swapnetd.socket" in service["After"][0].split()
    assert f"g {listening['SocketGroup'][0]} -" in (prefix / "lib" / "sysusers.d" / "swapnet.conf").read_text().splitlines()


def test_systemd_accepts_the_units(prefix):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze (Debian: systemd)")
    units = prefix / "lib" / "systemd" / "system"
    services = list(units.glob("*.service"))
    for service in services:  # it names the prefix that the build was configured with
        text, count = re.subn(rf"^ExecStart=\S+/{service.stem}\b", f"ExecStart={prefix}/bin/{service.stem}", service.read_text(), flags=re.M)
        assert count == 1
        service.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *services, units / "swapnetd.socket"],
                          capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in done.stderr or "Failed to initialize manager" in done.stderr:
        pytest.skip(done.stderr.strip())
    ours = [line for line in done.stderr.splitlines() if "swapnet" in line]
    assert done.returncode == 0 and not ours, done


def test_what_the_unit_may_do(prefix):
    """It is 1.9 of 10, of which 10 is a service that may do anything, where systemd is 252."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze (Debian: systemd)")
    done = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold=25",
                           prefix / "lib" / "systemd" / "system" / "swapnetd.service"], capture_output=True, text=True, timeout=60)
    if "unrecognized option" in done.stderr:
        pytest.skip(f"needs systemd 250 or later: {done.stderr.strip()}")
    assert done.returncode == 0 and "Overall exposure level" in done.stdout, done


def test_unit_lets_the_daemon_make_its_system_calls(prefix, place):
    """All that strace sees of one with a group and CPUs are in the filters, which only a running systemd would apply."""
    if not shutil.which("systemd-analyze") or not shutil.which("strace"):
        pytest.skip("no systemd-analyze, or no strace (Debian: systemd, strace)")
    strace = subprocess.run(["strace", "-D", "-f", "-qq", "-o", f"{place}/true", "true"], capture_output=True, text=True, timeout=60)
    if strace.returncode:
        pytest.skip(f"strace may not follow a process here: {strace.stderr.strip()}")
    unit = (prefix / "lib" / "systemd" / "system" / "swapnetd.service").read_text()

    def calls(words):
        for word in words.split():
            if word.startswith("@"):
                done = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True)
                lines = [line.strip() for line in done.stdout.splitlines()[1:]]
                yield from calls(" ".join(line for line in lines if line and not line.startswith("#")))
            else:
                yield word

    allowed = set()
    for words in re.findall(r"^SystemCallFilter=(.*)$", unit, flags=re.M):
        allowed = allowed - set(calls(words[1:])) if words.startswith("~") else allowed | set(calls(words))
    cpus = ",".join(map(str, os.sched_getaffinity(0)))  # it binds this process
    command = ["strace", "-D", "-f", "-qq", "-o", f"{place}/calls", "-e", "signal=none", harness.BUILD / "bin" / "swapnetd", "--total", "100M",
               "--socket", f"{place}/swapnet/s.sock", "--group", "nogroup", "--cpus", cpus]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=harness.clean_env())
    try:
        assert "to give" in (said := process.stderr.readline()), said
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{place}/swapnet/s.sock")
            s.sendall(b'{"op":"hello","version":1,"minimum":1,"demand":1}\n')
            assert b"welcome" in s.recv(4096)
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
    calls_file = pathlib.Path(place) / "calls"
    wait_for(lambda: "exit_group(" in calls_file.read_text())  # strace is no parent of its, and lags behind
    made = set(re.findall(r"^\d+ +(\w+)\(", calls_file.read_text(), flags=re.M))
    assert {"sched_setaffinity", "bind", "listen"} <= made and made - {"execve"} <= allowed, made - allowed


# Commands that have commands of their own, whose options the help names.
INNER = {"serve": ["plan"]}


def completions(prefix, program, *words):
    script = ('source "$1"; shift; complete -p "$1" >/dev/null || exit 3; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              f'_{program.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    file = prefix / "share" / "bash-completion" / "completions" / program
    done = subprocess.run(["bash", "--norc", "-uc", script, "bash", file, program, *words], capture_output=True, text=True,
                          timeout=60, cwd=prefix, env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": "/nonexistent"})
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout.split()


def help_of(program, *words):
    return subprocess.run([harness.BUILD / "bin" / program, "help", *words], capture_output=True, text=True, check=True).stdout


def commands_of(program):
    """All that its help lists: each line there that begins with two spaces and a word, which may have hyphens."""
    text = help_of(program)
    found = re.findall(r"^  ([a-z][a-z-]*)  *\S", text, flags=re.M)
    assert found and len(found) == len(re.findall(r"^  \S", text, flags=re.M)), text
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_completion_knows_commands_and_options(prefix, program):
    """Every command, and every option that its help names."""
    commands = commands_of(program)
    assert len(commands) >= 6 and set(commands) <= set(completions(prefix, program, ""))
    for command in commands:
        options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", help_of(program, command), flags=re.M))
        assert options <= set(completions(prefix, program, command, *INNER.get(command, ()), "--")), command


def test_completion_knows_encodings(prefix):
    assert completions(prefix, "swapnet-partition", "build", "--encoding", "n") == ["narrow"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_manuals(program):
    """Every command is in the synopsis, and every option that its help names in its sections, by both its names."""
    manual = (harness.REPO / "docs" / "man" / f"{program}.1.scd").read_text()
    synopsis = re.search(r"^# SYNOPSIS.*?(?=^# )", manual, flags=re.M | re.S)
    for command in commands_of(program):
        assert f"*{program} {command}" in synopsis[0]
        sections = re.findall(rf"^## (?:[\w-]+, )*{command}(?![\w-]).*?(?=^##? |\Z)", manual, flags=re.M | re.S)
        names = sum(re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)", help_of(program, command), flags=re.M), ())
        said = set(re.findall(r"(?<![\w-])--?[a-z-]+", "".join(sections) or synopsis[0]))
        assert {name for name in names if name} - said <= {"-h", "--help"}, command


def test_manuals_say_what_is_at_risk():
    """A section on security in each, and of the variables that name a file that is written, which may be one that matters."""
    manuals = {path.name: path.read_text() for path in (harness.REPO / "docs" / "man").glob("*.scd")}
    sections = {name: re.search(r"^# SECURITY$.*?(?=^# |\Z)", text, flags=re.M | re.S) for name, text in manuals.items()}
    assert len(manuals) == 5 and all(section and len(section[0]) > 200 for section in sections.values()), sections
    assert all(word in sections["swapnet.7.scd"][0] for word in ("SWAPNET_TRACE", "SWAPNET_STATS", "SWAPNET_STORE"))
    assert "group" in sections["swapnetd.8.scd"][0]


def test_words_of_completions(prefix):
    assert "auto" in completions(prefix, "swapnetctl", "total", "")
    assert completions(prefix, "swapnetctl", "run", "--name", "x", "--daemon", "o") == ["off"]
    assert completions(prefix, "swapnetctl", "set", "1", "bud") == ["budget="]
    for command in "set", "total", "drain", "version", "verify", "cache":
        assert "csv" in completions(prefix, "swapnetctl", command, "-o", ""), command
