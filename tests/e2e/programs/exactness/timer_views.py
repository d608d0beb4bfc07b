"""A timer whose threads the C library starts (SIGEV_THREAD) takes numpy views of weights while the main thread infers;
they are at the weight's address, and read the same later."""
import ctypes
import hashlib
import time

import torch
import torch.nn.functional as F

from _record import begin

record, _ = begin()
torch.set_num_threads(1)
LAYERS, WIDTH, VIEWS = 40, 768, 4
weights = [torch.randn(WIDTH, WIDTH) / 28 for _ in range(LAYERS)]
home = [w.data_ptr() for w in weights]
want = [hashlib.sha256(w.numpy()).digest() for w in weights[:VIEWS]]
taken = []


class Sigevent(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("function", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("rest", ctypes.c_char * 32)]


class Itimerspec(ctypes.Structure):
    _fields_ = [("interval", ctypes.c_long * 2), ("value", ctypes.c_long * 2)]


def fire(_):
    if len(taken) < 4000:
        taken.extend((k, weights[k].numpy()) for k in range(VIEWS))


def infer():
    x = torch.ones(64, WIDTH)
    with torch.no_grad():
        for weight in weights:
            x = F.linear(x, weight).tanh()
    return x


callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(fire)
libc = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_void_p()
event = Sigevent(None, 0, 2, ctypes.cast(callback, ctypes.c_void_p), None, b"")
assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
for i in range(2):
    record.tensor(f"before{i}", infer())
every = Itimerspec((0, 3000000), (0, 3000000))
assert libc.timer_settime(timer, 0, ctypes.byref(every), None) == 0
end = time.monotonic() + 8
same = True
reference = infer()
while time.monotonic() < end:
    same &= torch.equal(infer(), reference)
record.check("the model computes the same", same)
never = Itimerspec((0, 0), (0, 0))
assert libc.timer_settime(timer, 0, ctypes.byref(never), None) == 0
time.sleep(0.3)
record.check("there are views", len(taken) > 100)
record.check("at the weight's address", all(view.ctypes.data == home[k] for k, view in taken))
away = [(k, view) for k, view in taken if view.ctypes.data != home[k]][:100]
record.check("with its bytes", all(hashlib.sha256(view).digest() == want[k] for k, view in taken[-200:] + away))
record.tensor("after", infer())
record.save()
