"""The budget as the kernel sees it: runs inside a cgroup, with and without a hard limit, and a control that must fail.

Invariant 11: base_anon is the peak of the plain program in a fresh cgroup less its peak of tensor bytes. Passed is
a sampled peak of at most base_anon + budget + 32 MiB, and a run to the end under a hard limit that adds file pages.
"""
import dataclasses
import functools
import json
import os

import pytest

import cgroup
import harness
from harness import MIB

SLACK = 32 * MIB
# malloc otherwise keeps a share of the freed tensors that changes from run to run by up to 50 MiB, which would count as
# base although it is tensor memory.
RETURN_FREED = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10)}


@functools.cache
def _no_cgroup():
    return cgroup.why_not()


@pytest.fixture(autouse=True)
def _needs_a_cgroup():
    if why := _no_cgroup():
        pytest.skip(why)


def _run_in_cgroup(torch, program, env=None, budget=None, limit=None, timeout=300):
    """(usage, record, stats) of a program in a fresh cgroup; under swapnet when a budget is given."""
    env = env or {}
    with harness.disk_dir() as where, cgroup.Group("test") as group:
        if limit:
            group.limit(limit)
        record, stats = where / "record.json", where / "stats.json"
        if budget is not None:
            env = harness.swapnet_env(budget, stats, where) | env
        command = [torch.python, harness.program_file(f"{program[0]}"), record, *program[1:]]
        usage = group.run(command, env=harness.clean_env(env), cwd=where, timeout=timeout)
        read = [json.loads(path.read_text()) if path.exists() else None for path in (record, stats)]
    return usage, *read


@dataclasses.dataclass(frozen=True)
class Control:
    """The plain program in a fresh cgroup without a limit, under the counting preload only."""
    usage: cgroup.Usage
    record: dict

    @property
    def base_anon(self):
        return self.usage.peak_bytes - self.record["notes"]["peak_tensor_bytes"]

    def allowed(self, budget):
        return self.base_anon + budget * MIB + SLACK

    def hard_limit(self, budget):
        return self.allowed(budget) + self.usage.peak_mapped_file_bytes

    @property
    def sizes(self):
        notes = self.record["notes"]
        return harness.Sizes(notes["activation_bytes"], notes["streamable_bytes"], notes["weight_bytes"],
                             notes["largest_bytes"])


@functools.cache
def _control(torch, program):
    """Its peak is sampled, so on a busy machine a short one can be missed, by 40 MiB, and never overstated: the higher of
    two."""
    controls = []
    for _ in range(2):
        usage, record, _ = _run_in_cgroup(torch, program, {"LD_PRELOAD": str(harness.alloc_meter())} | RETURN_FREED)
        assert usage.rc == 0 and record, usage
        controls.append(Control(usage, record))
        assert controls[-1].base_anon > 0, usage
    return max(controls, key=lambda control: control.base_anon)


def _describe(usage, stats):
    peaks = {key: f"{value / MIB:.1f}" for key, value in vars(usage).items() if key.startswith("peak")}
    return f"rc {usage.rc}, oom kills {usage.oom_kills}, MiB {peaks}\nstats {stats}\n{usage.stderr[-3000:]}"


def _check(torch, program, budget):
    """Both halves of rule 11."""
    control = _control(torch, program)
    allowed = control.allowed(budget)
    usage, record, stats = _run_in_cgroup(torch, program, budget=budget, limit=control.hard_limit(budget))
    assert usage.oom_kills == 0 and usage.rc == 0 and not usage.timed_out, _describe(usage, stats)
    assert record["values"] == control.record["values"], _describe(usage, stats)
    # A layer larger than the budget is read through its mapping, and the rest may fit.
    assert stats["streamed_bytes"] + stats["fallback_reads"] > 0, _describe(usage, stats)
    assert usage.peak_bytes <= allowed, (
        f"{usage.peak_bytes / MIB:.1f} MiB, allowed {allowed / MIB:.1f} with a base of "
        f"{control.base_anon / MIB:.1f}\n{_describe(usage, stats)}")


def _check_control_fails(torch, program, budget):
    """The same limit without swapnet, and with one that enforces nothing: if such a run lives, the test above proves
    nothing."""
    control = _control(torch, program)
    limit, peak = control.hard_limit(budget), control.usage.peak_bytes
    assert peak > limit, f"the plain program's {peak / MIB:.0f} MiB fit into {limit / MIB:.0f}: choose a smaller budget"
    for env, given in (({}, None), ({"SWAPNET_ENFORCE": "0"}, budget)):
        usage, record, _ = _run_in_cgroup(torch, program, env, given, limit)
        assert usage.oom_kills > 0 and record is None, _describe(usage, None)


