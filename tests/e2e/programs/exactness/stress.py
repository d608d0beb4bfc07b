"""Nine threads at once that do to weights what programs do: stress.py OUT HELPER SECONDS [PART...].

HELPER is the library of stress.cpp. PART names those of PARTS that take part; without any, all do. Whatever a part does
in a step is a function of the step alone, and there are STEPS of them, done over and over until SECONDS have passed: so
each part records for each step the hashes that it ever saw, which is one, in a plain run and under swapnet. A single part
is done by the main thread, and no other of Python's is there.

OPENBLAS_NUM_THREADS has to be 1: while other threads multiply, a fork waits for its workers for ever.
"""
import ctypes
import hashlib
import os
import random
import socket
import sys
import threading
import time
import traceback
import warnings

import numpy as np
import torch
import torch.nn.functional as F

from _record import begin

warnings.filterwarnings("ignore")
record, args = begin()
torch.set_num_threads(1)
helper, seconds, wanted = ctypes.CDLL(args[0]), float(args[1]), args[2:]
libc = ctypes.CDLL(None, use_errno=True)
STEPS, WIDTH = 8, 512
inside = threading.local()


def blake(*buffers):
    state = hashlib.blake2b(digest_size=16)
    for buffer in buffers:
        state.update(buffer)
    return state.hexdigest()


def network(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(WIDTH, WIDTH, generator=generator) / 15 for _ in range(count)]


def infer(weights, seed, rows=4):
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for weight in weights:
            x = F.relu(F.linear(x, weight)) - 0.01
    return x.numpy()


def view(weight):
    return memoryview(weight.numpy()).cast("B")


shared = network(28, 1)


def operators():
    """Shared weights, by operators."""
    def step(s):
        return blake(infer(shared, s))
    return step


def views():
    """Views that are taken in one step and read in later ones; those of a whole round lie in wait."""
    taken = {s: [shared[(3 * s + k) % len(shared)].numpy() for k in range(3)] for s in range(STEPS)}

    def step(s):
        now = [shared[(5 * s + k) % len(shared)].numpy() for k in range(3)]
        seen = blake(*taken[s]), infer(shared[s:s + 8], s).tobytes()
        result = blake(*now, *taken[(s + 3) % STEPS], seen[0].encode(), seen[1])
        taken[s] = [shared[(3 * s + k) % len(shared)].numpy() for k in range(3)]
        return result
    return step


def in_place():
    """Weights of its own, stored into by operators and by numpy, whole and in part."""
    base, own = network(8, 2), network(8, 2)

    def step(s):
        rng = random.Random(s)
        with torch.no_grad():
            for k, weight in enumerate(own):
                weight.copy_(base[k])
                how = rng.randrange(6)
                if how == 0:
                    weight.mul_(0.5 + s)
                elif how == 1:
                    weight.numpy()[rng.randrange(WIDTH)] = s
                elif how == 2:
                    weight[:, rng.randrange(WIDTH)] -= 1
                elif how == 3:
                    weight.numpy()[:] *= 0.75
                elif how == 4:
                    weight.fill_(0.001 * s).add_(base[k])
        out = infer(own, s)
        return blake(out, *map(view, own))
    return step


def openmp():
    """A loop of a C++ extension whose threads run operators on the same weights."""
    helper.stress_model.restype = ctypes.c_void_p
    helper.stress_openmp.restype = ctypes.c_uint64
    model = ctypes.c_void_p(helper.stress_model(20, WIDTH, 0))
    return lambda s: helper.stress_openmp(model, s, 2)


def pthreads():
    """A thread that Python did not start, for each step, which changes weights in place."""
    helper.stress_model.restype = ctypes.c_void_p
    helper.stress_pthread.restype = ctypes.c_uint64
    model = ctypes.c_void_p(helper.stress_model(6, WIDTH, 1))
    return lambda s: helper.stress_pthread(model, s)


