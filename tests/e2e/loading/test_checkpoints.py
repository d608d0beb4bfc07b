"""The checkpoint readers against PyTorch's and safetensors' own loaders.

Two rules. Whatever those programs wrote is read: the same names, types, shapes, strides and bytes. And whatever the readers
accept of a spoilt file, the loaders accept, with the same bytes; nothing crashes. The bytes are taken from the files here,
by the readers' description, so that nothing of the readers is trusted but what they say.
"""
import ctypes
import functools
import hashlib
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import zipfile
import zlib

import numpy as np
import pytest

import harness

PROGRAM = harness.program_file("checkpoints")
LARGE, END = 64 << 20, 1 << 20  # as in checkpoints.py
ITEM = {"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8,
        "bfloat16": 2, "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1,
        "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "uint16": 2, "uint32": 4,
        "uint64": 8, "float4_e2m1fn_x2": 1, "bits8": 1, "bits16": 2, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1}


def tool():
    """With sanitizers where they are built: a read too far is then a crash."""
    asan = harness.REPO / "build" / "asan" / "tests" / "ckpt_dump"
    plain = harness.BUILD / "tests" / "ckpt_dump"
    newer = asan.exists() and plain.exists() and asan.stat().st_mtime > plain.stat().st_mtime - 3600
    return asan if newer else plain


