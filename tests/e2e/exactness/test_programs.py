"""Real things programs do, each plainly and under swapnet: the recorded bits must be equal, and weights must stream."""
import dataclasses
import os
import re
import signal

import pytest

import harness
from harness import MIB, both


@dataclasses.dataclass(frozen=True)
class Case:
    """One program. `live` marks those that hold more than the budget at once, and may report the excess. `quick` names
    the PyTorch versions on which it belongs to the quick tests; on the others it runs with the slow ones. `mapped` marks
    those that are to read weights at their own addresses."""
    command: str
    budget: int = 48  # MiB; the usual model of 24 linear layers has 96
    live: bool = False
    mapped: bool = False
    only: str = ""
    quick: str = "1.13 2.13"

    def parameters(self):
        for torch in harness.ALL_TORCH:
            marks = [] if torch.name in self.quick.split() else [pytest.mark.slow]
            if self.only in ("", torch.name):
                yield pytest.param(torch, self, marks=marks, id=f"{self.command.replace(' ', '-')}-torch{torch.name}")


CASES = [
    Case("infer mlp"),
    Case("infer mlp-narrow 8", budget=4, quick="1.13"),  # the least there is
    Case("infer convnet", budget=20),
    Case("infer tall 8", budget=64, quick="1.13"),
    Case("observed", budget=20),
    Case("threads tall", budget=64, quick="2.13"),
    Case("inplace_update"),
    Case("train sgd", budget=20, live=True, quick="1.13"),
    Case("train adam", budget=20, live=True, quick="1.13"),
    Case("train adam-foreach", budget=20, live=True, quick=""),
    Case("fork_child"),
    Case("fork_storm 25", quick="1.13"),
    Case("fork_storm 100", quick=""),
    Case("fork_storm 1000", only="1.13", quick=""),
    Case("dataloader", quick="2.13"),
    Case("threads two-models", budget=40),
    Case("threads one-model", quick="2.13"),
    Case("threads thread-per-inference", quick="1.13"),
    Case("changing_order", quick="2.13"),
    Case("torchscript", budget=32, quick="1.13"),
    Case("compiled", budget=32, only="2.13", quick=""),
    Case("tied", budget=40, quick="1.13"),
    Case("copies", budget=56, live=True, quick="2.13"),  # its double-precision copy is twice the model
    Case("numpy_views", quick="1.13"),
    Case("export_bytes", quick="1.13"),
    Case("checkpoint pth", quick="1.13"),
    Case("checkpoint mmap", only="2.13"),
    Case("checkpoint safetensors", only="2.13"),
    Case("bf16_load", budget=24, quick="2.13"),
    Case("batchnorm_wide", budget=72, quick="1.13"),
    Case("custom_ops", quick="2.13"),
    Case("escape"),
    Case("kept_in_python", budget=24, mapped=True),
    Case("refused", budget=10),
    Case("own_kernels", budget=24, mapped=True),
    Case("late_kernels AutogradCPU", budget=32, mapped=True),
    Case("late_kernels CPU", budget=32, quick="1.13"),
    Case("fork_new_operators", budget=24, quick="1.13"),
    Case("gloo_send", quick="2.13"),
    Case("rpc_weights", budget=32, live=True),
    Case("storage_moves", quick="2.13"),
    Case("read_into", quick="1.13"),
    Case("signals faulthandler", quick="1.13"),
    Case("signals blocked", quick="2.13"),
    Case("signals others", quick="1.13"),
    Case("signals masked", quick="1.13"),
    Case("signals handler", quick="1.13"),
    Case("signals timer", quick="2.13"),
    Case("live_sets lstm", budget=24, live=True, quick=""),
    Case("live_sets cat", budget=32, live=True, quick="1.13"),
    Case("live_sets batch", budget=32, live=True, quick="1.13"),
    Case("live_sets foreach", budget=32, live=True, quick="2.13"),
    Case("children", quick="1.13"),
]


# What they load, their signals and their children are met from their start.
STARTED = {"checkpoint", "children", "dataloader", "fork_child", "fork_new_operators", "gloo_send", "signals"}


def _parameters():
    """Of several quick combinations with one program the first starts it, and the others are forked. Where all quick ones are with
    one PyTorch, those with the other one are slow, and start it. Where it runs under both, they start programs by turns."""
    started = set()
    for number, case in enumerate(CASES):
        program = case.command.split()[0]
        parameters = list(case.parameters())
        for parameter in parameters[::-1] if number % 2 else parameters:
            is_known = program in started or len(parameters) > 1 and any(p.marks for p in parameters)
            if is_known and program not in STARTED and not parameter.marks:
                parameter = parameter._replace(marks=[pytest.mark.forked])
            elif not parameter.marks:
                started.add(program)
            yield parameter


