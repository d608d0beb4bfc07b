"""A model of arrays that numpy maps from files: mapped_by_numpy.py OUT DIR before|after. They are mapped before or after
the first tensor; one is stored into before it is read, one between two passes, and one through its file. In the end the
program drops the pages of two, so that they have their files' bytes again. One the program wants to unmap in a way that the
kernel refuses: it stays. Last, it moves a mapping, and other memory comes to where that was; and it maps memory over another."""
import ctypes
import mmap
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")  # of arrays that may not be written
MAPPED, FILES = [], 6


def map_all(directory):
    for i in range(FILES):
        np.random.default_rng(i).standard_normal((1536, 1536), dtype=np.float32).tofile(f"{directory}/{i}.bin")
        MAPPED.append(np.memmap(f"{directory}/{i}.bin", np.float32, "r+" if i == 5 else "c", shape=(1536, 1536)))
        if i == 5:
            MAPPED.append(np.memmap(f"{directory}/{i}.bin", np.float32, "c", shape=(1536, 1536)))


if sys.argv[3] == "before":
    map_all(sys.argv[2])

import torch  # noqa: E402

from _record import begin  # noqa: E402

record, (directory, when) = begin()
x = torch.ones(3, 1536)
if when == "after":
    map_all(directory)
shared = MAPPED.pop(5)
MAPPED[1][7, 7] = 1e6
weights = [torch.nn.Parameter(torch.from_numpy(array), requires_grad=False) for array in MAPPED]


def forward(x):
    for w in weights:
        x = torch.relu(torch.nn.functional.linear(x, w)) / 20
    return x


munmap = ctypes.CDLL(None, use_errno=True).munmap
munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
for turn in range(4):
    record.tensor(f"out{turn}", forward(x))
    record.value(f"refused{turn}", [munmap(MAPPED[0].ctypes.data + 1, MAPPED[0].nbytes), ctypes.get_errno()])
    MAPPED[2][3, turn] = 1e6 + turn
    shared[4, turn] = 1e6 + turn
MAPPED[2]._mmap.madvise(mmap.MADV_DONTNEED)
MAPPED[3][:] += 1
record.tensor("stored", forward(x))
MAPPED[3]._mmap.madvise(mmap.MADV_DONTNEED, mmap.PAGESIZE, 1 << 20)
try:
    MAPPED[3]._mmap.madvise(mmap.MADV_FREE)
    record.tensor("freed", torch.ones(1))
except OSError:
    pass  # a file's pages cannot be freed
for turn in range(2):
    record.tensor(f"dropped{turn}", forward(x))
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
libc.mremap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
moves = np.memmap(f"{directory}/0.bin", np.float32, "c", shape=(1536, 1536))
bytes_of, at = moves.nbytes, moves.ctypes.data
to = libc.mmap(None, bytes_of, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
record.check("moved", libc.mremap(at, bytes_of, bytes_of, 3, to) == to)  # MREMAP_MAYMOVE and MREMAP_FIXED
NO_REPLACE, FIXED = 0x100000, 0x10
for name, lies, how in ("moved", moves, NO_REPLACE), ("covered", MAPPED[1], FIXED):
    there = lies.ctypes.data
    found = libc.mmap(there, bytes_of, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | how, -1, 0)
    record.check(f"other memory where it {name}", found == there)
    other = torch.from_numpy(lies)
    lies[:] = 0.25
    libc.madvise(ctypes.c_void_p(there + mmap.PAGESIZE), ctypes.c_size_t(1 << 20), mmap.MADV_DONTNEED)  # zeros there
    record.tensor(f"where it {name}", torch.nn.functional.linear(x, other))
for i, w in enumerate(weights):
    record.tensor(f"w{i}", w)
record.save()
