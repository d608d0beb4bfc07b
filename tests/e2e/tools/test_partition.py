"""swapnet-partition as people and scripts use it, and what is left of a build that is killed, finds no room, or loses its
power: the old store or the new one, whole, and nothing else.

The faults from outside need strace, and root for mounts; without those a test is skipped.
"""
import collections
import csv
import fcntl
import io
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

import pytest

import harness

sys.path.append(str(harness.E2E / "loading"))  # also where this folder runs alone

import test_checkpoints  # noqa: E402

PARTITION = harness.BUILD / "bin" / "swapnet-partition"
CTL = harness.BUILD / "bin" / "swapnetctl"
DUMP = harness.BUILD / "tests" / "ckpt_dump"
OK, FAILURE, USAGE, NO_ROOM, REFUSED, MISMATCH, TOO_SMALL = 0, 1, 2, 4, 5, 6, 7


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, env=harness.clean_env(), **options)


def part(*args, code=OK, **options):
    result = run(PARTITION, *args, **options)
    assert result.returncode == code, result
    if code:
        assert result.stdout == "" and result.stderr.startswith(("swapnet-partition: ", "Usage: ")), result
    return result


def newest():
    return harness.TORCH213 if not harness.TORCH213.missing() else harness.TORCH113


@pytest.fixture(scope="module")
def checkpoints():
    """Made once by the newer PyTorch, to be copied."""
    with harness.disk_dir() as path:
        done = run(newest().python, harness.program_file("make_checkpoint"), path)
        assert done.returncode == 0, done.stderr
        yield pathlib.Path(path)


def layers(store):
    return [layer["name"] for layer in json.loads(part("inspect", "-o", "json", store).stdout)["layers"]]


# ---- what it is for ----

@pytest.mark.by_turns
def test_extract_of_build_is_equal(torch, disk):
    disk = pathlib.Path(disk)
    assert run(torch.python, harness.program_file("make_checkpoint"), disk).returncode == 0
    assert part("build", "-q", disk / "model.pth", "-o", disk / "s").stdout == f"{disk}/s\n"
    assert "equal to the checkpoint" in part("verify", disk / "s").stdout
    assert "equal to the checkpoint" in part("verify", disk / "s", disk / "model.pth").stdout
    part("extract", disk / "s", "-o", disk / "out.safetensors")
    compare = """
import json, struct, sys, torch
state = torch.load(sys.argv[1])
raw = open(sys.argv[2], "rb").read()
size, = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8:8 + size])
assert set(header) == set(state)
end = 0
for name, entry in header.items():
    t = state[name].contiguous()
    begin, end = entry["data_offsets"]
    assert entry["shape"] == list(t.shape)
    view = torch.view_as_real(t) if t.is_complex() else t
    data = view.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
    assert raw[8 + size + begin:8 + size + end] == data, name
assert 8 + size + end == len(raw)
"""
    done = run(torch.python, "-c", compare, disk / "model.pth", disk / "out.safetensors")
    assert done.returncode == 0, done.stderr
    if torch.has("safetensors"):
        load = "import sys, safetensors.torch as s; assert len(s.load_file(sys.argv[1])) == 15"
        assert run(torch.python, "-c", load, disk / "out.safetensors").returncode == 0


