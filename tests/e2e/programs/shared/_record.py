"""What every test program shares: fixed seeds and threads, and the record it leaves behind.

`values` must be equal with and without swapnet; `notes` are measurements for the test to judge.
"""
import ctypes
import gc
import hashlib
import json
import os
import socket
import sys

import torch


class Record:
    def __init__(self, path):
        self.path = path
        self.values = {}
        self.notes = {}

    def value(self, name, value):
        assert name not in self.values, f"{name} recorded twice"
        self.values[name] = value

    def data(self, name, buffer):
        self.value(name, hashlib.sha256(buffer).hexdigest())

    def tensor(self, name, tensor):
        self.value(name, digest(tensor))

    def module(self, name, module):
        """Every parameter and buffer, read through its own address."""
        for key, tensor in module.state_dict().items():
            self.tensor(f"{name}.{key}", tensor)

    def check(self, name, condition):
        """Something that must hold in every run, plain ones included."""
        self.value(name, bool(condition))
        if not condition:
            print(f"check failed: {name}", file=sys.stderr, flush=True)

    def save(self):
        """Atomic, so that a program killed at its exit leaves a whole record or none."""
        if METER.present:
            self.notes["peak_tensor_bytes"] = METER.peak()
        self.notes["peak_address_space"] = _status_bytes("VmPeak:")
        temporary = f"{self.path}.{os.getpid()}"
        with open(temporary, "w") as out:
            json.dump({"values": self.values, "notes": self.notes}, out)
        os.replace(temporary, self.path)


def digest(tensor):
    """SHA-256 of the raw bytes. The view as bytes keeps NaN payloads and bfloat16 as they are."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    return hashlib.sha256(flat.view(torch.uint8).numpy()).hexdigest()


def read_bytes():
    """What this process has had read from the disk so far, as the kernel counts it."""
    with open("/proc/self/io", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


# Where programs end as a user's do. An interpreter that ends searches all objects for cycles, and PyTorch's own, which takes
# 0.2 to 0.5 s; the other programs leave out those of PyTorch. What they made themselves is searched in either case.
WHOLE_ENDS = ("models", "processes")


def begin():
    """(record, remaining arguments), with seeds and threads fixed."""
    if os.path.basename(os.path.dirname(os.path.abspath(sys.argv[0]))) not in WHOLE_ENDS:
        gc.freeze()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    return Record(os.path.abspath(sys.argv[1])), sys.argv[2:]


class Meter:
    """Live and peak tensor bytes, where alloc_meter.so is preloaded; else `present` is False."""

    def __init__(self):
        self._lib = ctypes.CDLL(None)
        self.present = hasattr(self._lib, "alloc_meter_peak")
        self._before = 0
        if self.present:
            self._lib.alloc_meter_peak.restype = ctypes.c_long

    def recent_peak(self):
        """Since the last restart."""
        return self._lib.alloc_meter_peak()

    def peak(self):
        return max(self._before, self.recent_peak())

    def restart(self):
        if self.present:
            self._before = self.peak()
            self._lib.alloc_meter_reset_peak()


METER = Meter()


def in_child(work):
    """What work() comes to in a forked child, which has one thread, as truth: "1" or "0"; "" if it did not end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)  # the others are gone
        os.write(writer, b"1" if work() else b"0")
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    answer = os.read(reader, 1).decode()
    os.close(reader)
    return answer


def status():
    """The statistics of this process as swapnetctl would get them; None without the library."""
    path = os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), "swapnet", f"{os.getpid()}.sock")
    if not os.path.exists(path):
        return None
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b'{"op":"status"}\n')
        with client.makefile() as answer:
            return json.loads(answer.readline())


def counter(key):
    """One of them; 0 without the library."""
    found = status()
    return found[key] if found else 0


def note_sizes(record, module):
    """Notes the sizes of invariant 3; the meter's peak has to be that since the model was built."""
    unique = {t.data_ptr(): t.numel() * t.element_size() for t in module.state_dict().values()}
    record.notes["weight_bytes"] = sum(unique.values())
    record.notes["streamable_bytes"] = sum(n for n in unique.values() if n >= 65536)
    record.notes["largest_bytes"] = max(unique.values())
    record.notes["resident_bytes"] = _status_bytes("VmRSS:") - library_bytes()
    if METER.present:
        record.notes["activation_bytes"] = max(0, METER.recent_peak() - record.notes["weight_bytes"])


def library_bytes():
    """Resident pages of shared libraries: how many of them the kernel maps depends on what it has in its cache."""
    found, is_library = 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if line[0] in "0123456789abcdef":
                is_library = ".so" in line
            elif is_library and line.startswith("Rss:"):
                found += int(line.split()[1]) * 1024
    return found


def anonymous_bytes():
    """This process's resident anonymous memory, in bytes."""
    return _status_bytes("RssAnon:")


def _status_bytes(key):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {key} in /proc/self/status")