def dump(paths, program=None):
    """What the readers see: path -> description."""
    out = {}
    paths = [str(p) for p in paths]
    for i in range(0, len(paths), 200):
        some = paths[i:i + 200]
        done = subprocess.run([program or tool(), *some], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"crash within {some[0]} .. {some[-1]}:\n{done.stderr[-3000:]}"
        out |= {d["path"]: d for d in map(json.loads, done.stdout.splitlines())}
    assert list(out) == paths
    return out


def loaded(torch, paths, weights_only=False):
    """What the loaders see: path -> {"tensors"} or {"error"}. A loader that dies refuses the file it died of."""
    out = {}
    paths = [str(p) for p in paths]
    while len(out) < len(paths):
        left = paths[len(out):]
        done = subprocess.run([torch.python, PROGRAM, "read", *(["--weights-only"] if weights_only else [])],
                              input="\n".join(left) + "\n", capture_output=True, text=True, timeout=600,
                              env=harness.clean_env())
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        out |= {d["path"]: d for d in lines}
        if len(lines) < len(left):
            assert done.returncode < 0, done.stderr[-3000:]
            out[left[len(lines)]] = {"path": left[len(lines)], "error": f"killed by signal {-done.returncode}"}
    return out


def make(torch, where, count, seed):
    where.mkdir()
    done = subprocess.run([torch.python, PROGRAM, "make", where, str(count), str(seed)], capture_output=True, text=True,
                          env=harness.clean_env(), timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@functools.lru_cache(maxsize=8)
def mapped(path):
    return np.memmap(path, dtype=np.uint8, mode="r") if os.path.getsize(path) else np.empty(0, np.uint8)


def digest(description, tensor):
    """The hash that checkpoints.py takes, over the bytes that the description points to."""
    storage = description["storages"][tensor["storage"]]
    item, shape = ITEM[tensor["dtype"]], tensor["shape"]
    file = mapped(description["files"][storage["file"]])
    inside = file[storage["off"]:storage["off"] + storage["bytes"]]
    assert len(inside) == storage["bytes"], "a storage outside its file"
    count = math.prod(shape)
    if not count:
        return hashlib.blake2b(digest_size=16).hexdigest()
    span = 1 + sum((n - 1) * s for n, s in zip(shape, tensor["stride"]))
    flat = inside[tensor["off"]:tensor["off"] + span * item]
    assert len(flat) == span * item, "a tensor outside its storage"
    if span == count and count * item > LARGE:  # contiguous, and too large to copy
        h = hashlib.blake2b(flat[:END], digest_size=16)
        h.update(flat[-END:])
        return h.hexdigest()
    view = np.lib.stride_tricks.as_strided(flat, [*shape, item], [*(s * item for s in tensor["stride"]), 1])
    data = np.ascontiguousarray(view).tobytes()
    return hashlib.blake2b(data if len(data) <= LARGE else data[:END] + data[-END:], digest_size=16).hexdigest()


def described(description):
    """In the form of checkpoints.py: name -> [dtype, shape, stride, hash]."""
    out = {}
    for t in description["tensors"]:
        assert t["name"] not in out
        out[t["name"]] = [t["dtype"], t["shape"], t["stride"], digest(description, t)]
    return out


def assert_same(mine, theirs, path):
    """Strides of dimensions with at most one element mean nothing, and loaders may normalise them."""
    assert mine.keys() == theirs.keys(), f"{path}: names differ: {sorted(mine.keys() ^ theirs.keys())[:6]}"
    for name, (dtype, shape, stride, data) in mine.items():
        d, sh, st, b = theirs[name]
        assert (dtype, shape, data) == (d, sh, b), f"{path}: {name}: {mine[name]} is not {theirs[name]}"
        if 0 not in shape:
            assert [s for s, n in zip(stride, shape) if n > 1] == [s for s, n in zip(st, shape) if n > 1], f"{path}: {name}"


def compare(torch, paths):
    mine, theirs = dump(paths), loaded(torch, paths)
    for path, d in mine.items():
        assert "error" not in d, f"{path}: {d['why']}"
        assert "error" not in theirs[path], f"{path}: the loader refuses it: {theirs[path]['error']}"
        assert d["skipped"] == 0, f"{path}: {d['skipped_first']}"
        assert_same(described(d), theirs[path]["tensors"], path)
        for a, b in zip(d["storages"], d["storages"][1:]):
            assert (a["file"], a["off"] + a["bytes"]) <= (b["file"], b["off"] if a["file"] == b["file"] else math.inf)
    return mine


@pytest.mark.parametrize("seed", [1])
def test_readers_agree_with_loaders_on_random_checkpoints(torch, torch213, tmp_path, seed):
    """100 checkpoints, half by each PyTorch, read by the one that wrote them and by the newer one."""
    paths = make(torch, tmp_path / "made", 50, seed)
    mine = compare(torch, paths)
    assert sum(len(d["tensors"]) for d in mine.values()) > 300
    kinds = {d["kind"] for d in mine.values()}
    assert kinds >= {"torch", "torchscript"} and (torch is harness.TORCH113 or "safetensors" in kinds)
    if torch is not torch213:
        compare(torch213, paths)


# --- what PyTorch writes in special ways ---

def save(torch, where, code):
    """Runs `code`, with torch imported and `where` the directory, under that PyTorch."""
    with harness.disk_dir() as made:
        program = made / "save.py"
        program.write_text(f"import torch, collections\nwhere = {str(where)!r}\n{code}")
        harness.make(torch, program, where=made)


@pytest.mark.slow
def test_written_specially(torch213, tmp_path):
    save(torch213, tmp_path, """
torch.serialization.set_crc32_options(False)
torch.save({'e': torch.empty(0), 'x': torch.ones(9)}, where + '/nocrc.pt')
torch.serialization.set_crc32_options(True)
torch.save({'%d' % i: torch.tensor([i % 100], dtype=torch.uint8) for i in range(66000)}, where + '/zip64-by-count.pt')
torch.utils.serialization.config.save.storage_alignment = 4096
torch.save({'e': torch.empty(0), 'x': torch.ones(9), 'b': torch.nn.Buffer(torch.ones(2))}, where + '/aligned.pt')
""")
    found = compare(torch213, sorted(map(str, tmp_path.iterdir())))
    aligned = found[str(tmp_path / "aligned.pt")]
    assert all(s["off"] % 4096 == 0 for s in aligned["storages"])
    assert len(found[str(tmp_path / "zip64-by-count.pt")]["tensors"]) == 66000


def test_not_described(torch, tmp_path):
    """Tensors that are more than bytes and strides are counted and left out; code is refused by name."""
    save(torch, tmp_path, """
w = torch.ones(3)
torch.save({'w': w, 's': w.to_sparse(), 'm': torch.ones(3, device='meta'),
            'q': torch.quantize_per_tensor(w, 0.1, 1, torch.qint8)}, where + '/skipped.pt')
torch.save(torch.nn.Linear(2, 2), where + '/module.pt')
torch.save({'w': w}, where + '/old.pt', _use_new_zipfile_serialization=False)
torch.save({'w': w}, where + '/protocol4.pt', pickle_protocol=4)
frozen = torch.jit.freeze(torch.jit.script(torch.nn.Linear(2, 2).eval()))
torch.jit.save(frozen, where + '/frozen.ts')
""")
    d = {pathlib.Path(p).name: v for p, v in dump(sorted(tmp_path.iterdir())).items()}
    assert d["skipped.pt"]["skipped"] == 3 and [t["name"] for t in d["skipped.pt"]["tensors"]] == ["w"]
    assert len(d["skipped.pt"]["storages"]) == 1
    assert "torch.nn.modules.linear.Linear" in d["module.pt"]["why"] and "state_dict" in d["module.pt"]["why"]
    assert d["old.pt"]["error"] == 95 and "torch.save(torch.load(OLD), NEW)" in d["old.pt"]["why"]
    assert d["protocol4.pt"]["error"] == 95
    assert all(t["name"].startswith("CONSTANTS.") for t in d["frozen.ts"]["tensors"]) and d["frozen.ts"]["tensors"]


def test_sharded(torch213, tmp_path):
    save(torch213, tmp_path, """
import json
from safetensors.torch import save_file
save_file({'b': torch.ones(3), 'a': torch.zeros(2, 2)}, where + '/model-00001-of-00002.safetensors')
save_file({'c': torch.arange(5)}, where + '/model-00002-of-00002.safetensors')
one, two = 'model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'
json.dump({'metadata': {'total_size': 68}, 'weight_map': {'c': two, 'a': one, 'b': one}},
          open(where + '/model.safetensors.index.json', 'w'))
""")
    compare(torch213, [str(tmp_path / "model.safetensors.index.json")])


def test_sharded_and_mapped_otherwise(torch213, tmp_path):
    """What loaders read is in the shards, whatever the map says; where it depends on the loader, it is refused."""
    save(torch213, tmp_path, """
import json
from safetensors.torch import save_file
save_file({'a': torch.zeros(2, 2), 'twice': torch.ones(3)}, where + '/1.safetensors')
save_file({'b': torch.arange(5), 'twice': torch.zeros(3), 'unnamed': torch.ones(2)}, where + '/2.safetensors')
sparse = torch.eye(3).to_sparse()
torch.save({'a': torch.ones(4), 's': sparse}, where + '/1.bin')
torch.save({'b': torch.ones(5)}, where + '/2.bin')
torch.save({'b': torch.ones(5), 's': torch.ones(6)}, where + '/3.bin')
one, two = '1.safetensors', '2.safetensors'
for name, weight_map in {
        'good.safetensors': {'a': one, 'b': two, 'twice': two},
        'misplaced.safetensors': {'a': two, 'b': one, 'twice': two},
        'first.safetensors': {'a': one, 'b': two, 'twice': one},
        'neither.safetensors': {'a': one, 'b': two},
        'nowhere.safetensors': {'a': one, 'b': two, 'twice': two, 'x': one},
        'missing.safetensors': {'a': one, 'b': '3.safetensors'},
        'skipped.bin': {'a': '1.bin', 's': '1.bin', 'b': '2.bin'},
        'replaced.bin': {'a': '1.bin', 's': '3.bin', 'b': '3.bin'}}.items():
    json.dump({'metadata': {}, 'weight_map': weight_map}, open(f'{where}/{name}.index.json', 'w'))
""")
    at = {path.name.removesuffix(".index.json"): str(path) for path in tmp_path.glob("*.index.json")}
    compare(torch213, [at["good.safetensors"], at["misplaced.safetensors"], at["replaced.bin"]])
    found = dump(list(at.values()))
    skipped = found[at["skipped.bin"]]
    assert skipped["skipped_first"] == "s: a sparse tensor" and [t["name"] for t in skipped["tensors"]] == ["a", "b"]
    words = {"first": "and the index says 1.safetensors", "neither": "the index does not say where",
             "nowhere": "no tensor 'x' in 1.safetensors", "missing": "the index names it"}
    for name, what in words.items():
        assert what in found[at[f"{name}.safetensors"]]["why"], found[at[f"{name}.safetensors"]]


def entry(out, name, data, holes):
    """One stored entry as torch writes it. data: bytes, or the number of zeros of a hole."""
    size = data if isinstance(data, int) else len(data)
    header, wide = out.tell(), b""
    if size >= 0xffffffff:
        wide += struct.pack("<QQ", size, 0)
    if header >= 0xffffffff:
        wide += struct.pack("<Q", header)
    extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
    pad = -(header + 30 + len(name) + len(extra) + 4) % 64
    extra += b"FB" + struct.pack("<H", pad) + b"Z" * pad
    out.write(struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, 0x808, 0, 0, 0, 0, 0, 0, len(name), len(extra)))
    out.write(name + extra)
    crc = 0 if isinstance(data, int) else zlib.crc32(data)
    if isinstance(data, int):
        holes.append((out.tell(), size))
        out.seek(size, os.SEEK_CUR)
    else:
        out.write(data)
    out.write(struct.pack("<IIQQ" if wide else "<IIII", 0x08074b50, crc, size, size))
    big = struct.pack("<QQ", size, size) if size >= 0xffffffff else b""
    big += struct.pack("<Q", header) if header >= 0xffffffff else b""
    if big:
        big = struct.pack("<HH", 1, len(big)) + big
    return struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, 0x808, 0, 0, 0, crc, min(size, 0xffffffff),
                       min(size, 0xffffffff), len(name), len(big), 0, 0, 0, 0, min(header, 0xffffffff)) + name + big