@pytest.fixture
def torch(request):
    """The PyTorch of a Case, where the test is parametrised with one; else each in turn (conftest)."""
    return request.getfixturevalue({"1.13": "torch113", "2.13": "torch213"}[request.param.name])


@pytest.mark.parametrize("torch, case", _parameters(), indirect=["torch"])
def test_equal_bits(torch, case):
    command = case.command.split()
    if command == ["read_into"] and not harness.uring_refused():
        command.append(str(harness.uring_read()))
    if command == ["children"]:
        command.append(str(harness.child_of_vfork()))
    reference, run = both(torch, *command, budget=case.budget)
    failed = [name for name, value in reference.record["values"].items() if value is False]
    assert not failed, f"the plain run fails its own checks: {failed}\n{reference.describe()}"
    harness.assert_streamed(run, mapped=case.live or case.mapped)
    if not case.live:
        harness.assert_bounded(run)
        assert run.own_lines() == [], run.describe()
    elif run.stats["over_budget_bytes"]:
        assert len(run.own_lines()) == 1, f"the excess is to be said once\n{run.describe()}"
    assert run.program_stderr() == reference.program_stderr(), run.describe()


each_torch = pytest.mark.parametrize(
    "torch", [pytest.param(t, id=f"torch{t.name}") for t in harness.ALL_TORCH], indirect=True)
quick_on_113 = pytest.mark.parametrize(
    "torch", [pytest.param(harness.TORCH113, id="torch1.13"),
              pytest.param(harness.TORCH213, id="torch2.13", marks=pytest.mark.slow)], indirect=True)


CLOSING = [(harness.TORCH113, "here"), (harness.TORCH213, "daemon"), (harness.TORCH213, "loaded"), (harness.TORCH213, "raw")]


@pytest.mark.halved
@pytest.mark.parametrize(
    "torch, how",
    [pytest.param(t, how, id=f"{how}-torch{t.name}", marks=[] if (t, how) in CLOSING else [pytest.mark.slow])
     for t in harness.ALL_TORCH for how in ("here", "daemon", "early", "loaded", "raw")], indirect=["torch"])
def test_descriptors_closed_by_the_program(torch, how):
    """What it opens is neither read as weights nor written to, and the program ends. Ours stay open; where system calls
    have closed them all the same, that is said."""
    reference, run = both(torch, "closes", how, budget=48)
    assert run.program_stderr() == reference.program_stderr(), run.describe()
    said = [line for line in run.own_lines() if "closed descriptors" not in line and "cannot read block" not in line]
    if how == "raw":
        # A forked child says for itself what it cannot read.
        assert said == [] and 1 <= len(run.own_lines()) <= 3, run.describe()
    else:
        assert run.own_lines() == [], run.describe()
    if how == "daemon":
        return  # the child's counters are nobody's file
    harness.assert_bounded(run)
    assert run.stats["spilled_bytes"] > 0, run.describe()
    assert how == "raw" or run.stats["read_errors"] == 0, run.describe()


@each_torch
def test_memory_is_given_back(torch):
    """Models made and deleted: neither memory nor spill space of the dead ones may stay."""
    budget = 40
    reference, run = both(torch, "create_delete", budget=budget)
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert max(reference.record["notes"]["anonymous_left"]) < 16 * MIB, "the plain program itself leaks"
    left = run.record["notes"]["anonymous_left"]
    # After a model's end the library may keep warm pages, up to its budget and no more.
    assert max(left) <= (budget + 16) * MIB, f"anonymous bytes left after each model: {left}\n{run.describe()}"
    assert run.stats["resident_bytes"] <= budget * MIB, run.describe()
    spilled = run.record["notes"]["spill_left"]
    assert max(spilled) <= 16 * MIB, f"spill space after each model: {spilled}\n{run.describe()}"


def _growth(torch, program, few, many, *, budget):
    """(counters of the longer run less those of the shorter): what a steady state adds."""
    short = both(torch, *program, str(few), budget=budget)[1]
    long = both(torch, *program, str(many), budget=budget)[1]
    counters = ("window_hits", "window_misses", "fallback_reads", "streamed_bytes", "swap_ins")
    return {key: long.stats[key] - short.stats[key] for key in counters}, long


def _assert_few(grown, uses, run):
    """At most a tenth of the `uses` of a 4 MiB weight went past the pool; fallback reads count pages."""
    assert grown["window_misses"] <= uses // 10, f"{grown}\n{run.describe()}"
    assert grown["fallback_reads"] <= uses // 10 * 1024, f"{grown}\n{run.describe()}"


