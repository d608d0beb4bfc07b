"""A model.py that does what its input `what` says: what models should not do, and what they may return."""
import os
import sys
import time

import numpy
import torch
from swapnet_worker import BadInput


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


class Blind:
    """No file, but for what Python does with one at its end."""
    def flush(self):
        pass


class Model:
    inputs = (("what", "INT64", (1,)), ("x", None, None))

    def __call__(self, what, x):
        return getattr(self, ["echo", "fail", "leave", "talk", "text", "sparse", "blame", "die", "hang", "fill", "key",
                              "array", "pair", "many", "later", "words", "objects", "loop", "mute", "blind"][int(what)])(x)

    def echo(self, x):
        return x

    def fail(self, x):
        raise ValueError("a line\nand another")

    def leave(self, x):
        sys.exit(3)

    def talk(self, x):
        print("said to standard output" + sys.stdin.read())
        return x

    def text(self, x):
        return {"y": "text"}

    def sparse(self, x):
        return x.to_sparse()

    def blame(self, x):
        raise BadInput("x is not nice")

    def die(self, x):
        os._exit(3)

    def hang(self, x):
        while True:
            time.sleep(1)

    def fill(self, x):
        return torch.empty(1 << 44)

    def key(self, x):
        return {1: x}

    def array(self, x):
        return {"y": numpy.arange(6, dtype=numpy.int32).reshape(2, 3).T}

    def pair(self, x):
        return x.t(), x > 0

    def many(self, x):
        return [x] * 65

    def words(self, x):
        assert all(type(one) is bytes for one in x.flat)
        return {"lists": [["\u00e9", b"\0"], [b"", "\0"]], "text": numpy.array(["ab", ""]), "bytes": numpy.array(b"abc"),
                "none": numpy.empty((2, 0), object), "upper": numpy.vectorize(bytes.upper, [object])(x)}

    def objects(self, x):
        return {"y": numpy.array([b"a", 1], object)}

    def loop(self, x):
        endless = []
        endless.append(endless)
        return {"y": endless}

    def later(self, x):
        raise MemoryError

    def mute(self, x):
        raise Mute

    def blind(self, x):
        sys.stderr = Blind()
        raise ValueError("not seen")