def test_larger_than_4_gib(torch213, tmp_path, disk):
    """zip64 sizes and offsets, in a file that is mostly a hole."""
    save(torch213, tmp_path, """
class Big: pass
import pickle, io, zipfile
t = torch.zeros(1, dtype=torch.uint8).expand((1 << 32) + 4096)
torch.save({'first': torch.ones(5), 'big': torch.zeros(3, dtype=torch.uint8), 'last': torch.arange(7)}, where + '/small.pt')
""")
    import zipfile
    small = zipfile.ZipFile(tmp_path / "small.pt")
    size = (1 << 32) + 4096
    number = b"\x8a\x05" + size.to_bytes(5, "little")
    pickle = small.read("small/data.pkl").replace(b"K\x03tq", number + b"tq").replace(b"K\x03\x85q", number + b"\x85q")
    assert pickle.count(number) == 2
    path, holes, directory = disk / "big.pt", [], b""
    with open(path, "wb") as out:
        for info in small.infolist():
            data = pickle if info.filename.endswith("data.pkl") else small.read(info)
            directory += entry(out, info.filename.encode(), size if info.filename == "small/data/1" else data, holes)
        at, count = out.tell(), len(small.infolist())
        out.write(directory)
        out.write(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 0x31e, 45, 0, 0, count, count, len(directory), at))
        out.write(struct.pack("<IIQI", 0x07064b50, 0, at + len(directory), 1))
        out.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, count, count, len(directory), 0xffffffff, 0))
        out.seek(holes[0][0])
        out.write(b"begin")
        out.seek(holes[0][0] + size - 3)
        out.write(b"end")
    assert os.stat(path).st_blocks * 512 < 64 << 20, "the test's file is not sparse"
    mine = compare(torch213, [str(path)])[str(path)]
    assert [s["bytes"] for s in mine["storages"]] == [20, size, 56]


