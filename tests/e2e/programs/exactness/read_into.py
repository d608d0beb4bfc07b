"""read_into.py OUT [URING_READ]: system calls that write into tensor memory; each of them must find the memory
writable, whatever state it is in. URING_READ is the library of uring_read.c."""
import ctypes
import os
import socket
import threading

import torch
from torch import nn

from _models import mlp, rows
from _record import begin

record, args = begin()
model = mlp()
weights = [m.weight.detach() for m in model if isinstance(m, nn.Linear)]
content = (torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024) * 1e-8).numpy().tobytes()
with open("content.bin", "wb") as out:
    out.write(content)


def memory(weight):
    return memoryview(weight.numpy()).cast("B")


def fed_socket():
    """A socket from which `content` can be received."""
    ours, theirs = socket.socketpair()

    def feed():
        theirs.sendall(content)
        theirs.close()

    threading.Thread(target=feed).start()
    return ours


def fill(target, read):
    """Calls read(rest of target) until it is full."""
    done = 0
    while done < len(target):
        got = read(target[done:])
        assert got > 0, "end of data"
        done += got


def whole(method):
    return lambda weight: method(memory(weight))


def by_socket(call):
    def run(weight):
        with fed_socket() as sock:
            fill(memory(weight), lambda rest: call(sock, rest))
    return run


def by_file(call):
    def run(weight):
        with open("content.bin", "rb", buffering=0) as file:
            target = memory(weight)
            fill(target, lambda rest: call(file, rest, len(target) - len(rest)))
    return run


def fread(weight):
    libc = ctypes.CDLL(None)
    libc.fopen.restype = libc.fread.restype = ctypes.c_size_t
    libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    file = libc.fopen(b"content.bin", b"rb")
    assert libc.fread(weight.data_ptr(), 1, len(content), file) == len(content)
    libc.fclose(file)


def buffered(weight):
    with open("content.bin", "rb") as file:
        assert file.readinto(memory(weight)) == len(content)


def memmove(weight):
    ctypes.memmove(weight.data_ptr(), content, len(content))


def raw_read(weight):
    """read(2) by number, past every interposed function."""
    fd = os.open("content.bin", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    fill(memory(weight), lambda rest: _syscall_read(libc, fd, rest))
    os.close(fd)


def _syscall_read(libc, fd, rest):
    address = ctypes.addressof(ctypes.c_char.from_buffer(rest))
    # 0 is read on x86-64, 63 on AArch64.
    got = libc.syscall(0 if os.uname().machine == "x86_64" else 63, fd, ctypes.c_void_p(address), len(rest))
    if got < 0:
        raise OSError(ctypes.get_errno(), "read by number")
    return got


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


def process_vm_writev(weight):
    """Another process, or a debugger, writes; here the writer is the process itself."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_writev.restype = ctypes.c_ssize_t
    source = Iovec(ctypes.cast(content, ctypes.c_void_p).value, len(content))
    target = Iovec(weight.data_ptr(), len(content))
    got = libc.process_vm_writev(os.getpid(), ctypes.byref(source), ctypes.c_ulong(1), ctypes.byref(target),
                                 ctypes.c_ulong(1), ctypes.c_ulong(0))
    assert got == len(content), os.strerror(ctypes.get_errno())


def io_uring(weight):
    """A read by a ring of the program's own, which no interposed function sees (uring_read.c)."""
    library = ctypes.CDLL(args[0])
    library.uring_read.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    got = library.uring_read(b"content.bin", weight.data_ptr(), len(content))
    assert got == 0, os.strerror(-got)


METHODS = {
    "recv_into": by_socket(lambda sock, rest: sock.recv_into(rest)),
    "recvfrom_into": by_socket(lambda sock, rest: sock.recvfrom_into(rest)[0]),
    "recvmsg_into": by_socket(lambda sock, rest: sock.recvmsg_into([rest])[0]),
    "readinto": by_file(lambda file, rest, at: file.readinto(rest)),
    "buffered readinto": buffered,
    "readv": by_file(lambda file, rest, at: os.readv(file.fileno(), [rest])),
    "preadv": by_file(lambda file, rest, at: os.preadv(file.fileno(), [rest], at)),
    "fread": fread,
    "memmove": memmove,
    "read by number": raw_read,
    "process_vm_writev": process_vm_writev,
}
if args:
    METHODS["io_uring"] = io_uring
with torch.no_grad():
    for i in range(3):
        record.tensor(f"before{i}", model(rows(i)))
    for k, (name, method) in enumerate(METHODS.items()):
        method(weights[2 * k])
        record.check(f"{name} filled the weight", bytes(memory(weights[2 * k])) == content)
        for i in range(2):
            record.tensor(f"{name}{i}", model(rows(i)))
record.module("model", model)
record.save()
