"""bench/run.py's rows of another framework, and of reads beside a computation: what is asked of them, when their numbers
count, and how the table tells.

ncnn itself is only where scripts/bench has put it, so a module that computes one small network takes its place."""
import argparse
import json
import os
import re
import subprocess
import sys

import numpy
import pytest

import harness

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH), str(BENCH / "lib")]

import child  # noqa: E402
import lane as lanes  # noqa: E402
import plan  # noqa: E402
import plot  # noqa: E402
import results  # noqa: E402
import samples  # noqa: E402
import slow_disk  # noqa: E402
import table  # noqa: E402
import variants  # noqa: E402
from sampler import Sampler  # noqa: E402

THREADS = 3
# Its network: the mean of each channel times a number, which is all that its file of weights holds.
STAND_IN = """
import json, numpy, os, types

class Mat:
    def __init__(self, array): self.array = array
    def clone(self): return Mat(self.array.copy())

class Extractor:
    def __init__(self, factor): self.factor = factor
    def __enter__(self): return self
    def __exit__(self, *exc): pass
    def input(self, name, mat): self.image = {"in0": mat}[name].array
    def extract(self, name): return 0, self.image.mean((1, 2)) * {"out0": self.factor}[name]

class Net:
    def __init__(self): self.opt = types.SimpleNamespace()
    def load_param(self, path): return 0 if os.path.exists(path) else -1
    def load_model(self, path):
        with open(path) as file: self.factor = float(file.read())
        with open(os.path.join(os.path.dirname(path), "options"), "w") as file: json.dump(vars(self.opt), file)
        return 0
    def create_extractor(self): return Extractor(self.factor)
"""


class NoGroup:
    """Bounds nothing and measures nothing."""
    limited, limit_bytes = False, None

    def command(self, argv):
        return [str(word) for word in argv]

    def started(self, pid):
        pass

    def sample(self):
        return {"anon": 0, "shmem": 0, "kernel": 0, "file": 0}

    def usage_peak(self):
        return 0

    def oom_kills(self):
        return 0

    def close(self):
        pass


@pytest.fixture
def directory(tmp_path):
    """Of a model that was converted, with the stand-in for ncnn beside it."""
    (tmp_path / "ncnn.py").write_text(STAND_IN)
    inputs = numpy.random.default_rng(1).random((lanes.INPUTS, 1, 3, 8, 8), dtype=numpy.float32)
    samples.save(tmp_path / "samples.npz", samples.Samples(inputs, inputs.mean((3, 4)), THREADS))
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.ncnn.param").touch()
    (model / "model.ncnn.bin").write_text("1.000001")
    return model


@pytest.fixture
def run(directory):
    """run(*arguments): a lane of the worker, after its first passes."""
    workers, sampler = [], Sampler()

    def start(*arguments):
        argv = ["/usr/bin/python3", BENCH / "lib" / "ncnn_worker.py", "--samples", directory.parent / "samples.npz",
                "--model", directory, *arguments]
        env = harness.clean_env() | {"PYTHONPATH": str(directory.parent)}
        workers.append(child.Worker(argv, NoGroup(), env, directory.parent / "log"))
        lane = lanes.Lane(variants.NCNN, workers[-1], sampler, 30)
        lane.build(30)
        lane.warm_up()
        return lane
    yield start
    for worker in workers:
        worker.close()
    sampler.close()