NOT_IN_SAFETENSORS = {"complex32", "complex128", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"}


def is_left_out(dtype, shape):
    """Of halves of a byte the last dimension has twice as many, so there is no single pair."""
    return dtype in NOT_IN_SAFETENSORS or dtype == "float4_e2m1fn_x2" and not shape


def test_extract_of_build_of_all_kinds(torch, tmp_path):
    """The hundred checkpoints (fifty by each PyTorch) that the readers are tested with. All that the format can hold comes
    out equal; of a checkpoint with more than that, only on request."""
    extracted, whole = {}, 0
    paths = test_checkpoints.make(torch, tmp_path / "made", 50, 1)
    before = test_checkpoints.dump(paths, DUMP)
    for i, path in enumerate(paths):
        store, out = tmp_path / f"{i}.store", tmp_path / f"{i}.safetensors"
        part("build", "-q", path, "-o", store)
        assert "equal to the checkpoint" in part("verify", store, path).stdout
        left = [t["name"] for t in before[path]["tensors"] if is_left_out(t["dtype"], t["shape"])]
        if left:
            refused = part("extract", store, "-o", out, code=REFUSED).stderr
            assert "for its element type" in refused or "no single element" in refused
            assert f"({len(left)} of " in refused and not out.exists()
            said = part("extract", "--skip", store, "-o", out).stderr.splitlines()
            assert len(said) == len(left) and all(line.startswith("swapnet-partition: left out: '") for line in said)
        else:
            assert part("extract", store, "-o", out).stderr == ""
            whole += 1
        extracted[path] = str(out)
    assert len(extracted) == 50 and 20 < whole < 50
    after = test_checkpoints.dump(extracted.values(), DUMP)
    for path, out in extracted.items():
        was, now = test_checkpoints.described(before[path]), test_checkpoints.described(after[out])
        assert ({n: (d, s, h) for n, (d, s, _, h) in was.items() if not is_left_out(d, s)} ==
                {n: (d, s, h) for n, (d, s, _, h) in now.items()})
    print(f"{len(paths)} built and verified, {whole} extracted whole, {len(paths) - whole} in part")


@pytest.mark.by_turns
def test_what_a_store_cannot_hold_is_said(torch, disk):
    """By every command whose user may expect all of the checkpoint."""
    disk = pathlib.Path(disk)
    made = run(torch.python, "-c", f"""
import torch
w = torch.ones(3, 3)
torch.save({{'w': w, 's': w.to_sparse(), 'q': torch.quantize_per_tensor(w, 0.1, 1, torch.qint8)}}, '{disk}/c.pt')""")
    assert made.returncode == 0, made.stderr
    first = "s: a sparse tensor"
    said = part("build", "-q", disk / "c.pt", "-o", disk / "s").stderr
    assert f"2 tensors of {disk}/c.pt are not in the store, the first: {first}" in said
    part("build", "-q", "--from-store", disk / "s", "-o", disk / "again")
    for path in (disk / "c.pt", disk / "s", disk / "again"):
        found = json.loads(part("inspect", "-o", "json", path).stdout)
        assert (found["tensor_count"], found["skipped_count"], found["skipped_first"]) == (1, 2, first)
        assert first in part("inspect", path).stderr
    for args in ((disk / "s",), (disk / "s", disk / "c.pt")):
        verified = part("verify", *args)
        assert "equal to the checkpoint but for 2 that are not in the store" in verified.stdout and first in verified.stderr
    assert first in part("extract", disk / "s", "-o", disk / "o", code=REFUSED).stderr
    assert first in part("extract", "--skip", disk / "s", "-o", disk / "o").stderr
    assert json.loads(part("inspect", "-o", "json", disk / "o").stdout)["tensor_count"] == 1
    stores = part("build", "-q", disk / "c.pt", "-s", disk / "cache")
    assert first in stores.stderr and first in part("verify", stores.stdout.strip()).stderr


def test_not_regular_files(disk):
    """The FIFO has no writer: a command that opened it as a file would wait for ever."""
    os.mkfifo(f"{disk}/fifo")
    for args in (("inspect",), ("build", "-q", "-o", f"{disk}/s"), ("build", "-q", "-s", f"{disk}/cache"), ("verify",)):
        assert "not a regular file" in part(*args, f"{disk}/fifo", code=REFUSED).stderr


@pytest.mark.parametrize("kind", ["fifo", "link", "stdout", "directory", "device"])
def test_output_that_is_no_regular_file_is_not_replaced(checkpoints, disk, kind):
    """build and extract say so in one line, and it stays what it is."""
    disk = pathlib.Path(disk)
    out = disk / "out"
    if kind == "fifo":
        os.mkfifo(out)
    elif kind == "directory":
        out.mkdir()
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        os.mknod(out, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        out.symlink_to("/proc/self/fd/1" if kind == "stdout" else "target")
        (disk / "target").write_text("as it was")
    before = os.lstat(out)
    part("build", "-q", checkpoints / "model.pth", "-o", disk / "s")
    for args in ("build", "-q", checkpoints / "model.pth"), ("extract", disk / "s"):
        said = part(*args, "-o", out, code=FAILURE).stderr
        assert said.count("\n") == 1 and str(out) in said and "choose another name" in said
    after = os.lstat(out)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert kind != "link" or (disk / "target").read_text() == "as it was"


def test_linked_store_is_not_replaced(checkpoints, disk):
    disk = pathlib.Path(disk)
    part("build", "-q", checkpoints / "model.pth", "-o", disk / "s")
    (disk / "link").symlink_to("s")
    assert "symbolic link" in part("build", "-q", "--from-store", disk / "link", code=FAILURE).stderr
    assert (disk / "link").is_symlink()


def test_inspect(checkpoints, disk):
    part("build", "-q", checkpoints / "model.pth", "-o", f"{disk}/s")
    of_checkpoint = json.loads(part("inspect", "-o", "json", checkpoints / "model.pth").stdout)
    of_store = json.loads(part("inspect", "-o", "json", f"{disk}/s").stdout)
    assert of_checkpoint["schema"] == 1 and of_checkpoint["format"] == "torch" and of_store["format"] == "store"
    for key in ("layers", "layer_count", "tensor_count", "bytes", "store_bytes", "largest_layer",
                "smallest_budget_bytes", "library_least_bytes"):
        assert of_checkpoint[key] == of_store[key]
    assert of_store["tensor_count"] == 15 and of_store["store_bytes"] == os.path.getsize(f"{disk}/s")
    assert of_store["largest_layer"] == {"name": "large", "bytes": 1 << 20}
    by_name = {layer["name"]: layer for layer in of_store["layers"]}
    assert list(by_name) == ["stem", "a", "b", "c", "d", "e", "f", "", "large"]
    assert by_name["c"]["dtypes"] == ["bfloat16", "bool"]
    assert by_name["e"]["bytes"] == 0 and by_name["e"]["memory_bytes"] == by_name["d"]["memory_bytes"] == 86016
    assert of_store["smallest_budget_bytes"] == (1 << 20) + 4096
    # A model this small stays in memory whole; one of large layers is cut.
    assert 1 << 20 < of_store["library_least_bytes"] <= sum(layer["memory_bytes"] for layer in of_store["layers"])
    table = part("inspect", f"{disk}/s").stdout
    assert "(top)" in table and "largest layer large (1.0 MiB)" in table
    assert "under the preload library: smallest budget 1." in table


def test_order_and_from_store(checkpoints, disk):
    disk = pathlib.Path(disk)
    shutil.copy(checkpoints / "plain.pth", disk / "c.pth")
    part("build", "-q", disk / "c.pth", "-o", disk / "s")
    names = layers(disk / "s")
    (disk / "order").write_text("\n".join(reversed(names)) + "\nno such layer\n")
    result = part("build", "-q", disk / "c.pth", "-o", disk / "r", "--order", disk / "order")
    assert "1 of 25 names" in result.stderr
    assert layers(disk / "r") == names[::-1]
    (disk / "c.pth").unlink()
    part("build", "-q", "--from-store", disk / "r")  # in place, in the order it has
    assert layers(disk / "r") == names[::-1]
    learned = disk / "r.order"  # which nobody has asked for, and which may be another user's
    learned.write_text("\n".join(names))
    part("build", "-q", "--from-store", disk / "r", "-o", disk / "again")
    assert layers(disk / "again") == names
    for make, why in ((os.mkfifo, "not a regular"), (lambda path: path.symlink_to("/dev/zero"), "not a regular"),
                      (lambda path: path.touch() or os.truncate(path, 1 << 34), "so long")):
        learned.unlink()
        make(learned)
        assert why in part("build", "-q", "--from-store", disk / "r", "-o", disk / "again", code=FAILURE).stderr
    learned.unlink()
    (disk / "order").write_text("\n".join(names))
    part("build", "-q", "--from-store", disk / "r", "--order", disk / "order", "-o", disk / "order", code=USAGE)
    part("build", "-q", "--from-store", disk / "r", "--order", disk / "order", "-o", disk / "again")
    assert (disk / "again").read_bytes() == (disk / "s").read_bytes()


def test_plan(checkpoints, disk):
    part("build", "-q", checkpoints / "plain.pth", "-o", f"{disk}/s")
    least = json.loads(part("inspect", "-o", "json", f"{disk}/s").stdout)["smallest_budget_bytes"]
    refusal = part("plan", "-b", least - 1, f"{disk}/s", code=TOO_SMALL)
    assert str(least) in refusal.stderr
    for budget in (least, 3 * least, 100 * least):
        plan = json.loads(part("plan", "-b", budget, "-o", "json", f"{disk}/s").stdout)
        assert plan["schema"] == 1 and plan["minimum_budget_bytes"] == least
        sizes = [block["bytes"] for block in plan["blocks"]]
        pairs = [a + b for a, b in zip(sizes, sizes[1:])] or sizes
        assert max(pairs) == plan["largest_pair_bytes"] <= budget
        assert plan["points"] == [block["first_layer"] for block in plan["blocks"]][1:]
        assert sum(block["layers"] for block in plan["blocks"]) == 24
        assert len(sizes) == plan["block_count"] >= min(24, -(-2 * sum(sizes) // budget))
    plan = json.loads(part("plan", "-b", "1G", "--blocks", 5, "-o", "json", f"{disk}/s").stdout)
    assert plan["block_count"] == 5
    assert "neighbours" in part("plan", "-b", "1G", "-n", 5, f"{disk}/s").stdout
    part("plan", "-b", least, "-n", 2, f"{disk}/s", code=TOO_SMALL)
    part("plan", "-b", "1G", "-n", 25, f"{disk}/s", code=USAGE)
    # a checkpoint is planned as its store would be
    assert part("plan", "-b", least, "-o", "json", checkpoints / "plain.pth").stdout == \
        part("plan", "-b", least, "-o", "json", f"{disk}/s").stdout


def test_names_are_not_commands(disk):
    """Of a terminal that shows them."""
    path = pathlib.Path(disk) / "c.safetensors"
    write_safetensors(path, {"a\33[2Jb.weight": [1] * 100, "c\33[2Jd.weight": [2] * 100, "e\x9b2Jf.weight": [3] * 100})
    for args in (("inspect",), ("plan", "-b", "1M")):
        shown = part(*args, path).stdout
        assert "\33" not in shown and "\x9b" not in shown and "?[2J" in shown and "??2J" in shown, shown


def test_sharded(checkpoints, disk):
    if not newest().has("safetensors"):
        pytest.skip("no safetensors: scripts/setup --with-2.13")
    index = checkpoints / "model.safetensors.index.json"
    stores = part("build", "-q", index, "-s", f"{disk}/cache").stdout.split()
    assert len(stores) == 2 and all(os.path.dirname(s) == f"{disk}/cache" for s in stores)
    assert part("build", "-q", index, "-s", f"{disk}/cache").stdout.split() == stores  # there already
    for store in stores:
        assert "equal to the checkpoint" in part("verify", store).stdout
    part("build", "-q", index, "-o", f"{disk}/one")
    assert "48 tensors" in part("verify", f"{disk}/one").stdout
    assert "equal to the checkpoint" in part("verify", f"{disk}/one", index).stdout


def test_times_that_do_not_tell(checkpoints, disk):
    """The library finds a store by the file's times, so one is only built when those show the next write."""
    mkfs = shutil.which("mkfs.ext4")
    if not mkfs:
        pytest.skip("needs mkfs.ext4 (Debian: e2fsprogs)")
    with open(f"{disk}/image", "wb") as image:
        image.truncate(8 << 20)
    assert run(mkfs, "-q", "-I", "128", f"{disk}/image").returncode == 0  # whole seconds
    with harness.mounted("-o", "loop", f"{disk}/image", at=f"{disk}/mnt") as mnt:
        shutil.copy(checkpoints / "plain.pth", mnt / "c.pth")
        part("build", "-q", mnt / "c.pth", "-s", f"{disk}/cache")
        assert time.time() > os.stat(mnt / "c.pth").st_ctime + 2
    with harness.mounted("-t", "tmpfs", "-o", "size=8m", "none", at=f"{disk}/mnt") as mnt:
        shutil.copy(checkpoints / "plain.pth", mnt / "c.pth")
        refused = part("build", "-q", mnt / "c.pth", "-s", f"{disk}/cache", code=REFUSED)
        assert "in memory" in refused.stderr and "--output" in refused.stderr
        part("build", "-q", mnt / "c.pth", "-o", f"{disk}/s")
        built = part("build", "-q", checkpoints / "plain.pth", "-s", mnt / "cache")
        assert f"warning: the cache directory {mnt}/cache lies in memory" in built.stderr and str(mnt) in built.stdout
    assert part("build", "-q", checkpoints / "plain.pth", "-s", f"{disk}/cache").stderr == ""


def test_more_shards_than_files_may_be_open_unasked(disk):
    disk = pathlib.Path(disk)
    names = [f"s{i}.safetensors" for i in range(200)]
    for i, name in enumerate(names):
        write_safetensors(disk / name, {f"l{i}": [i]})
    index = disk / "m.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {f"l{i}": name for i, name in enumerate(names)}}))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = part("inspect", "-o", "json", index, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard)))
    assert json.loads(done.stdout)["tensor_count"] == 200


def test_shards_and_the_cap(disk):
    """A program needs the stores of all shards, so none is removed to make room for another, nor by copies of one."""
    disk = pathlib.Path(disk)
    shards = [f"{i}.safetensors" for i in range(4)]
    for i, name in enumerate(shards):
        write_safetensors(disk / name, {f"l{i}": [i] * (1 << 18)})
    index = disk / "m.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {f"l{i}": name for i, name in enumerate(shards)}}))
    need = 4 * ((1 << 20) + 4096)
    assert run(CTL, "cache", "cap", str(need - 1), "-s", disk / "cache").returncode == 0
    refused = part("build", "-q", index, "-s", disk / "cache", code=NO_ROOM)
    assert f"need {need} bytes" in refused.stderr and os.listdir(disk / "cache") == ["cap"]
    assert run(CTL, "cache", "cap", str(need + (1 << 20)), "-s", disk / "cache").returncode == 0
    for _ in range(2):
        paths = part("build", "-q", index, "-s", disk / "cache").stdout.split()
        assert len(set(paths)) == 4 and all(os.path.exists(path) for path in paths)
        sizes = sorted(os.path.getsize(path) for path in paths)
        assert sizes[0] == need // 4 and sum(sizes) > need  # with copies, as far as there is room
    # Copies that were written when there was more room give way.
    assert run(CTL, "cache", "cap", str(need), "-s", disk / "cache").returncode == 0
    paths = part("build", "-q", index, "-s", disk / "cache").stdout.split()
    assert [os.path.getsize(path) for path in paths] == [need // 4] * 4


def test_cache_commands(checkpoints, disk):
    def ctl(*args, code=0):
        result = run(CTL, "cache", *args, "-s", f"{disk}/cache")
        assert result.returncode == code, result
        return result.stdout

    assert "0 stores" in ctl("ls")
    shutil.copy(checkpoints / "plain.pth", f"{disk}/a.pth")
    shutil.copy(checkpoints / "model.pth", f"{disk}/b.pth")
    a = part("build", "-q", f"{disk}/a.pth", "-s", f"{disk}/cache").stdout.strip()
    os.utime(a, (1, 1))
    b = part("build", "-q", f"{disk}/b.pth", "-s", f"{disk}/cache").stdout.strip()
    os.truncate(f"{disk}/b.pth", 5)
    listed = json.loads(ctl("ls", "-o", "json"))
    assert listed["schema"] == 1 and listed["bytes"] == os.path.getsize(a) + os.path.getsize(b)
    assert [(s["source"], s["stale"]) for s in listed["stores"]] == [(f"{disk}/a.pth", False), (f"{disk}/b.pth", True)]
    assert "gone or changed" in ctl("ls")
    rows = [{key: value if isinstance(value, str) else json.dumps(value) for key, value in s.items()} for s in listed["stores"]]
    assert list(csv.DictReader(io.StringIO(ctl("ls", "-o", "csv")))) == rows
    part("build", "-q", f"{disk}/a.pth", "-s", f"{disk}/cache")  # marks it as used
    ctl("cap", str(os.path.getsize(a) + os.path.getsize(b) - 1))
    assert os.listdir(f"{disk}/cache") and os.path.exists(a) and not os.path.exists(b)
    ctl("cap", "4096")
    assert not os.path.exists(a)
    refusal = part("build", "-q", f"{disk}/a.pth", "-s", f"{disk}/cache", code=NO_ROOM)
    assert "cache cap" in refusal.stderr and "needs" in refusal.stderr
    ctl("cap", "none")
    assert ctl("cap") == "none\n"
    part("build", "-q", f"{disk}/a.pth", "-s", f"{disk}/cache")
    ctl("rm", os.path.basename(a))
    ctl("rm", os.path.basename(a), code=1)
    ctl("rm", "--all", "x", code=2)
    ctl("cap", "0", code=2)
    os.chmod(f"{disk}/cache", 0o777)
    assert "others" in part("build", "-q", f"{disk}/a.pth", "-s", f"{disk}/cache", code=FAILURE).stderr


def test_files_of_killed_builds_are_listed_and_removed(disk):
    cache = pathlib.Path(disk) / "cache"
    cache.mkdir(mode=0o700)
    dead, living = (cache / f".swapnet-000000000000000{i}.tmp" for i in range(2))
    dead.write_bytes(bytes(3 << 20))
    living.write_bytes(bytes(5 << 20))
    with open(living) as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # as its writer has it
        shown = run(CTL, "cache", "ls", "-s", cache).stdout
        assert "3.0 MiB of builds that were killed" in shown and "5.0 MiB of stores that are being built" in shown
        listed = json.loads(run(CTL, "cache", "ls", "-o", "json", "-s", cache).stdout)
        assert (listed["killed_bytes"], listed["building_bytes"]) == (3 << 20, 5 << 20)
        assert dead.exists(), "a look removes nothing"
        assert run(CTL, "cache", "rm", "--all", "-s", cache).returncode == 0
        assert not dead.exists() and living.exists()


def test_cells_that_a_spreadsheet_would_run(disk):
    """They begin with an apostrophe, by which it takes them for texts."""
    disk = pathlib.Path(disk)
    for i, name in enumerate(("=1+1", "+1", "-1", "@a", "a=1")):
        write_safetensors(disk / "c.safetensors", {name: [i] * 1000})
        done = run(CTL, "plan", "-t", "64M", "-o", "csv", f"{disk}/c.safetensors,name={name}")
        row, = csv.DictReader(io.StringIO(done.stdout))
        assert row["name"] == (name if name == "a=1" else "'" + name), done


def test_extract_of_a_private_store_is_private(checkpoints, disk):
    disk = pathlib.Path(disk)
    part("build", "-q", checkpoints / "model.pth", "-o", disk / "s")
    for mode in 0o600, 0o640:
        os.chmod(disk / "s", mode)
        part("extract", disk / "s", "-o", disk / "x")
        assert stat.S_IMODE(os.stat(disk / "x").st_mode) & ~mode == 0


def test_store_off(disk):
    """off is no directory."""
    write_safetensors(disk / "c.safetensors", {"x": [1] * 3000})
    for command in ([PARTITION, "build", "-q", "c.safetensors"], [CTL, "cache", "ls"], [CTL, "cache", "cap", "1G"]):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, cwd=disk,
                              env=harness.clean_env() | {"SWAPNET_STORE": "off", "HOME": str(disk)})
        assert done.returncode in (FAILURE, USAGE) and "SWAPNET_STORE is off" in done.stderr, done
    assert os.listdir(disk) == ["c.safetensors"]


@pytest.mark.parametrize("args", [(), ("nonsense",), ("inspect",), ("inspect", "a", "b"), ("inspect", "-o", "xml", "a"),
                                  ("build",), ("build", "a", "b"), ("build", "-o", "", "a"), ("build", "-x", "a"),
                                  ("build", "a", "--from-store", "b"), ("plan", "a"), ("plan", "-b", "x", "a"),
                                  ("plan", "-b", "1M", "-n", "0", "a"), ("plan", "-b", "0", "a"), ("verify",),
                                  ("extract", "a"), ("extract", "-o"), ("version", "x"), ("help", "nonsense")])
def test_usage(args):
    part(*args, code=USAGE)


def test_help_and_version():
    for word in ("inspect", "build", "plan", "verify", "extract", "version", "help"):
        assert part("help", word).stdout.startswith("Usage: swapnet-partition ")
    assert part("build", "--help").stdout == part("help", "build").stdout
    assert part("--version").stdout == part("version").stdout
    with open("/dev/full", "w") as full:
        done = subprocess.run([PARTITION, "help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and "No space left" in done.stderr


def test_output_is_no_input(checkpoints, disk):
    disk = pathlib.Path(disk)
    shutil.copy(checkpoints / "plain.pth", disk / "c.pth")
    part("build", "-q", disk / "c.pth", "-o", disk / "s")
    (disk / "order").write_text("\n".join(layers(disk / "s")[::-1]))
    (disk / "link").symlink_to("c.pth")
    before = {path: path.read_bytes() for path in disk.iterdir()}
    for output in ("c.pth", "link", "order"):
        part("build", "-q", disk / "c.pth", "--order", disk / "order", "-o", disk / output, code=USAGE)
    part("extract", disk / "s", "-o", f"{disk}/./s", code=USAGE)
    assert {path: path.read_bytes() for path in disk.iterdir()} == before
    index = checkpoints / "model.safetensors.index.json"
    if index.exists():
        for path in checkpoints.glob("*.safetensors*"):
            shutil.copy(path, disk)
        for path in checkpoints.glob("*.safetensors*"):
            part("build", "-q", disk / index.name, "-o", disk / path.name, code=USAGE)
            assert (disk / path.name).read_bytes() == path.read_bytes()
    part("build", "-q", "--from-store", disk / "s", "-o", disk / "s", "--order", disk / "order")  # in place


def test_refusals(checkpoints, disk):
    pathlib.Path(f"{disk}/junk").write_bytes(b"junk" * 2000)
    part("inspect", f"{disk}/junk", code=REFUSED)
    part("build", "-q", f"{disk}/junk", "-o", f"{disk}/s", code=REFUSED)
    part("verify", f"{disk}/junk", code=REFUSED)
    part("inspect", f"{disk}/nothing", code=FAILURE)
    assert os.listdir(disk) == ["junk"]


# ---- damage ----

def test_verify_finds_damage(checkpoints, disk):
    store, copy = pathlib.Path(f"{disk}/s"), f"{disk}/c.pth"
    shutil.copy(checkpoints / "plain.pth", copy)
    part("build", "-q", copy, "-o", store)
    good = store.read_bytes()
    for at, what in ((len(good) - 1, "padding"), (len(good) - 4096, "checksum")):
        store.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        found = part("verify", store, code=MISMATCH)
        assert f"the {what} does not match" in found.stderr and "layer23" in found.stderr
        assert f"at offset {len(good) - 24576}, 22400 bytes" in found.stderr
    damaged = store.read_bytes()
    part("extract", store, "-o", f"{disk}/out", code=MISMATCH)
    part("build", "-q", "--from-store", store, code=MISMATCH)
    assert store.read_bytes() == damaged and sorted(os.listdir(disk)) == ["c.pth", "s"]
    # the checkpoint is another one now: whole by itself, but not equal
    store.write_bytes(good)
    raw = bytearray(pathlib.Path(copy).read_bytes())
    spot = raw.index(good[-8192:-8192 + 64])
    raw[spot + 10] ^= 1
    pathlib.Path(copy).write_bytes(raw)
    assert "equal" not in part("verify", store).stdout
    found = part("verify", store, copy, code=MISMATCH)
    assert f"offset {spot + 10}" in found.stderr and "layer23" in found.stderr
    part("verify", store, checkpoints / "model.pth", code=MISMATCH)


def write_safetensors(path, tensors):
    """float32 tensors of one dimension."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.slow
@pytest.mark.timed
def test_verify_takes_no_longer_than_its_tensors_are_many(disk):
    """Eight times the tensors take at most sixteen times the processor's time; a square would take 64 times."""
    def seconds(count):
        path, store = pathlib.Path(disk) / "c.safetensors", pathlib.Path(disk) / "s"
        write_safetensors(path, {f"layer{i}.weight": [i] * 10 for i in range(count)})
        part("build", "-q", path, "-o", store)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "equal" in part("verify", store, path).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    few, many = seconds(500), seconds(4000)
    harness.in_time(many < 16 * max(few, 0.01), f"{few:.3f} s for 500 tensors, {many:.3f} for 4,000")


def test_extract_of_a_little_that_repeats_itself_is_refused(disk):
    """A few bytes that say they are many do not fill the disk."""
    disk = pathlib.Path(disk)
    torch = harness.TORCH213 if not harness.TORCH213.missing() else harness.TORCH113
    made = "import sys, torch; torch.save({'few': torch.ones(8), 'many': torch.ones(1, 8).expand(1 << 18, 8)}, sys.argv[1])"
    assert run(torch.python, "-c", made, disk / "c.pth").returncode == 0
    part("build", "-q", disk / "c.pth", "-o", disk / "s")
    refused = part("extract", disk / "s", "-o", disk / "out.safetensors", code=REFUSED).stderr
    assert "'many': by strides of 0 it repeats its bytes" in refused and not (disk / "out.safetensors").exists()
    assert "'many'" in part("extract", "--skip", disk / "s", "-o", disk / "out.safetensors").stderr
    assert (disk / "out.safetensors").stat().st_size < 4096


def test_verify_ties(checkpoints, disk):
    """d.weight and e.weight are one extent of the store; extracted, each is by itself."""
    disk = pathlib.Path(disk)
    torch = harness.TORCH213 if not harness.TORCH213.missing() else harness.TORCH113
    tied = "import sys, torch; w = torch.ones(4000); torch.save({'d.weight': w, 'e.weight': w}, sys.argv[1])"
    assert run(torch.python, "-c", tied, disk / "c.pth").returncode == 0
    part("build", "-q", disk / "c.pth", "-o", disk / "s")
    write_safetensors(disk / "c.safetensors", {"d.weight": [1] * 4000, "e.weight": [1] * 4000})
    assert "equal to the checkpoint" in part("verify", disk / "s", disk / "c.safetensors").stdout
    write_safetensors(disk / "c.safetensors", {"d.weight": [1] * 4000, "e.weight": [1] * 3999 + [2]})
    assert "e.weight" in part("verify", disk / "s", disk / "c.safetensors", code=MISMATCH).stderr


def test_verify_shards(disk):
    """A shard holds a tensor that the index takes from another one: an older copy, as merged checkpoints have it."""
    disk = pathlib.Path(disk)
    write_safetensors(disk / "a.safetensors", {"x": [1] * 3000, "y": [2] * 3000})
    write_safetensors(disk / "b.safetensors", {"y": [3] * 3000})
    index = disk / "m.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    part("build", "-q", index, "-o", disk / "s")
    assert "2 tensors" in part("verify", disk / "s").stdout and "equal" in part("verify", disk / "s").stdout
    # What the store has under no name is still missed.
    part("build", "-q", disk / "b.safetensors", "-o", disk / "s")
    write_safetensors(disk / "a.safetensors", {"x": [1] * 3000, "y": [3] * 3000})
    assert "holds 1 of the 2" in part("verify", disk / "s", disk / "a.safetensors", code=MISMATCH).stderr


def test_index_and_shards(disk):
    """What a map may say, and what every command answers to it."""
    disk = pathlib.Path(disk)
    write_safetensors(disk / "a.safetensors", {"x": [1] * 3000, "y": [2] * 3000})
    write_safetensors(disk / "b.safetensors", {"y": [3] * 3000, "z": [4] * 3000, "u": [5] * 3000})
    write_safetensors(disk / "empty.safetensors", {})
    index = disk / "m.safetensors.index.json"

    def map_to(**files):
        index.write_text(json.dumps({"weight_map": {name: f"{file}.safetensors" for name, file in files.items()}}))

    for weight_map, code, words in (
            (dict(x="a", y="a", z="b"), REFUSED, "'y' is in a.safetensors and in b.safetensors"),
            (dict(x="a", z="b"), REFUSED, "the index does not say where"),
            (dict(x="a", y="b", w="b"), REFUSED, "no tensor 'w' in b.safetensors"),
            (dict(x="a", y="c"), FAILURE, "c.safetensors: No such file or directory; the index names it")):
        map_to(**weight_map)
        for command in (["inspect", index], ["plan", "-b", "1M", index], ["build", "-q", index, "-o", disk / "s"],
                        ["build", "-q", index, "-s", disk / "cache"]):
            refused = part(*command, code=code)
            assert words in refused.stderr and refused.stderr.count("\n") == 1, refused
    assert not (disk / "s").exists() and not (disk / "cache").exists()
    map_to(x="empty", y="b", z="a")  # x and z are elsewhere, u is not named
    part("build", "-q", index, "-o", disk / "s")
    for path in (index, disk / "s"):
        shown = json.loads(part("inspect", "-o", "json", path).stdout)
        assert (shown["tensor_count"], shown["bytes"], shown["layer_count"]) == (4, 48000, 1), shown
    for given in ([], [index]):
        assert "4 tensors" in (said := part("verify", disk / "s", *given).stdout) and "equal" in said
    part("extract", disk / "s", "-o", disk / "out.safetensors")
    write_safetensors(disk / "want.safetensors", {"x": [1] * 3000, "y": [3] * 3000, "z": [4] * 3000, "u": [5] * 3000})
    part("build", "-q", disk / "want.safetensors", "-o", disk / "want")
    assert "equal" in part("verify", disk / "want", disk / "out.safetensors").stdout
    assert len(set(part("build", "-q", index, "-s", disk / "cache").stdout.split())) == 3
    map_to(x="a", y="a", z="b")
    assert "'y' is in" in part("verify", disk / "s", index, code=REFUSED).stderr


def cached_bytes(path):
    done = run("fincore", "--bytes", "--noheadings", "--output", "RES", path)
    assert done.returncode == 0, done
    return int(done.stdout)


@pytest.mark.skipif(not shutil.which("fincore"), reason="needs fincore (util-linux)")
def test_no_page_cache_is_left(checkpoints, disk):
    shutil.copy(checkpoints / "model.pth", f"{disk}/c.pth")
    part("build", "-q", f"{disk}/c.pth", "-o", f"{disk}/s")
    for name in ("c.pth", "s"):
        assert cached_bytes(f"{disk}/{name}") <= os.path.getsize(f"{disk}/{name}") / 100
    part("verify", f"{disk}/s")
    part("inspect", f"{disk}/s")
    assert cached_bytes(f"{disk}/s") <= 8192  # header and tables


# ---- no room ----

def test_no_room(checkpoints, disk):
    """A file system of every size up to the one that suffices: refused with the bytes needed, the old store stays."""
    part("build", "-q", checkpoints / "plain.pth", "-o", f"{disk}/new")
    needed = os.path.getsize(f"{disk}/new")
    pages = needed // 4096
    refused = 0
    for size in [*range(4, pages + 12, 7), *range(pages - 4, pages + 12)]:
        with harness.mounted("-t", "tmpfs", "-o", f"size={4096 * size}", "none", at=f"{disk}/mnt") as mnt:
            (mnt / "s").write_bytes(b"the old one")
            result = run(PARTITION, "build", "-q", checkpoints / "plain.pth", "-o", mnt / "s")
            assert os.listdir(mnt) == ["s"]
            if result.returncode == OK:
                assert (mnt / "s").read_bytes() == pathlib.Path(f"{disk}/new").read_bytes()
                assert size > pages
                continue
            assert result.returncode == NO_ROOM, result
            assert f"needs {needed} bytes" in result.stderr
            assert (mnt / "s").read_bytes() == b"the old one"
            refused += 1
    assert refused > 10


def test_file_size_limit(checkpoints, disk):
    """EFBIG comes with a signal that would kill."""
    result = run("bash", "-c", f"ulimit -f 64; exec '{PARTITION}' build -q '{checkpoints}/plain.pth' -o '{disk}/s'")
    assert result.returncode == NO_ROOM and "needs" in result.stderr and os.listdir(disk) == [], result


# ---- killed, and without power ----

needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")


class Sweep:
    """A build over an old store, to be stopped at any of its system calls."""

    def __init__(self, checkpoints, directory):
        self.dir = pathlib.Path(directory)
        self.store = self.dir / "s"
        self.order = checkpoints / "order"
        part("build", "-q", checkpoints / "plain.pth", "-o", self.store)
        self.old = layers(self.store)
        self.order.write_text("\n".join(reversed(self.old)))
        self.old_bytes = self.store.read_bytes()
        self.command = [PARTITION, "build", "-q", checkpoints / "plain.pth", "-o", self.store, "--order", self.order]

    def reset(self):
        self.store.write_bytes(self.old_bytes)

    def points(self):
        """(name, n): every system call of a build, from when it opens the checkpoint."""
        log = self.dir / "log"
        assert run("strace", "-f", "-o", log, *self.command).returncode == 0
        calls = collections.Counter()
        found = []
        for line in log.read_text().splitlines():
            if match := re.match(r"(?:\d+ +)?(\w+)\(", line):
                calls[match[1]] += 1
                if match[1] not in ("execve", "exit_group"):
                    found.append((match[1], calls[match[1]]))
        log.unlink()
        return found

    def killed_at(self, call, n):
        result = run("strace", "-f", "-o", "/dev/null", "-e", f"inject={call}:signal=SIGKILL:when={n}", *self.command)
        return result.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)

    def check(self):
        """The old one or the new one, whole."""
        part("verify", self.store)
        found = layers(self.store)
        assert found in (self.old, self.old[::-1])
        return found != self.old

    def converges(self):
        assert run(*self.command).returncode == 0
        assert self.check()
        assert os.listdir(self.dir) == ["s"]


@needs_strace
@pytest.mark.slow
def test_killed_at_every_system_call(checkpoints, disk):
    sweep = Sweep(checkpoints, disk)
    points = sweep.points()
    killed = new = 0
    for call, n in points:
        sweep.reset()
        killed += sweep.killed_at(call, n)
        new += sweep.check()
        sweep.converges()
    print(f"{len(points)} system calls, killed at {killed}, {new} times the new store was there")
    assert len(points) > 100 and killed > 0.95 * len(points)
    assert 0 < new < killed


class OtherSweep(Sweep):
    """What else replaces a file, or makes one: a store that is cut anew in its place, an extract over an old file, and a store in the
    cache, where there was none."""

    def __init__(self, checkpoints, directory, what):
        self.dir, source = pathlib.Path(directory) / "d", pathlib.Path(directory) / "source"
        self.dir.mkdir(mode=0o700)
        part("build", "-q", checkpoints / "plain.pth", "-o", source)
        order = pathlib.Path(directory) / "order"
        order.write_text("\n".join(reversed(layers(source))))
        self.store, self.old_bytes = self.dir / "s", {"recut": source.read_bytes(), "extract": b"old", "cache": None}[what]
        self.command = {"recut": [PARTITION, "build", "-q", "--from-store", self.store, "--order", order],
                        "extract": [PARTITION, "extract", source, "-o", self.store],
                        "cache": [PARTITION, "build", "-q", checkpoints / "plain.pth", "-s", self.dir]}[what]
        self.reset()
        done = run(*self.command)
        assert done.returncode == OK, done
        if what == "cache":
            self.store = pathlib.Path(done.stdout.strip())
        self.new_bytes = self.store.read_bytes()
        assert self.new_bytes != self.old_bytes

    def reset(self):
        for path in self.dir.iterdir():
            path.unlink()
        if self.old_bytes is not None:
            super().reset()

    def points(self):
        self.reset()
        return super().points()

    def check(self):
        found = self.store.read_bytes() if self.store.exists() else None
        assert found in (self.old_bytes, self.new_bytes)
        return found == self.new_bytes

    def converges(self):
        assert run(*self.command).returncode == 0
        assert self.check() and os.listdir(self.dir) == [self.store.name]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("what", ["recut", "extract", "cache"])
def test_others_killed_at_system_calls(checkpoints, disk, what):
    """All that change a file, and $SWAPNET_TEST_POINTS (40; 0: all) of the others."""
    sweep, most = OtherSweep(checkpoints, disk, what), int(os.environ.get("SWAPNET_TEST_POINTS", "40"))
    points, changing = sweep.points(), ("pwrite64", "fsync", "rename", "linkat", "fallocate", "unlink", "ftruncate")
    others = [point for point in points if point[0] not in changing]
    chosen = set(random.Random(1).sample(others, most) if 0 < most < len(others) else others)
    killed = new = tried = 0
    for call, n in points:
        if (call, n) in chosen or call in changing:
            tried += 1
            sweep.reset()
            killed += sweep.killed_at(call, n)
            new += sweep.check()
            sweep.converges()
    print(f"{what}: killed at {killed} of {len(points)} system calls, {new} times the new file was there")
    assert tried > 40 and killed > 0.9 * tried and 0 < new < killed


@needs_strace
@pytest.mark.slow
def test_killed_while_recovering(checkpoints, disk):
    sweep = Sweep(checkpoints, disk)
    points = [point for point in sweep.points() if point[0] in ("openat", "pwrite64", "fsync", "rename", "unlink",
                                                                 "fallocate", "flock", "close", "fstat", "newfstatat")]
    choose = random.Random(1)
    for _ in range(40):
        sweep.reset()
        sweep.killed_at(*choose.choice(points))
        sweep.check()
        sweep.killed_at(*choose.choice(points))
        sweep.check()
        sweep.converges()


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_power_loss(checkpoints, disk, kind):
    if not shutil.which(f"mkfs.{kind}") or not shutil.which("xfs_io"):
        pytest.skip(f"needs mkfs.{kind} and xfs_io (Debian: xfsprogs, e2fsprogs)")
    image, at = f"{disk}/image", f"{disk}/mnt"
    with open(image, "wb") as f:
        f.truncate(320 << 20)
    assert run(f"mkfs.{kind}", "-q", image).returncode == 0

    def mount(must=True):
        return harness.mounted("-o", "loop", image, at=at, must=must)

    def lose_power():
        assert run("xfs_io", "-x", "-c", "shutdown", at).returncode == 0

    with mount(must=False) as mnt:
        inner = mnt / "d"
        inner.mkdir()
        sweep = Sweep(checkpoints, inner)
        points = sweep.points()
    writing = [i for i, point in enumerate(points) if point[0] in ("pwrite64", "fsync", "rename", "fallocate")]
    chosen = sorted({*writing, *range(writing[0], len(points), 3)})
    new = 0
    for i in chosen:
        with mount():
            sweep.reset()
            os.sync()
            sweep.killed_at(*points[i])
            lose_power()
        with mount():
            new += sweep.check()
            sweep.converges()
    with mount():  # what was said to be done survives
        sweep.reset()
        os.sync()
        assert run(*sweep.command).returncode == 0
        lose_power()
    with mount():
        assert sweep.check()
    print(f"{kind}: power lost at {len(chosen)} points, {new} times the new store was there")
    assert len(chosen) > 15 and new < len(chosen)


@needs_strace
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_interrupted(checkpoints, disk, name):
    """Cleans up, then dies of the signal like any other program."""
    number = signal.Signals[f"SIG{name}"]
    sweep = Sweep(checkpoints, disk)
    # strace passes the signal on, but would be the one to report it. Under nohup, and in the background of a shell without
    # job control, it is ignored: programs leave that as it is, and so does the partitioner.
    done = run("env", f"--default-signal={name}", "bash", "-c",
               'strace -f -o /dev/null -e "inject=fallocate:signal=$0" "$@"; exit $?', f"SIG{name}", *sweep.command)
    assert done.returncode in (-number, 128 + number) and done.stdout == "", done
    assert os.listdir(disk) == ["s"] and sweep.store.read_bytes() == sweep.old_bytes


@needs_strace
def test_interrupted_extract(checkpoints, disk):
    part("build", "-q", checkpoints / "plain.pth", "-o", f"{disk}/s")
    done = run("bash", "-c", 'strace -f -o /dev/null -e "inject=fallocate:signal=SIGTERM" "$@"; exit $?', "bash",
               PARTITION, "extract", f"{disk}/s", "-o", f"{disk}/out.safetensors")
    assert done.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM) and done.stdout == "", done
    assert os.listdir(disk) == ["s"]


def test_progress_bar_on_a_terminal_only(checkpoints, disk):
    ours, theirs = os.openpty()
    done = subprocess.run([PARTITION, "build", checkpoints / "plain.pth", "-o", f"{disk}/s"], stderr=theirs,
                          stdout=subprocess.PIPE, text=True, timeout=60, env=harness.clean_env())
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0 and done.stdout == f"{disk}/s\n"
    assert "[" + "#" * 30 + "]" in shown and "MiB/s" in shown
    assert part("build", checkpoints / "plain.pth", "-o", f"{disk}/s").stderr == ""


# ---- the C API ----

def test_example_against_the_installed_library(checkpoints, disk):
    if not shutil.which("pkg-config") or not shutil.which("cc"):
        pytest.skip("needs pkg-config and a compiler")
    assert run("cmake", "--install", harness.BUILD, "--prefix", f"{disk}/usr").returncode == 0
    env = {**harness.clean_env(), "PKG_CONFIG_PATH": f"{disk}/usr/lib/pkgconfig", "LD_LIBRARY_PATH": f"{disk}/usr/lib"}
    example = harness.REPO / "docs" / "examples" / "read_block.c"
    built = subprocess.run(["bash", "-c", f"cc -Wall -Werror '{example}' $(pkg-config --cflags --libs swapnet) -o "
                                          f"'{disk}/read_block'"], env=env, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    part("build", "-q", checkpoints / "plain.pth", "-o", f"{disk}/s")
    result = subprocess.run([f"{disk}/read_block", f"{disk}/s", "0.1"], env=env, capture_output=True, text=True)
    assert result.returncode == 0, result
    assert result.stdout.count("block ") > 10 and len(re.findall(r"layer\d+\.\w+ float32 \[\d+\] ", result.stdout)) == 48
    result = subprocess.run([f"{disk}/read_block", f"{disk}/s", "0.01"], env=env, capture_output=True, text=True)
    assert result.returncode == 1 and "at least" in result.stderr