@pytest.mark.forked
@each_torch
@pytest.mark.parametrize("program", ["infer mlp", "threads thread-per-inference"])
def test_steady_state_is_prefetched(torch, program):
    """After the order is learned, operators find their weights in the pool; a new thread for every inference too."""
    grown, run = _growth(torch, program.split(), 6, 12, budget=48)
    uses = 6 * 24
    assert grown["streamed_bytes"] > 0, run.describe()
    assert grown["window_hits"] > 0, run.describe()
    _assert_few(grown, uses, run)


@quick_on_113
def test_large_layers_are_cut(torch, disk):
    """A layer that fits the budget, but not beside a window for the next one, is kept in part and streamed in part:
    nothing is left to the mapping, and a pass reads no more than the budget lacks, plus the window; and plus two layers,
    which a window of few frames of different sizes may have to read twice."""
    (disk / "runtime").mkdir(mode=0o700)
    run = both(torch, "infer", "tall", "64", "watch", budget=64, env={"XDG_RUNTIME_DIR": str(disk / "runtime")})[1]
    lacking, layer = (8 * 4 + 2 * 40 - 64) * MIB, 4 * MIB
    read, most, grown, since = 0, 0, dict.fromkeys(("window_misses", "fallback_reads"), 0), 0
    passes = run.record["notes"]["passes"]
    for before, after in zip(passes, passes[1:]):
        # A plan is made when the order is known, and again where the machine is another one for a while; then what is
        # to stay is read once more.
        since = since + 1 if 0 < before["plans"] == after["plans"] else 0
        if since >= 3:
            read += after["streamed_bytes"] - before["streamed_bytes"]
            most += lacking + after["pool_bytes"] + 2 * layer
            grown = {key: grown[key] + after[key] - before[key] for key in grown}
    assert 16 * lacking <= read <= most, f"{read} of {most}\n{run.describe()}"
    _assert_few(grown, 10 * most // (lacking + 2 * layer), run)


@pytest.mark.forked
@quick_on_113
def test_training_steps_are_prefetched(torch):
    """Backward operators sit inside records without inputs; they must be seen all the same (invariant 7)."""
    grown, run = _growth(torch, ["train_mlp"], 4, 8, budget=72)
    uses = 4 * 16 * 2
    _assert_few(grown, uses, run)


def test_weights_behind_a_subclass_are_prefetched(torch213, disk):
    """Those that its code calls operators on, and those of operators that run again where its code is left out."""
    (disk / "runtime").mkdir(mode=0o700)
    _, run = both(torch213, "subclass", budget=20, env={"XDG_RUNTIME_DIR": str(disk / "runtime")})
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    hits, watched = run.record["notes"]["window_hits"]
    assert hits >= 50 and watched >= 50, f"{hits}, {watched} of 72 each\n{run.describe()}"


@quick_on_113
def test_compared_weights_are_not_read_whole(torch, disk):
    """A comparison ends at the first number that differs."""
    (disk / "runtime").mkdir(mode=0o700)
    _, run = both(torch, "compared", budget=24, env={"XDG_RUNTIME_DIR": str(disk / "runtime")})
    before, after = run.record["notes"]["streamed_bytes"]
    assert 0 < before and after < before + 8 * MIB, run.describe()


def test_weights_behind_a_transform_are_prefetched(torch213, disk):
    """A transform calls the operators again, on the weights that it wraps."""
    (disk / "runtime").mkdir(mode=0o700)
    _, run = both(torch213, "transforms", budget=20, env={"XDG_RUNTIME_DIR": str(disk / "runtime")})
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    uses = {"stacked": 72, "grad": 144, "samples": 144, "jacobian": 144, "functionalize": 72}
    few = {name: hits for name, hits in run.record["notes"]["window_hits"].items() if hits < uses[name] * 2 // 3}
    assert not few, f"{few} of {uses}\n{run.describe()}"


@pytest.mark.slow
def test_compiled_model_is_prefetched(torch213):
    grown, run = _growth(torch213, ["compiled"], 6, 12, budget=32)
    uses = 6 * 16
    assert grown["window_hits"] > 0, run.describe()
    assert grown["window_misses"] <= uses // 10, f"{grown}\n{run.describe()}"


EXITS = {"return": 0, "os_exit": 7, "sys_exit": 5, "sys_exit_in_thread": 0, "exception": 1, "exception_in_thread": 0,
         "thread": 0, "atexit": 0, "sigterm": -signal.SIGTERM, "sigint": -signal.SIGINT, "abort": -signal.SIGABRT,
         "exec": 11}


def _pair(torch, disk, *command, budget=48):
    """A plain and a swapped run that may end badly; both are returned as they ended."""
    pair = [harness.start(torch, *command, where=disk / name, budget=b) for name, b in (("a", None), ("b", budget))]
    return [process.finish() for process in pair]


def _without_addresses(text):
    return re.sub(r"0x[0-9a-f]+", "0x", text)


@quick_on_113
@pytest.mark.parametrize("how", EXITS)
def test_exit(torch, how, disk):
    """The same exit status, output and errors, however a process ends; work may be in flight."""
    plain, run = _pair(torch, disk, "exits", how)
    assert plain.rc == EXITS[how], plain.describe()
    assert run.rc == plain.rc, run.describe()
    assert run.record is not None and run.record["values"] == plain.record["values"], run.describe()
    assert run.stdout == plain.stdout, run.describe()
    assert run.stderr == plain.stderr, run.describe()


@quick_on_113
def test_threads_that_are_cancelled(torch):
    """Operators are no cancellation points, and nothing of ours stays locked or keeps a thread from ending."""
    reference, run = both(torch, "cancelled", str(harness.cancelled(torch)), budget=40)
    assert reference.record["values"]["cancelled"] == 6, reference.describe()
    harness.assert_streamed(run, mapped=True)


@quick_on_113
def test_signal_handler_that_forks(torch):
    """It has interrupted swapnet with a lock taken: the child may exec or end, and the parent goes on."""
    library = harness.fork_in_handler()
    run = both(torch, "fork_in_handler", str(library), budget=48, env={"LD_PRELOAD": f"{library} {harness.LIBRARY}"})[1]
    assert run.record["notes"] == run.record["notes"] | {"forks": 12, "failed": 0}, run.record["notes"]
    harness.assert_streamed(run)


@quick_on_113
def test_nothing_stays_of_a_thread(torch):
    """A server may have a thread for each request."""
    run = both(torch, "thread_per_request", budget=40)[1]
    assert run.record["notes"]["bytes_a_thread"] < 2048, run.record["notes"]


@quick_on_113
def test_exit_with_a_daemon_thread(torch, disk):
    """Python ends daemon threads by pthread_exit, which in a plain run, too, may meet a noexcept frame of PyTorch and
    abort. Anything else (a crash, a hang) would be ours."""
    for repeat in range(3):
        plain, run = _pair(torch, disk / str(repeat), "exits", "daemon_thread")
        for end in (plain, run):
            assert end.rc in (0, -signal.SIGABRT), end.describe()
            assert end.rc == 0 or "terminate called without an active exception" in end.stderr, end.describe()
        assert run.record["values"] == plain.record["values"], run.describe()


@quick_on_113
def test_crash_looks_like_a_crash(torch, disk):
    """A program's own segmentation fault still ends it by the signal, with faulthandler's words."""
    plain, run = _pair(torch, disk, "signals", "crash")
    assert plain.rc == -signal.SIGSEGV and "Segmentation fault" in plain.stderr, plain.describe()
    assert run.rc == plain.rc, run.describe()
    assert _without_addresses(run.stderr) == _without_addresses(plain.stderr), run.describe()
    assert run.record["values"] == plain.record["values"], run.describe()


@quick_on_113
def test_thread_that_blocked_all_signals_before(torch):
    """As servers with sigwait do, before the first tensor: a store into a weight that is on its way out would kill it."""
    reference, run = both(torch, "signals", "early", budget=48)
    assert reference.record["notes"]["blocks"] and not run.record["notes"]["blocks"], run.describe()
    harness.assert_streamed(run)


@quick_on_113
def test_a_handler_for_once_is_called_once(torch, disk):
    """One with SA_RESETHAND that returns: the second fault ends the program."""
    plain, run = _pair(torch, disk, "signals", "once")
    assert plain.rc == -signal.SIGSEGV, plain.describe()
    assert run.rc == plain.rc and run.stderr == plain.stderr, run.describe()


@quick_on_113
def test_no_file_is_left_behind(torch, disk):
    """The spill file is unlinked from its start: even a killed process leaves no weights on the disk."""
    process = harness.start(torch, "exits", "abort", where=disk, budget=48)
    run = process.finish()
    assert run.rc == -signal.SIGABRT, run.describe()
    left = [(path, size) for path in (disk / "store").rglob("*") if (size := os.path.getsize(path)) and path.is_file()]
    assert sum(size for _, size in left) < MIB, f"left in the store: {left}"
