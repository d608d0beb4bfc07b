"""signals.py OUT faulthandler|blocked|early|others|masked|handler|timer|crash|once: raw stores into swapped-out weights beside the program's
own use of signals. `crash` ends by a real segmentation fault, which must look as it does without swapnet, although CPython's subprocess has
set handlers in a child of vfork; `once` likewise, after its handler has returned from the first."""
import ctypes
import faulthandler
import os
import signal
import subprocess
import threading

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, args = begin()
go = threading.Event()
with open("/proc/self/maps", encoding="ascii") as maps:
    SWAPPED = "libswapnet" in maps.read()


def blocks_early():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    go.wait()
    record.notes["blocks"] = signal.SIGSEGV in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    write_all(0.002)


def masked_attributes():
    """Of a thread that blocks all signals from its first instruction on."""
    attributes, every = ctypes.create_string_buffer(256), ctypes.create_string_buffer(b"\xff" * 128)
    assert LIBC.pthread_attr_init(attributes) == LIBC.pthread_attr_setsigmask_np(attributes, every) == 0
    return attributes


LIBC = ctypes.CDLL(None)
waiting = threading.Thread(target=blocks_early)
if args[0] == "early":  # before the first tensor
    waiting.start()
    early_attributes = masked_attributes()
model = mlp()
weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)]


def infer(name, passes=2):
    with torch.no_grad():
        for i in range(passes):
            record.tensor(f"{name}{i}", model(rows(i)))


def write_all(by):
    for weight in weights:
        weight.numpy()[3::100] += by


def faulthandler_late():
    faulthandler.enable()
    write_all(0.001)
    infer("enabled")
    faulthandler.disable()
    write_all(0.001)


def blocked():
    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        write_all(0.002)
        record.check("mask as set", signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSEGV])
    open_to_faults("sigmask")
    write_all(0.001)


def early():
    go.set()
    waiting.join()
    thread_with_a_mask(early_attributes)


def open_to_faults(name):
    """A thread that blocked SIGSEGV would be killed by a store that has to wait; plainly it may."""
    record.check(f"{name} leaves SIGSEGV", not SWAPPED or signal.SIGSEGV not in signal.pthread_sigmask(signal.SIG_BLOCK, []))


def thread_with_a_mask(attributes):
    seen = []

    def work(_):
        seen.append(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        open_to_faults("the attribute of a thread")
        write_all(0.001)

    thread, start = ctypes.c_void_p(), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work)
    record.check("begins", LIBC.pthread_create(ctypes.byref(thread), attributes, start, None) == 0)
    LIBC.pthread_join(thread, None)
    record.value("its mask", seen)
    infer("its mask", 1)


def others():
    """Every other way that the C library has to replace a handler, or to block a signal."""
    libc = ctypes.CDLL(None)
    for name in "signal", "bsd_signal", "ssignal", "sysv_signal", "__sysv_signal", "sigset":
        install = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)((name, libc))
        record.check(name, install(int(signal.SIGSEGV), None) is None)
        write_all(0.001)
        infer(name, 1)
    for name, argument in ("sighold", 11), ("sigblock", 1 << 10), ("sigsetmask", 1 << 10):
        getattr(libc, name)(argument)
        open_to_faults(name)
        write_all(0.001)
        infer(name, 1)
    thread_with_a_mask(masked_attributes())


def masked():
    """A handler that stores, with all signals blocked in it; the C function is called as such."""
    stored = []
    own = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: stored.append(write_all(0.001)))
    action = Action(ctypes.cast(own, ctypes.c_void_p).value)
    ctypes.memset(action.mask, 255, 128)
    libc = ctypes.CDLL(None)
    libc.sigaction(int(signal.SIGUSR1), ctypes.byref(action), None)
    for i in range(3):
        libc["raise"](int(signal.SIGUSR1))
        infer(f"stored{i}", 1)
    record.value("stored", len(stored))


def handler():
    """The program's own SIGSEGV handler: installed, reported back as it was, and not called for our stores."""
    calls = []
    own = lambda number, frame: calls.append(number)
    signal.signal(signal.SIGSEGV, own)
    write_all(0.001)
    infer("own handler")
    record.value("calls", calls)
    record.check("getsignal gives it back", signal.signal(signal.SIGSEGV, signal.SIG_DFL) is own)
    signal.signal(signal.SIGSEGV, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGSEGV)
    record.check("one that is sent is ignored", signal.signal(signal.SIGSEGV, signal.SIG_DFL) is signal.SIG_IGN)
    write_all(0.001)


def timer():
    """A signal every millisecond: reads of the fetcher or of the program may end early."""
    ticks = []
    signal.signal(signal.SIGALRM, lambda number, frame: ticks.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    infer("ticking", 8)
    write_all(0.001)
    signal.setitimer(signal.ITIMER_REAL, 0)
    record.check("ticked", len(ticks) > 3)


def crash():
    record.save()
    faulthandler.enable()
    subprocess.run(["true"], check=True)
    ctypes.string_at(8)


class Action(ctypes.Structure):
    """struct sigaction of x86-64 Linux."""
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]


def once():
    record.save()
    libc = ctypes.CDLL(None)
    returns = ctypes.cast(libc.abs, ctypes.c_void_p).value
    libc.sigaction(int(signal.SIGSEGV), ctypes.byref(Action(returns, flags=-1 << 31)), None)  # SA_RESETHAND
    ctypes.string_at(8)


infer("before", 3)
{"faulthandler": faulthandler_late, "blocked": blocked, "early": early, "others": others, "masked": masked, "handler": handler, "timer": timer, "crash": crash,
 "once": once}[args[0]]()
infer("after")
record.module("model", model)
record.save()