@pytest.mark.parametrize("used, looks", [
    ([0, 20e6, 40e6, 40e6, 60e6], 4),           # until one look finds that nothing was used
    ([0] + [i * 20e6 for i in range(1, 12)], 9)  # which may never be
])
def test_what_still_spins_is_waited_for(monkeypatch, used, looks):
    now, seen = [0.0], iter(used)
    monkeypatch.setattr(child.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(child.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(child, "QUIET_MOST_SECONDS", 7.5 * child.QUIET_LOOK_SECONDS)
    worker = object.__new__(child.Worker)
    worker._cpu_ns = lambda: next(seen)
    worker.wait_until_quiet()
    assert len(used) - len(list(seen)) == looks


def test_what_a_process_has_used(run):
    lane = run()
    before = lane.worker._cpu_ns()
    lane.round(1)
    assert 0 < before < lane.worker._cpu_ns()


@pytest.mark.parametrize("lean", [False, True])
def test_ncnn_computes_what_pytorch_computes(run, directory, lean):
    """In single precision and with as many threads; lean, without what has the weights twice."""
    lane = run(*["--lean"] * lean)
    assert lane.ended is None and lane.passes == 0, lane.worker.log_tail()
    lane.round(2)
    assert len(lane.latencies) == 2 and 5e-7 < lane.deviation < 5e-6
    options = json.loads((directory / "options").read_text())
    assert options.pop("num_threads") == THREADS
    off = {"use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"}
    if lean:
        off |= {"use_winograd_convolution", "use_sgemm_convolution", "use_packing_layout"}
    assert options == dict.fromkeys(off, False)


@pytest.mark.parametrize("weights", ["1.001", "nan"])
def test_another_network_is_not_measured(run, directory, weights):
    (directory / "model.ncnn.bin").write_text(weights)
    lane = run()
    assert lane.ended.startswith("other outputs than PyTorch's") and lane.latency() is None


def test_the_outputs_of_another_input_are_not_taken(run, directory):
    """The worker's inputs are numbered as the plain program's."""
    found = samples.load(directory.parent / "samples.npz")
    samples.save(directory.parent / "samples.npz", samples.Samples(found.inputs, found.outputs[::-1], THREADS))
    assert run().ended.startswith("other outputs")


def test_what_cannot_be_converted_says_why(run, directory):
    (directory / "refused").write_text("not converted: no such operator\n")
    assert run().ended == "not converted: no such operator"


def test_what_cannot_be_loaded_says_so(run, directory):
    (directory / "model.ncnn.param").unlink()
    assert run().ended == "ncnn cannot load it"


def test_the_table_tells_how_far_off(run, directory):
    """Not yes and not NO, and no limit beside it: that is PyTorch's."""
    plain = lanes.Lane(variants.PLAIN, None, None, 30)
    plain.latencies = [0.010]
    facts = plan.Facts(weight_bytes=8 << 20, streamable_bytes=8 << 20, activation_bytes=0, peak_alloc_bytes=0,
                       base_bytes=0)
    lane = run()
    lane.round(1)
    lane.latencies = [0.005]
    row = results.row(lane, "vgg19", 0.5, facts, 4 << 20, [1e9], plain, directory / "no-stats")
    cells = dict(zip(table.COLUMNS, (cell.strip() for cell in table.markdown([row]).splitlines()[-1].split("|")[1:])))
    assert cells["same bits"] == "1e-06" and cells["x plain"] == "0.50" and cells["note"] == "no limit"
    assert cells["limit ms"] == cells["by layers"] == cells["limit/lat"] == ""
    assert plot.COLOURS.keys() == {*variants.ALL}


def test_conversion_is_kept_for_the_same_network(directory, tmp_path, monkeypatch):
    """And made anew for another one, or by another pnnx; what pnnx says is kept where it fails."""
    import ncnn_model
    import pythons
    pnnx = tmp_path / "pnnx"
    pnnx.write_text("#!/bin/sh\necho $0: $*\n"
                    "[ -s model.pt ] && touch model.ncnn.param model.ncnn.bin model.pnnx.onnx\n")
    pnnx.chmod(0o755)
    version = ["pnnx-1"]
    monkeypatch.setattr(pythons, "pnnx", lambda: str(pnnx))
    monkeypatch.setattr(pythons, "pnnx_version", lambda: version[0])
    made, traced = [], ["network"]
    real = subprocess.run

    def spy(argv, **options):
        if argv[0] == "traces":
            with open(argv[-1], "w", encoding="ascii") as file:
                file.write(traced[0])
            return subprocess.CompletedProcess(argv, 0)
        made.append(argv)
        return real(argv, **options)
    monkeypatch.setattr(subprocess, "run", spy)
    setup = variants.Setup("traces", None, tmp_path, None)
    where = setup.ncnn("vgg19")
    (directory.parent / "samples.npz").rename(setup.samples("vgg19"))

    ncnn_model.make(setup, "vgg19")
    ncnn_model.make(setup, "vgg19")
    assert len(made) == 1 and "inputshape=[1,3,8,8]" in made[0] and "fp16=0" in made[0]
    assert {path.name for path in where.iterdir()} == {"model.ncnn.param", "model.ncnn.bin", "pnnx.log", "stamp"}
    found = samples.load(setup.samples("vgg19"))
    samples.save(setup.samples("vgg19"), samples.Samples(found.inputs, found.outputs + 1, THREADS))
    ncnn_model.make(setup, "vgg19")
    assert len(made) == 2
    version[0], traced[0] = "pnnx-2", ""
    ncnn_model.make(setup, "vgg19")
    assert len(made) == 3
    assert (where / "refused").read_text() == "not converted: pnnx ended with exit code 1\n"
    assert str(pnnx) in (where / "pnnx.log").read_text()


@pytest.fixture(scope="module")
def weights():
    """A file of MobileNetV2's, on a disk."""
    if not harness.TORCH113.python:
        pytest.skip("PyTorch 1.13 left out by an empty SWAPNET_PY113")
    with harness.disk_dir() as directory:
        path = directory / "weights"
        subprocess.run([harness.TORCH113.python, BENCH / "lib" / "measure_model.py", "--model", "mobilenet_v2", "--weights", path],
                       check=True, capture_output=True, env=harness.clean_env(), timeout=harness.HANG_S)
        yield path


@pytest.fixture
def torch_lane(torch113, tmp_path):
    """torch_lane(*arguments): a lane of bench/lib/worker.py with MobileNetV2, after its first passes."""
    workers, sampler = [], Sampler()

    def start(*arguments):
        argv = [torch113.python, BENCH / "lib" / "worker.py", "--model", "mobilenet_v2", *arguments]
        workers.append(child.Worker(argv, NoGroup(), harness.clean_env(), tmp_path / "log"))
        lane = lanes.Lane(arguments[1], workers[-1], sampler, 60)
        lane.build(120)
        lane.warm_up()
        lane.require()
        return lane
    yield start
    for worker in workers:
        worker.close()
    sampler.close()


@pytest.mark.parametrize("pass_bytes, passes", [
    (5_500_000, 40),    # no whole number of requests, and far less than there is time for
    (300_000_000, 20),  # far more: it waits, as a process that has to read it would
    (0, 10)])
def test_what_is_read_beside(torch_lane, weights, pass_bytes, passes):
    """As much as it should be, and nothing else changes: the same outputs, without a thread of its own."""
    lane = torch_lane("--variant", "beside", "--weights", weights, "--pass-bytes", str(pass_bytes), "--helper",
                      harness.LIBRARY.parent / "libbench-beside.so")
    lane.round(passes)
    assert lane.ended is None, lane.worker.log_tail()
    assert abs(lane.read_bytes_per_pass() - pass_bytes) <= 0.05 * pass_bytes
    plain = torch_lane("--variant", "plain")
    plain.round(lanes.INPUTS)
    assert lane.same_bits(plain.hashes)
    threads = [len(os.listdir(f"/proc/{each.worker.pid}/task")) for each in (lane, plain)]
    assert threads[0] == threads[1]


def test_reads_that_fail_beside_end_the_program(torch_lane, weights, tmp_path):
    """Or a shorter file would make a faster bound."""
    path = weights.parent / "short"
    path.write_bytes(weights.read_bytes()[:4 * harness.MIB])
    lane = torch_lane("--variant", "beside", "--weights", path, "--pass-bytes", str(8 * harness.MIB), "--helper",
                      harness.LIBRARY.parent / "libbench-beside.so")
    os.truncate(path, harness.MIB)
    lane.round(5)
    assert lane.ended == "exit code 1" and "reading beside" in lane.worker.log_tail()


def test_the_table_tells_the_bound(directory):
    """Of reads that cost processor, and of a disk that is slower than that; there is none without the variant."""
    made = {}
    for name, seconds in (("plain", 0.010), ("beside", 0.015), ("swapnet", 0.030)):
        made[name] = lanes.Lane(name, child.Worker(["true"], NoGroup(), None, directory / "log"), Sampler(), 30)
        made[name].latencies = [seconds]
    facts = plan.Facts(weight_bytes=8 << 20, streamable_bytes=8 << 20, activation_bytes=0, peak_alloc_bytes=0)

    def cells(name, bandwidth, beside):
        row = results.row(made[name], "vgg19", 0.5, facts, 4 << 20, [bandwidth], made["plain"], directory / "no-stats",
                          beside)
        line = table.markdown([row]).splitlines()[-1].split("|")[1:]
        found = dict(zip(table.COLUMNS, (cell.strip() for cell in line)))
        return found["beside"], found["bound"], found["x bound"], found["limit ms"]
    assert cells("swapnet", 1e9, made["beside"]) == ("15.0", "15.0", "2.00", "10.0")
    assert cells("swapnet", (4 << 20) / 0.020, made["beside"]) == ("15.0", "20.0", "1.50", "20.0")
    assert cells("swapnet", 1e9, None) == ("", "", "", "10.0")
    assert cells("beside", 1e9, made["beside"]) == ("15.0", "15.0", "", "10.0")
    assert cells("plain", 1e9, made["beside"]) == ("", "", "", "")
    for lane in made.values():
        lane.sampler.close()
        lane.worker.close()


def test_two_builds(tmp_path):
    """What a change of the machine between rounds does to medians it does not do to the rounds' own ratios; and a goal
    is missed by the new build only."""
    import engine_table
    made = {}
    for name, rounds in (("memory", [[1.0], [1.0], [1.0]]), ("old", [[1.0], [2.0], [9.0]]), ("new", [[0.9], [2.4], [7.2]])):
        lane = lanes.Lane(name, child.Worker(["true"], NoGroup(), None, tmp_path / "log"), Sampler(), 30)
        lane.rounds, lane.latencies, lane.hashes = rounds, sum(rounds, []), {0: {"bits"}}
        lane.stats_path = tmp_path / "no-stats"
        made[name] = lane

    def row(series, alone_s=None):
        return engine_table.row({"series": series, "model": "vgg19", "point": "50 %", "budget_bytes": 1 << 20,
                                 "must_read_bytes": 3_000_000, "bandwidths": [1e6]}, made["memory"], made["old"],
                                made["new"], alone_s, made["new"].sampler)
    found = row("a")
    assert found["ratio"] == pytest.approx(1.2) and found["paired"] == pytest.approx(0.9)
    assert found["bound_s"] == 3 and found["new_of_bound"] == pytest.approx(0.8)
    assert engine_table.shortfalls([found])[0] == "a: vgg19 at 50 %: 1.200 times the old build (goal 1.03)"
    assert engine_table.shortfalls([row("b", 2.0)]) == [
        "b: vgg19 at 50 %: 1.200 times the same without a second thread (goal 1.03)"]
    assert not engine_table.shortfalls([row("b", 2.4), row("c")])
    made["old"].hashes = {0: {"others"}}
    assert not engine_table.shortfalls([row("c")]) and "| NO: old |" in engine_table.markdown([row("c")])
    made["new"].hashes = {0: {"others"}}
    assert engine_table.shortfalls([row("c")])
    assert "old: no statistics, swapnet was off; new: no statistics" in engine_table.markdown([row("c")])
    assert engine_table.means([found, {**found, "ratio": 1 / 1.2}]) == {"a": pytest.approx(1)}
    for lane in made.values():
        lane.sampler.close()
        lane.worker.close()


def test_the_build_makes_what_is_named_in_it():
    """Each path below the build directory that a script names in its text."""
    made = set(re.split(r"[\s:|]+", (harness.BUILD / "build.ninja").read_text().replace("$:", ":")))
    named = {}
    for script in sorted(BENCH.rglob("*.py")):
        text = script.read_text()
        for path in re.findall(r'\bbuild(?:\[0\])?((?: / "[\w.-]+")+)', text) + re.findall(r'"build"((?: / "[\w.-]+")+)', text):
            named.setdefault("/".join(re.findall(r'"([\w.-]+)"', path)).removeprefix("release/"), script.name)
        for path in re.findall(r'build/release/([\w./-]+)', text):
            named.setdefault(path, script.name)
    assert {"lib/libswapnet.so", "tests/fakes/libcudart.so.12"} <= named.keys()
    assert not {path: script for path, script in named.items() if "/" in path and path not in made}


def test_servers_beside_have_the_same_pytorch():
    """Where nothing else is asked for."""
    sys.path.append(str(BENCH / "serving"))
    import pythons
    import serve
    asked = {(part, torch): serve.engine_python(argparse.Namespace(part=part, torch=torch, python=None))
             for part in ("peers", "many") for torch in (None, "1.13", "2.13")}
    assert asked["peers", None] == asked["peers", "2.13"] == asked["many", "2.13"] == pythons.PYTHON_213
    assert asked["many", None] == asked["many", "1.13"] == asked["peers", "1.13"] == pythons.PYTHON_113


def test_tape_that_is_slow_or_has_other_bits_is_said(tmp_path, monkeypatch, capsys):
    """bench/serve.py tape, whose program is not started here."""
    sys.path.append(str(BENCH / "serving"))
    import serve
    import tape
    models = {name: argparse.Namespace(file=tmp_path, weight_bytes=harness.MIB) for name in ("fast", "slow", "wrong")}
    answers = {"fast": ([(1, 1.0), (2, 2.0)], True), "slow": ([(1, 1.25), (2, 2.5)], True), "wrong": ([(1, 1.0), (1, 1.0)], False)}
    lines = "".join(json.dumps({"pairs": pairs, "same": same, "groups": 5}) + "\n" for pairs, same in answers.values())
    monkeypatch.setattr(tape.zoo, "make", lambda *_: models)
    setup = argparse.Namespace(python=sys.executable, tracing=None, folder=tmp_path, build=tmp_path, say=serve.Setup.say,
                               is_markdown=True, print_table=lambda *args: serve.Setup.print_table(setup, *args))
    monkeypatch.setattr(tape, "WORKER", tmp_path / "worker.py")
    tape.WORKER.write_text(f"print({lines!r}, end='')")
    failed, _ = tape.run(setup, argparse.Namespace(models=None, rounds=1))
    assert failed == ["wrong: other bits than forward's",
                      "the tapes take 1.077 times what forward() takes, in the geometric mean; the goal is 1.03"]
    assert "| slow | 1 | 5 | 1500.0 | 1875.0 | 1.250 | 1.25 to 1.25 | yes |" in capsys.readouterr().out
    tape.WORKER.write_text("")
    with pytest.raises(SystemExit, match="fast was not measured"):
        tape.run(setup, argparse.Namespace(models=None, rounds=1))


SLOWED = """
import os, pathlib, sys, time
sys.path.insert(0, {bench!r})
import slow_disk
path = pathlib.Path(sys.argv[1])
slow_disk.throttle(path.parent, 20)
begin = time.monotonic()
os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
while os.read(fd, 1 << 20):
    pass
print(time.monotonic() - begin)
"""


def test_slow_disk(disk):
    """10 MB at 20 MB/s; and no cgroup is left behind."""
    path = disk / "file"
    with open(path, "wb") as file:
        file.write(bytes(10_000_000))
        os.fsync(file.fileno())
    if not os.access(slow_disk.ROOT / slow_disk.LIMIT, os.W_OK):
        pytest.skip("no blkio controller of cgroup v1 that we may write to")
    if not os.major(os.stat(disk).st_dev):
        pytest.skip(f"{disk} is on no disk of its own")
    left = set(slow_disk.ROOT.glob("swapnet-disk-*"))
    done = subprocess.run([sys.executable, "-c", SLOWED.format(bench=str(BENCH / "lib")), path], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and float(done.stdout) > 0.4, done
    assert set(slow_disk.ROOT.glob("swapnet-disk-*")) <= left