class Sigevent(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("function", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("rest", ctypes.c_char * 32)]


class Itimerspec(ctypes.Structure):
    _fields_ = [("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2)]


def timers():
    """Threads that the C library starts for a timer: unseen by a library that interposes pthread_create. They take views,
    which are read when the next ones come."""
    fired, result, kept = threading.Event(), [None], {}

    def fire(_):
        s = inside_step[0]
        out = infer(shared[:12], 100 + s)
        old = kept.get(s) or [shared[k].numpy() for k in range(4)]
        kept[s] = [shared[k].numpy() for k in range(4)]
        result[0] = blake(out, *old)
        fired.set()

    inside_step = [0]
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(fire)
    timer = ctypes.c_void_p()
    event = Sigevent(None, 0, 2, ctypes.cast(callback, ctypes.c_void_p), None, b"")
    assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0

    def step(s, keep=callback):
        inside_step[0] = s
        fired.clear()
        once = Itimerspec((0, 0), (0, 1000000))
        assert libc.timer_settime(timer, 0, ctypes.byref(once), None) == 0
        until = time.monotonic() + 300
        while not fired.wait(0):
            infer(shared, 7)
            assert time.monotonic() < until, "the timer's thread does not come"
        return result[0]
    return step


def sends():
    """Weights through a socket and, as pages, through a pipe, which are read when a network has been run."""
    class Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    ours.settimeout(300), theirs.settimeout(300)

    def step(s):
        weight, piped, got = shared[(7 * s) % len(shared)], shared[s % 2], bytearray()
        n = libc.vmsplice(writer, ctypes.byref(Iovec(piped.data_ptr(), 32768)), ctypes.c_size_t(1), 0)
        assert n == 32768, (n, ctypes.get_errno())
        sender = threading.Thread(target=ours.sendall, args=(view(weight),))
        sender.start()
        out = infer(shared[4:16], 200 + s)
        while len(got) < WIDTH * WIDTH * 4:
            got += theirs.recv(1 << 20)
        sender.join()
        through = b""
        while len(through) < n:
            through += os.read(reader, n - len(through))
        return blake(out, got, through)
    return step


def forks():
    """Children that read and change what their parent goes on with. They run no operators: locks of other threads may
    be taken for ever in them."""
    own = network(3, 4)
    seen = [w.numpy() for w in shared]
    mine = [w.numpy() for w in own]

    def step(s):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            mine[s % 3][s] = 7
            os.write(writer, blake(*seen[s:s + 12], *mine).encode())
            os._exit(0)
        os.close(writer)
        out = infer(own, 300 + s)
        with os.fdopen(reader) as answer:
            text = answer.read()
        status = os.waitpid(pid, 0)[1]
        time.sleep(0.05)
        return blake(out, text.encode(), str(status).encode(), *mine)
    return step


def kernels():
    """A kernel of the program's inside an operator that is made of others: it looks at that one's weight, and keeps it."""
    cells = [torch.nn.RNNCell(WIDTH, WIDTH, bias=False) for _ in range(8)]
    for k, cell in enumerate(cells):
        with torch.no_grad():
            for weight, values in zip((cell.weight_ih, cell.weight_hh), network(2, 500 + k)):
                weight.copy_(values)
    last = {}

    def tanh(x):
        cell = getattr(inside, "cell", None)
        if cell is not None:
            inside.seen.append(cell.weight_hh.detach().numpy())
        return torch.from_numpy(np.tanh(x.detach().numpy()))

    library = torch.library.Library("aten", "IMPL")
    library.impl("tanh", tanh, "CPU")

    def step(s, keep=library):
        x = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(400 + s))
        h, inside.seen = torch.ones(2, WIDTH), []
        with torch.no_grad():
            for inside.cell in cells:
                x = inside.cell(x, h)
        inside.cell = None
        result = blake(x.numpy(), *last.get(s, inside.seen))
        last[s] = inside.seen
        return result
    return step


PARTS = {f.__name__: f for f in (operators, views, in_place, openmp, pthreads, timers, sends, forks, kernels)}
hashes = {}
failed = []


def work(name, step, until):
    found = [set() for _ in range(STEPS)]
    hashes[name] = found
    rounds = 0
    try:
        while rounds < 2 or time.monotonic() < until:
            for s in range(STEPS):
                found[s].add(str(step(s)))
            rounds += 1
    except BaseException:
        failed.append(name)
        traceback.print_exc(file=sys.stderr)
    record.notes[f"{name} rounds"] = rounds


chosen = wanted or list(PARTS)
steps = {name: PARTS[name]() for name in chosen}
until = time.monotonic() + seconds
threads = [threading.Thread(target=work, args=(name, step, until)) for name, step in steps.items()]
if len(threads) == 1:
    threads[0].run()
else:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
for name in chosen:
    record.check(f"{name} ended", name not in failed)
    for s, found in enumerate(hashes[name]):
        record.value(f"{name} step {s}", sorted(found))
    record.check(f"{name} has one result a step", all(len(found) == 1 for found in hashes[name]))
for k, weight in enumerate(shared):
    record.tensor(f"shared{k}", weight)
record.save()