PROGRAMS = [(("infer", "mlp-deep", "6"), 64), (("infer", "mlp-deep", "6"), 128)]


def each_program(test):
    """The same halves for a limit and for the control of that limit."""
    ids = lambda p: "-".join(p) if isinstance(p, tuple) else f"{p}M"
    return pytest.mark.halved(pytest.mark.parametrize("program, budget", PROGRAMS, ids=ids)(test))


@each_program
def test_cgroup_limit_is_not_reached(torch, program, budget):
    _check(torch, program, budget)


@each_program
def test_control_is_killed(torch, program, budget):
    _check_control_fails(torch, program, budget)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.75])
@pytest.mark.parametrize("model", ["mobilenet_v2", "resnet101", "resnet152", "vit_b_16", "vgg19"])
def test_model_limit(torch, model, share):
    program = ("vision", model, "4")
    sizes = _control(torch, program).sizes
    budget = sizes.budget_mib(share)
    _check(torch, program, budget)


@pytest.mark.slow
@pytest.mark.parametrize("model, budget", [("resnet152", 16), ("vgg19", 40)])
def test_model_in_slices(torch, model, budget):
    """Their largest layers have 9 and 392 MiB, their activations 12 and 25."""
    _check(torch, ("vision", model, "4"), budget)


@pytest.mark.slow
def test_gpt2_in_slices(torch213):
    """498 MB, 154 of them an embedding that is the last layer as well."""
    _check(torch213, ("gpt2", "gpt2"), 32)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet101", "vgg19"])
def test_model_control_is_killed(torch, model):
    program = ("vision", model, "4")
    _check_control_fails(torch, program, _control(torch, program).sizes.budget_mib(0.5))


def test_checkpoint_loading_stays_within(torch):
    """A second model and its state_dict beside the first: three models of 96 MiB, one budget."""
    _check(torch, ("checkpoint", "pth"), 48)


def _uncache(directory):
    """Whoever reads a file first is charged for it."""
    for path in directory.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _check_loading(torch, program, how, mapped=None):
    """Construct, load, first inference at a quarter of the weights: over the base at most budget and 16 MiB. The
    first load, which writes the store, and one that finds it. What the plain program maps is libraries, or, if it is
    the checkpoint in the directory `mapped`, no reason for a larger limit. It does not fit the limit: else that would
    prove nothing."""
    if mapped:
        _uncache(mapped)
    control = _control(torch, program)
    weights = control.record["notes"]["weight_bytes"]
    budget = -(-int(weights * 0.25 + control.record["notes"].get("activation_bytes", 0)) // MIB)
    limit = control.allowed(budget) if mapped else control.hard_limit(budget)
    if mapped:  # of which the kernel may drop pages: the plain program would live, and read them again and again
        assert control.usage.peak_bytes + control.usage.peak_mapped_file_bytes > limit + weights // 4
    else:
        usage, record, _ = _run_in_cgroup(torch, program, limit=limit)
        assert usage.oom_kills > 0 and record is None, _describe(usage, None)
    with harness.disk_dir() as store:
        for turn in range(2):
            if mapped:
                _uncache(mapped)
            usage, record, stats = _run_in_cgroup(torch, program, {"SWAPNET_STORE": str(store)}, budget, limit)
            assert usage.oom_kills == 0 and usage.rc == 0 and not usage.timed_out, _describe(usage, stats)
            assert record["values"] == control.record["values"], _describe(usage, stats)
            over = usage.peak_bytes - control.base_anon
            assert over <= (budget + 16) * MIB, f"{over / MIB:.1f} MiB over the base, {how}\n{_describe(usage, stats)}"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["vgg19", "resnet152", "vit_b_16"])
def test_loading_vision(torch113, model, disk):
    path = disk / "model.pth"
    made = harness.start(torch113, "make_weights", f"vision:{model}", str(path), where=disk / "make").finish()
    assert made.rc == 0, made.describe()
    _check_loading(torch113, ("load_vision", model, str(path)), "pth")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["safetensors", "bin", "pth"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_loading_transformers(torch213, kind, form, disk):
    path = disk / "model"
    made = harness.start(torch213, "make_weights", kind, str(path), "7", "large", where=disk / "make").finish()
    assert made.rc == 0, made.describe()
    (path / "whole.pth").rename(path / "pytorch_model.bin")
    if form == "pth":
        _check_loading(torch213, ("load_language", kind, str(path / "pytorch_model.bin")), form)
        return
    if form == "bin":
        (path / "model.safetensors").unlink()
    _check_loading(torch213, ("from_pretrained", kind, str(path), "first"), form, mapped=path)
