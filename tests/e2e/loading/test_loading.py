"""Loading by reference: the bytes of a known checkpoint are not read before an operator needs them, whoever looks gets
the right ones, and what happens to the file afterwards changes nothing."""
import ctypes
import functools
import mmap
import os
import pathlib
import shutil
import subprocess

import pytest

import harness
from harness import MIB, both

BUDGET = 24  # MiB; the model has 96
WEIGHTS = 96 * MIB
KINDS = {"pth": "pth", "file": "pth", "bytes": "pth", "jit": "jit", "training": "training", "safetensors": "safetensors",
         "objects": "objects", "module": "module", "pt2": "pt2"}


@functools.cache
def checkpoint(torch, kind, *options):
    """The path of a checkpoint on a real disk, written once per session without swapnet, and not in the page cache."""
    directory = _disk_session()
    path = directory / f"{torch.name}-{'-'.join((kind, *options))}"
    with harness.disk_dir() as where:
        harness.make(torch, "make_weights", kind, str(path), *options, where=where)
    for file in path.rglob("*") if path.is_dir() else [path]:
        uncache(file)
    return str(path)


@functools.cache
def _disk_session():
    path = pathlib.Path("/var/tmp") / pathlib.Path(harness.session_dir("checkpoints")).name
    path = pathlib.Path(os.environ.get("SWAPNET_TEST_DIR", "/var/tmp")) / path.name
    path.mkdir(mode=0o700)
    harness.atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def uncache(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(path):
    """How much of a file is in the page cache."""
    size = os.path.getsize(path)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                                             flags=mmap.MAP_PRIVATE) as mapped:
        pages = (size + 4095) // 4096
        resident = (ctypes.c_ubyte * pages)()
        address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
        assert ctypes.CDLL(None, use_errno=True).mincore(address, ctypes.c_size_t(size), resident) == 0
        del address
    return 4096 * sum(byte & 1 for byte in resident)


def file_of(torch, how):
    return checkpoint(torch, KINDS[how.split(":")[0]])


def stores(directory):
    return sorted(pathlib.Path(directory).rglob("*.swnstore"))


@functools.cache
def warm_store(torch, how):
    """A store directory in which a first load of that file has left its store."""
    directory = _disk_session() / f"store-{torch.name}-{KINDS[how.split(':')[0]]}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if not stores(directory):
        with harness.setting_up():
            _quiet(load(torch, how, directory, "stop"))
    assert len(stores(directory)) == 1, list(directory.iterdir())
    return directory


def load(torch, how, store, *more, path=None, budget=BUDGET):
    with harness.disk_dir() as where:
        return harness.run(torch, "load_model", how, path or file_of(torch, how), *more, where=where, budget=budget,
                           env={"SWAPNET_STORE": str(store)})


def _quiet(run):
    assert run.rc == 0 and run.record, run.describe()
    assert run.own_lines() == [], run.describe()
    harness.assert_bounded(run)
    return run


