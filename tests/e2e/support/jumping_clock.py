"""A clock that a test sets while programs run."""
import os

import pytest

FAKETIME = f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketimeMT.so.1"
DAY = 86400
needs_faketime = pytest.mark.skipif(not os.path.exists(FAKETIME), reason="needs libfaketime (Debian: libfaketime)")


class Clock:
    """A clock, by libfaketime, that is not the real one; CLOCK_MONOTONIC goes on, as it does in Linux when the clock is set."""

    def __init__(self, directory):
        self.file = f"{directory}/clock"
        self.set(0)

    def set(self, seconds):
        with open(self.file + ".new", "w") as f:
            f.write(f"{seconds:+f}")
        os.replace(self.file + ".new", self.file)

    def env(self, first=""):
        return {"LD_PRELOAD": f"{first} {FAKETIME}".strip(), "FAKETIME_TIMESTAMP_FILE": self.file, "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