# --- mutations ---

def structure(data, path):
    """Where lengths and offsets lie, to be hit more often than by chance."""
    if path.endswith(".safetensors"):
        return list(range(8)) + list(range(8, min(len(data), 8 + int.from_bytes(data[:8], "little"))))
    places = []
    for signature, length in ((b"PK\1\2", 46), (b"PK\3\4", 30), (b"PK\5\6", 22), (b"PK\7\x08", 16)):
        at = data.find(signature)
        while at >= 0:
            places += range(at, min(at + length, len(data)))
            at = data.find(signature, at + 1)
    return places


def pickles(data):
    """Where the pickles lie: most of what is accepted although spoilt is in there."""
    places = []
    at = data.find(b"\x80\x02")
    while at >= 0:
        end = data.find(b"PK\7\x08", at)
        places += range(at, end if end > 0 else at)
        at = data.find(b"\x80\x02", max(end, at + 1))
    return places


def mutate(rng, data, path, places, inner):
    data = bytearray(data)
    kind = rng.randrange(10)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not data:
            break
        pool = inner if inner and kind < 5 else places if places and kind < 8 else range(len(data))
        at = min(rng.choice(pool), len(data) - 1)
        how = rng.randrange(6)
        if how < 3:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 3:
            data[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        elif how == 4:
            n = rng.choice([2, 4, 8])
            data[at:at + n] = rng.choice([0, 1, (1 << 8 * n) - 1, 1 << (8 * n - 1), rng.getrandbits(8 * n)]).to_bytes(n, "little")
        elif rng.random() < 0.3:
            del data[at:at + rng.choice([1, 4, 100, len(data)])]
        else:
            data[at] = data[rng.randrange(len(data))]
    return bytes(data)


def assert_zip_readers_agree(path, description):
    """Two readers that have nothing to do with PyTorch find the same records at the same places."""
    places = {}
    try:
        archive = zipfile.ZipFile(path)
    except NotImplementedError:  # a version of the format, which PyTorch does not look at
        return
    with archive, open(path, "rb") as file:
        for info in archive.infolist():
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            places[info.header_offset + 30 + name + extra] = info
    for storage in description["storages"]:
        info = places.get(storage["off"])
        assert info and info.compress_type == zipfile.ZIP_STORED and info.file_size == storage["bytes"], f"{path}: {storage}"
    if libzip():
        opened = ctypes.c_void_p(libzip().zip_open(path.encode(), 16, None))  # ZIP_RDONLY
        assert opened, f"{path} is accepted, but libzip refuses it"
        assert libzip().zip_get_num_entries(opened, 0) == len(places), path
        for info in places.values():
            assert libzip().zip_name_locate(opened, info.orig_filename.encode(), 0) >= 0, f"{path}: {info}"
        libzip().zip_discard(opened)


@functools.cache
def libzip():
    """Where it is installed (Debian: libzip4)."""
    try:
        library = ctypes.CDLL("libzip.so.4")
    except OSError:
        return None
    library.zip_open.restype = ctypes.c_void_p
    library.zip_get_num_entries.restype = library.zip_name_locate.restype = ctypes.c_int64
    return library


def check_mutations(torch213, where, sources, count, seed):
    rng = random.Random(seed)
    accepted = 0
    parts = {p: (d := pathlib.Path(p).read_bytes(), structure(d, p), [] if p.endswith("safetensors") else pickles(d))
             for p in sources}
    for first in range(0, count, 500):
        files = []
        for i in range(first, min(first + 500, count)):
            source = rng.choice(sources)
            data, places, inner = parts[source]
            path = where / f"{i}{pathlib.Path(source).suffix}"
            path.write_bytes(mutate(rng, data, source, places, inner))
            files.append(str(path))
        mine = dump(files)
        taken = [p for p in files if "error" not in mine[p]]
        theirs = loaded(torch213, taken, weights_only=True)
        for path in taken:
            accepted += 1
            what = theirs[path]
            if "error" in what and path.endswith(".ts"):
                continue  # its code, which is never read here, may not fit its data any more
            assert "error" not in what, f"{path} is accepted, but the loader says {what['error']}"
            if not path.endswith(".safetensors"):
                assert_zip_readers_agree(path, mine[path])
            names = described(mine[path])
            if path.endswith(".ts"):
                # a module has parameters and buffers; an archive may hold more
                names = {n: v for n, v in names.items() if n in what["tensors"]}
            if mine[path]["skipped"]:
                what["tensors"] = {n: v for n, v in what["tensors"].items() if n in names}
            assert_same(names, what["tensors"], path)
        mapped.cache_clear()
        for path in files:
            os.unlink(path)
    return accepted


def mutation_sources(torch113, torch213, tmp_path):
    paths = make(torch113, tmp_path / "a", 40, 3) + make(torch213, tmp_path / "b", 60, 4)
    return [p for p in paths if os.path.getsize(p) < 40000]


def test_mutated_checkpoints_are_refused_or_read_alike(torch113, torch213, tmp_path):
    sources = mutation_sources(torch113, torch213, tmp_path)
    assert check_mutations(torch213, tmp_path, sources, 500, 5) > 20


@pytest.mark.slow
def test_ten_thousand_mutations(torch113, torch213, tmp_path):
    sources = mutation_sources(torch113, torch213, tmp_path)
    assert check_mutations(torch213, tmp_path, sources, 10000, 6) > 500