each_113 = pytest.mark.parametrize("torch", [
    pytest.param(harness.TORCH113, id="torch1.13"),
    pytest.param(harness.TORCH213, id="torch2.13", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def torch(request):
    """The PyTorch a test is parametrised with; else each in turn (conftest)."""
    return request.getfixturevalue({"1.13": "torch113", "2.13": "torch213"}[request.param.name])


def ways():
    """(PyTorch, way of loading). Slow: those that differ little from another one."""
    quick = {("1.13", "pth"), ("2.13", "pth:mmap"), ("2.13", "safetensors"), ("1.13", "objects")}
    older = ["pth", "file", "pth:cpu", "pth:device", "pth:weights", "pth:again", "jit", "training", "objects", "module"]
    newer = ["pth:assign", "pth:pickle", "pth:meta:assign", "pth:mmap", "pth:mmap:assign", "pth:mmap:meta:assign",
             "safetensors", "safetensors:assign", "safetensors:meta:assign", "pt2", "objects:mmap"]
    for torch in harness.ALL_TORCH:
        for how in older + (newer if torch.name == "2.13" else []):
            marks = [] if (torch.name, how) in quick else [pytest.mark.slow]
            yield pytest.param(torch, how, id=f"{how}-torch{torch.name}", marks=marks)


@pytest.mark.forked
@pytest.mark.parametrize("torch, how", ways(), indirect=["torch"])
def test_known_checkpoint(torch, how):
    """With the store at hand next to nothing of the weights is read before the first inference (a block of each is
    compared, and what lies before the tensors is read); then the bits are equal."""
    store = None
    if "assign" in how and ("mmap" in how or "safetensors" in how):
        store = _disk_session() / "none-needed"
        store.mkdir(mode=0o700, exist_ok=True)
    else:
        store = warm_store(torch, how)
    for _ in range(3):  # code of libraries that has to be read counts as well, once
        uncache(file_of(torch, how))
        run = _quiet(load(torch, how, store, "stop"))
        if run.record["notes"]["read_bytes"] < 4 * MIB:
            break
    assert run.record["notes"]["read_bytes"] < 4 * MIB, run.record
    assert run.stats["streamed_bytes"] == run.stats["swap_ins"] == run.stats["fallback_reads"] == 0, run.describe()
    if stores(store):
        assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()
    reference, run = both(torch, "load_model", how, file_of(torch, how), budget=BUDGET,
                          env={"SWAPNET_STORE": str(store)})
    _quiet(run)
    harness.assert_streamed(run)


@pytest.mark.forked
@pytest.mark.parametrize("torch, how", [p for p in ways() if p.id in (
    "pth-torch1.13", "pth:mmap-torch2.13", "pth:again-torch1.13", "safetensors-torch2.13")], indirect=["torch"])
def test_first_load_writes_the_store(torch, how, disk):
    run = _quiet(load(torch, how, disk, "stop"))
    assert len(stores(disk)) == 1, list(disk.iterdir())
    assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()


@pytest.mark.forked
@each_113
@pytest.mark.parametrize("how", ["bytes", "pth:bf16"])
def test_nothing_to_register(torch, how):
    """Loading from memory, and into another type: read as ever, within the budget, with equal bits."""
    _, run = both(torch, "load_model", how, file_of(torch, how), budget=BUDGET)
    _quiet(run)


@each_113
def test_what_cannot_be_referred_to_is_said_once(torch, disk):
    """A file of torch.save before 1.6 has no directory: it is read, and one line says so without SWAPNET_VERBOSE. Another
    one may say that what it reads at once exceeds the budget."""
    run = load(torch, "pth", disk, "stop", path=checkpoint(torch, "old"))
    assert run.rc == 0 and run.record and run.stats["deferred_bytes"] == 0 and not stores(disk), run.describe()
    [line] = [line for line in run.own_lines() if "code beside PyTorch's operators" not in line]
    assert "read into memory, as it cannot be loaded by reference: written in the format of PyTorch before 1.6" in line


@pytest.mark.forked
@each_113
@pytest.mark.parametrize("what", ["read", "write"])
def test_deferred_bytes(torch, what):
    """Whoever looks at bytes that have not been read sees them, and a store into them stays."""
    _, run = both(torch, "deferred_bytes", what, file_of(torch, "pth"), budget=BUDGET,
                  env={"SWAPNET_STORE": str(warm_store(torch, "pth"))})
    assert run.stats["deferred_bytes"] >= WEIGHTS, run.describe()
    _quiet(run)


def changes():
    for torch in harness.ALL_TORCH:
        for kind in ["pth"] + (["safetensors", "mmap"] if torch.name == "2.13" else []):
            for what in ["save", "process", "renamed", "in-place"] + (
                    ["in-place-data", "truncated"] if kind == "pth" else []):
                quick = (torch.name == "1.13" and what in ("in-place-data", "truncated")) or (
                    kind == "safetensors" and what == "save")
                yield pytest.param(torch, f"{kind}:{what}", id=f"{kind}-{what}-torch{torch.name}",
                                   marks=[] if quick else [pytest.mark.slow])


@pytest.mark.forked
@pytest.mark.parametrize("torch, scenario", changes(), indirect=["torch"])
def test_file_that_changes(torch, scenario):
    """Invariant 5: a weight is what was loaded, whatever becomes of the file; the next load is of what it is now."""
    kind = "safetensors" if scenario.startswith("safetensors") else "pth"
    reference, run = both(torch, "rewritten", scenario, checkpoint(torch, kind), checkpoint(torch, kind, "8"),
                          budget=BUDGET)
    assert not [name for name, value in reference.record["values"].items() if value is False], reference.describe()
    assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()
    _quiet(run)


@each_113
@pytest.mark.parametrize("where", ["tmpfs", "overlay"])
def test_changed_through_a_shared_mapping(torch, where, disk):
    """Of a file in memory no time need tell, so it has no store."""
    with harness.overlay_in_memory(disk) as overlay:
        where = overlay if where == "overlay" else disk / "upper"
        _, run = both(torch, "shared_mapping", str(where), budget=BUDGET,
                      env={"SWAPNET_STORE": str(disk / "stores")})
    assert run.stats["deferred_bytes"] == 0 and not stores(disk), run.describe()
    _quiet(run)


@pytest.mark.parametrize("when", ["before", "after"])
def test_mapped_by_numpy(torch113, when, disk):
    """Five arrays of 9 MiB within 24 MiB; the sixth has a writer, and is left alone, which is said."""
    reference, run = (harness.start(torch113, "mapped_by_numpy", str(disk), when, where=disk, **options).finish()
                      for options in ({}, {"budget": BUDGET}))
    harness.assert_same(reference, run)
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert 5 * 8.9 * MIB < run.stats["demand_bytes"] < 6 * 8.9 * MIB, run.describe()
    assert run.stats["untracked_weight_bytes"] == 9 * MIB, run.describe()
    said, = run.own_lines()
    assert "9.0 MiB of weights" in said and "did not allocate" in said, run.describe()


@pytest.mark.forked
@each_113
def test_replaced_between_two_processes(torch, disk):
    """Same path, same size, one store directory."""
    path = disk / "model.ckpt"
    for seed in ("7", "8", "7"):
        source = checkpoint(torch, "pth", *([seed] if seed == "8" else []))
        path.write_bytes(pathlib.Path(source).read_bytes())  # over the same inode, which keeps its size
        run = _quiet(load(torch, "pth", disk, path=str(path)))
        harness.assert_same(harness.plain(torch, "load_model", "pth", source), run)


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


@pytest.mark.halved
@each_113
@pytest.mark.parametrize("program", ["load_model pth", "deferred_bytes read", "deferred_bytes write", "own_address"])
def test_damaged_extent(torch, program, disk):
    """Every extent has a byte flipped: the program ends before it computes with any of them. Unless one of the few
    blocks that are compared with the checkpoint at the start happens to have one; then the store is built anew."""
    command = program.split() + [file_of(torch, "pth")]
    for attempt in range(4):
        copy = disk / f"store{attempt}"
        shutil.copytree(warm_store(torch, "pth"), copy)
        store, = stores(copy)
        inode = os.stat(store).st_ino
        for offset in range(os.path.getsize(store) - 2 * MIB, 4 * MIB, -4 * MIB):
            flip(store, offset)
        run = harness.start(torch, *command, where=disk / f"run{attempt}", budget=BUDGET,
                            env={"SWAPNET_STORE": str(copy)}).finish()
        if os.stat(store).st_ino == inode:
            break
        harness.assert_same(harness.plain(torch, *command), run)
    assert run.rc == 5 and run.record is None, run.describe()
    assert len(run.own_lines()) == 1 and str(store) in run.stderr and "checksum" in run.stderr, run.describe()


@pytest.mark.forked
@each_113
def test_damaged_header(torch, disk):
    """The store is built again."""
    shutil.copytree(warm_store(torch, "pth"), disk, dirs_exist_ok=True)
    store, = stores(disk)
    for offset in (20, 5000):
        flip(store, offset)
        run = _quiet(load(torch, "pth", disk, "stop"))
        assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()
    run = _quiet(load(torch, "pth", disk))
    harness.assert_same(harness.plain(torch, "load_model", "pth", file_of(torch, "pth")), run)


@pytest.mark.forked
@pytest.mark.parametrize("torch, how", [p for p in ways() if p.id in (
    "pth-torch1.13", "pth:mmap-torch2.13", "safetensors-torch2.13")], indirect=["torch"])
def test_store_off(torch, how, disk):
    """No second copy on the disk."""
    _, run = both(torch, "load_model", how, file_of(torch, how), budget=BUDGET,
                  env={"SWAPNET_STORE": "off", "XDG_CACHE_HOME": str(disk), "TMPDIR": str(disk), "HOME": str(disk)})
    _quiet(run)
    assert not stores(disk), stores(disk)
    assert "registered" not in run.stderr


@pytest.mark.parametrize("more", [(), ("handler",)], ids=["", "handler"])
def test_cut_while_it_is_mapped(torch213, more, disk):
    """It cannot go on without its weights, but it can be said why; a handler of the program's own comes first."""
    path = disk / "model.pth"
    shutil.copyfile(checkpoint(torch213, "pth"), path)
    run = harness.start(torch213, "cut_while_mapped", str(path), *more, where=disk / "run", budget=BUDGET).finish()
    assert run.record is None and run.rc == (-7 if more else 5), run.describe()
    assert len([line for line in run.own_lines() if f"has mapped {path}" in line]) == (0 if more else 1), run.describe()


def test_types_that_are_rare(torch213, disk):
    """No byte of them is copied either."""
    path = str(disk / "odd.pth")
    harness.make(torch213, "odd_types", path, "save", where=disk / "make")
    _, run = both(torch213, "odd_types", path, "load", budget=12, env={"SWAPNET_STORE": str(disk / "cache")})
    # read into tensors, and copied from these into the model's
    assert run.stats["deferred_bytes"] >= 0.99 * 2 * 36 * MIB, run.describe()
    _quiet(run)


@each_113
def test_signal_while_the_store_is_made(torch, disk):
    """Python acts on a signal when its read returns, which must not be when the store is complete."""
    path, store = file_of(torch, "pth"), disk / "cache"
    store.mkdir(mode=0o700)
    run = harness.start(torch, "interrupted_load", path, str(store), where=disk / "run", budget=BUDGET,
                        env={"SWAPNET_STORE": str(store)}).finish()
    _quiet(run)
    assert run.record["notes"]["during"] > 0, run.describe()
    harness.assert_same(harness.plain(torch, "interrupted_load", path, str(disk)), run)
    again = _quiet(load(torch, "pth", store, "stop"))  # the store was finished all the same, now or then
    assert len(stores(store)) == 1 and again.stats["deferred_bytes"] >= 0.99 * WEIGHTS, again.describe()


@each_113
def test_no_room_for_the_store(torch, disk):
    """Said once; the program goes on, within its budget where the spill file has room."""
    with harness.mounted("-t", "tmpfs", "-o", "size=90m,mode=700", "swapnet-test", at=disk / "small") as where:
        _, run = both(torch, "functional_load", file_of(torch, "pth"), budget=BUDGET,
                      env={"SWAPNET_STORE": str(where)})
        left = list(where.iterdir())
    assert run.stats["deferred_bytes"] == 0, run.describe()
    lines = run.own_lines()
    assert len([line for line in lines if "block store" in line]) == 1, run.describe()
    assert not [path for path in left if path.name.endswith(".swnstore")], left


@each_113
def test_spoilt_cap(torch, disk):
    """A cap that cannot be read is said, rather than every file taken for one of another kind."""
    (disk / "cap").write_text("20G\n")
    run = load(torch, "pth", disk, "stop")
    lines = run.own_lines()
    assert run.rc == 0 and len(lines) == 1 and "swapnetctl cache cap" in lines[0], run.describe()


def leaves_little(load_it, files):
    """Whether next to nothing of the files is in the page cache after load_it(). What the kernel is reading ahead at the moment in
    which it is told to drop a file stays, on a slow disk: this has another try."""
    for _ in range(3):
        load_it()
        held = {file: cached_bytes(file) for file in files()}
        if all(held[file] < os.path.getsize(file) / 100 for file in held):
            return True
        for file in held:
            uncache(file)
    raise AssertionError(held)


def models_in_cache():
    yield from (p for p in ways() if p.id in ("pth-torch1.13", "jit-torch1.13", "pth:mmap-torch2.13",
                                              "pth:mmap:assign-torch2.13", "safetensors-torch2.13",
                                              "safetensors:meta:assign-torch2.13"))


@pytest.mark.forked
@pytest.mark.parametrize("torch, how", models_in_cache(), indirect=["torch"])
def test_load_leaves_no_page_cache(torch, how, disk):
    """What a run leaves in the page cache of model files: next to nothing, of the first load and of the next."""
    path = file_of(torch, how)
    def load_it():
        if turn == 0:
            for store in stores(disk):
                store.unlink()
        _quiet(load(torch, how, disk, "lean"))
    uncache(path)
    for turn in range(2):
        assert leaves_little(load_it, lambda: [path, *stores(disk)])


@pytest.mark.parametrize("torch", [pytest.param(harness.TORCH213, id="torch2.13")], indirect=True)
def test_page_cache_of_a_file_no_longer_mapped(torch, disk):
    """The same where numpy has read a weight, and the program has unmapped the file before it ends."""
    path = file_of(torch, "safetensors")
    uncache(path)
    assert leaves_little(lambda: _quiet(load(torch, "safetensors:meta:assign", disk, "gone")), lambda: [path])


@pytest.mark.forked
@each_113
def test_page_cache_of_many_small(torch, disk):
    """Python reads the first KiB of each tensor through the page cache: of these, several percent."""
    path, cache = disk / "narrow.pth", disk / "cache"
    cache.mkdir(mode=0o700)
    harness.make(torch, "narrow", str(path), "save", where=disk / "make")
    def load_it():
        if turn == 0:
            for store in stores(cache):
                store.unlink()
        run = harness.run(torch, "narrow", str(path), "load", where=disk / f"run{turn}", budget=16,
                          env={"SWAPNET_STORE": str(cache)})
        assert run.stats["deferred_bytes"] > 30 * MIB, run.describe()
        _quiet(run)
    uncache(path)
    for turn in range(2):
        assert leaves_little(load_it, lambda: [path])


@each_113
def test_record_locks(torch):
    """Whoever closes any descriptor of a file drops its process's locks on it, and building a store closes some."""
    reference, run = both(torch, "record_locks", file_of(torch, "pth"), budget=BUDGET)
    assert reference.record["values"]["after"] is True, reference.describe()
    assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()
    _quiet(run)


@each_113
@pytest.mark.parametrize("what", ["two", "fork"])
def test_loads_beside_threads_and_children(torch, what):
    reference, run = both(torch, "loading_threads", what, checkpoint(torch, "pth"), checkpoint(torch, "pth", "8"),
                          budget=BUDGET)
    assert not [name for name, value in reference.record["values"].items() if value is False], reference.describe()
    assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()
    assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("torch, number, height", [
    pytest.param(harness.TORCH113, 40, 1100, id="stores-torch1.13"),
    pytest.param(harness.TORCH213, 300, 300, id="small-torch2.13", marks=pytest.mark.slow),
    pytest.param(harness.TORCH213, 300, 1100, id="stores-torch2.13", marks=pytest.mark.slow)], indirect=["torch"])
def test_descriptors_do_not_grow(torch, number, height):
    _, run = both(torch, "loading_threads", "many", str(number), str(height), budget=8)
    counts = run.record["notes"]["descriptors"]
    assert max(counts) <= counts[0] + 80, counts
    assert counts[-1] <= max(counts[:len(counts) // 2]), counts


@pytest.mark.forked
@pytest.mark.parametrize("kind", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_from_pretrained_reads_and_copies_nothing(torch213, kind):
    """from_pretrained of safetensors: nothing of the weights is read, nor copied."""
    path = checkpoint(torch213, kind)
    with harness.disk_dir() as where:
        run = _quiet_but_bars(harness.run(torch213, "from_pretrained", kind, path, "stop", where=where, budget=32))
    assert run.stats["streamed_bytes"] == run.stats["spilled_bytes"] == 0, run.describe()
    _, run = both(torch213, "from_pretrained", kind, path, budget=32)
    harness.assert_streamed(run)
    _quiet_but_bars(run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_transformers_bin(torch213, kind, disk):
    """The same weights as torch.save wrote them."""
    path = pathlib.Path(checkpoint(torch213, kind))
    for name in ("config.json", "generation_config.json"):
        shutil.copyfile(path / name, disk / name)
    shutil.copyfile(path / "whole.pth", disk / "pytorch_model.bin")
    _, run = both(torch213, "from_pretrained", kind, str(disk), budget=32)
    harness.assert_streamed(run)
    _quiet_but_bars(run)


def _quiet_but_bars(run):
    assert run.rc == 0 and run.record and run.own_lines() == [], run.describe()
    harness.assert_bounded(run)
    return run


@pytest.mark.forked
@each_113
def test_order_is_learned(torch, disk):
    """A store in the order of its checkpoint, which is not the one of use: the library says so, and a new cut mends it."""
    path, cache = str(disk / "reversed.pth"), disk / "cache"
    cache.mkdir(mode=0o700)
    made = harness.make(torch, "reversed_order", path, "save", where=disk / "make")
    layers = made.record["notes"]["layers"]
    for turn in range(2):
        _, run = both(torch, "reversed_order", path, "load", budget=BUDGET, env={"SWAPNET_STORE": str(cache)})
        assert run.own_lines() == [] and run.stats["plans"] > 0, run.describe()
        store, = stores(cache)
        order = pathlib.Path(f"{store}.order")
        if turn == 0:
            assert order.read_text().split() == layers
            subprocess.run([harness.BUILD / "bin" / "swapnet-partition", "build", "-q", "--from-store", store], check=True)
            order.unlink()
    assert not order.exists(), "the store is in the order of use now"


@each_113
def test_many_small_shards(torch, disk):
    """4 MiB each, a sixth of the budget: together they are the model, and none is read into memory."""
    (disk / "shards").mkdir()
    harness.make(torch, "shards", str(disk / "shards"), "save", where=disk / "make")
    _, run = both(torch, "shards", str(disk / "shards"), "load", budget=BUDGET)
    assert run.stats["deferred_bytes"] >= 0.99 * WEIGHTS, run.describe()
    _quiet(run)
