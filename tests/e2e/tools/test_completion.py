"""Completion offers names that others chose, and bash must never read one as code: neither when TAB is pressed, nor when
the line that TAB completed is run."""
import os
import pathlib
import socket

import pytest

from daemons import wait_for
from harness import REPO
from terminal import Terminal

HOSTILE = ["$(touch PWNED)", "`touch PWNED`", "x;touch PWNED;", "${PWNED:=$(touch PWNED)}"]
COMPLETION = REPO / "share" / "completion"
# What is completed is a function here: it shows what it was given, and `cache ls` lists the names that NAMES has.
STAND_IN = """PS1='ready> '; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'
for program in swapnetctl swapnet-partition; do
    source "$COMPLETION/$program.bash"
    eval "$program() { if [[ \\$1 == cache && \\$2 == ls ]]; then printf '%s\\n' \\"\\$NAMES\\"; else printf '<%s>\\n' \\"\\$@\\"; fi; }"
done
"""


def press_tab(place, line, **env):
    """What the terminal shows once TAB has been pressed twice behind `line`, and then Enter."""
    (place / "rc").write_text(STAND_IN)
    (place / "here").mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "TERM": "dumb", "COMPLETION": str(COMPLETION), "NAMES": "", "COLUMNS": "200",
           "XDG_RUNTIME_DIR": "/nonexistent", **env}
    with Terminal("bash", "--noprofile", "--rcfile", place / "rc", "-i", env=env, cwd=place / "here") as t:
        wait_for(lambda: "ready>" in t.read())
        t.press(line.encode() + b"\t\t\n")
        t.press(b"echo completed-$((40 + 2))\n")
        wait_for(lambda: "completed-42" in t.read())
    assert not list(place.rglob("PWNED")), t.shown
    return t.shown.replace("\r", "")


@pytest.fixture
def below(place):
    return pathlib.Path(place)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("command", ["status", "list", "set"])
def test_socket_with_a_command_for_a_name_is_not_run(below, name, command):
    listening = []
    for file in name, "99999999471":
        listening.append(socket.socket(socket.AF_UNIX))
        listening[-1].bind(f"{below}/swapnet/{file}.sock")
    shown = press_tab(below, f"swapnetctl {command} 99999999", XDG_RUNTIME_DIR=str(below))  # /run/swapnet has others
    assert "<99999999471>" in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_store_with_a_command_for_a_name_is_not_run(below, name):
    listed = "\n".join(f'    "name": "{file}.swnstore",' for file in (name, "0123abcd"))
    assert "<0123abcd.swnstore>" in press_tab(below, "swapnetctl cache rm ", NAMES=listed)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("line", [
    "swapnetctl run --trace ", "swapnetctl run --daemon ", "swapnetctl run --store ", "swapnetctl verify ",
    "swapnetctl profile --show ", "swapnetctl plan ", "swapnetctl plan --device ", "swapnetctl cache --store ",
    "swapnet-partition build ", "swapnet-partition build --store ", "swapnet-partition plan --device ",
    "swapnet-partition extract x -o "])
def test_file_with_a_command_for_a_name_is_quoted(below, line, name):
    """The line that TAB has completed is run, and the program gets the name as an argument."""
    (below / "here" / name).mkdir(parents=True)
    assert f"<{name}/>" in press_tab(below, line + "\\" + name[0])
