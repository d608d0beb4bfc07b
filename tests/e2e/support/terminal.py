"""A terminal for programs that behave differently on one."""
import fcntl
import os
import subprocess
import termios
import time

from harness import HANG_S


class Terminal:
    """A program that has one of its own, and what is on it."""

    def __init__(self, *command, env, cwd=None):
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.before = termios.tcgetattr(self.slave)
        self.shown = ""
        self.process = subprocess.Popen(
            [str(word) for word in command], env=env, stdin=self.slave, stdout=self.slave, stderr=self.slave, cwd=cwd,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def read(self):
        try:
            self.shown += os.read(self.master, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            pass
        return self.shown

    def wait(self, timeout=HANG_S):
        """The program's exit status. A terminal holds 4 KiB that nobody has read, and the program waits then."""
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            self.read()
            time.sleep(0.01)
            assert time.monotonic() < end, self.shown
        return self.process.returncode

    def press(self, key):
        os.write(self.master, key)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
