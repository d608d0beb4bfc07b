"""Tensors that go to a device which shares the processor's memory. The device is a stand-in over host memory
(tests/fakes/cuda) that ends the program when a rule of the device is broken, on PyTorch's PrivateUse1 key: the same code
that stands before PyTorch's copies to CUDA."""
import functools
import subprocess

import pytest

import harness
from harness import MIB

pytestmark = [pytest.mark.unified, pytest.mark.halved, pytest.mark.forked("unified")]
STANDIN = harness.BUILD / "tests" / "fakes"
SHARING = ["xavier", "orin", "thor"]  # the device reads the tensors' own bytes
UNIFIED = ["nano", *SHARING]
WAYS = {"nano": "managed", "xavier": "registered", "orin": "registered", "thor": "pageable", "discrete": "none"}


def on(device, **extra):
    return {"STANDIN_DEVICE": device, "SWAPNET_DEVICE": "privateuseone"} | extra


def both(torch, mode, *args, device, budget=96, **extra):
    """(plain run, swapped run) of programs/unified.py, and no word on stderr that the test did not ask for."""
    reference, run = harness.both(torch, "unified", str(STANDIN), mode, *args, budget=budget, env=on(device, **extra))
    assert run.stats["unified"] == WAYS[device], run.describe()
    return reference, run


@pytest.mark.parametrize("device", SHARING)
def test_moved_model_is_not_copied(torch, device):
    """No weight is copied, and there is one copy of the model in memory, not two."""
    run = both(torch, "move", device=device)[1]
    notes, stats = run.record["notes"], run.stats
    assert stats["unified_elided_bytes"] == notes["shared_bytes"], run.describe()
    assert stats["unified_copied_bytes"] == notes["small_bytes"] + notes["input_bytes"], run.describe()
    assert notes["device_peak"] < MIB, run.describe()
    assert stats["peak_resident_bytes"] < notes["shared_bytes"] + 3 * MIB, run.describe()
    assert run.own_lines() == [], run.describe()


def test_hidden_allocator_is_shared_with_all_the_same(torch):
    """CUDA's own is known to nobody but CUDA in older versions."""
    run = both(torch, "move", device="orin", STANDIN_HIDES_ALLOCATOR="1")[1]
    assert run.stats["unified_elided_bytes"] == run.record["notes"]["shared_bytes"], run.describe()


def test_moved_by_name(torch213):
    run = both(torch213, "named", device="orin")[1]
    assert run.stats["unified_elided_bytes"] == run.record["notes"]["shared_bytes"], run.describe()
    assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("device", ["nano", "discrete"])
def test_moved_by_copying(torch113, device):
    """The control: what is in memory, and not on disk, has to be copied into the device's own memory or buffers."""
    run = both(torch113, "move", device=device)[1]
    notes, stats = run.record["notes"], run.stats
    assert stats["unified_elided_bytes"] == 0, run.describe()
    moved = notes["shared_bytes"] + notes["small_bytes"] + notes["input_bytes"]
    assert stats["unified_copied_bytes"] == moved, run.describe()
    assert (notes["device_peak"] >= notes["shared_bytes"]) == (device == "discrete"), run.describe()


@pytest.mark.parametrize("device", ["xavier", "orin", "thor", "nano"])
@pytest.mark.parametrize("mode", ["tied", "writes", "meanwhile", "changed", "lifetime", pytest.param("fork", marks=pytest.mark.whole),
                                  "graph", "let_go_in_a_capture"])
def test_either_side_sees_what_a_copy_would_hold(torch, mode, device):
    """Code that inspects tensors sees what it would see if everything had been copied."""
    run = both(torch, mode, device=device)[1]
    assert run.own_lines() == [], run.describe()
    if mode == "changed" and device != "nano":
        assert run.record["notes"]["live"]["registered"] == 0, run.describe()


@pytest.mark.parametrize("device", ["orin", "nano"])
def test_pinned_memory_is_said_to_be_pinned(torch, device):
    run = both(torch, "pinned", device=device)[1]
    assert run.own_lines() == [], run.describe()


def test_stream_that_uses_a_tensor_is_recorded(torch):
    run = both(torch, "other_stream", device="orin")[1]
    assert run.record["notes"]["recorded"] == [0x4000, 0x20], run.describe()


def test_hidden_streams_throw_nothing_on_a_drop(torch213):
    """Nothing is thrown out of what drops a tensor."""
    run = both(torch213, "streams_hidden", device="orin")[1]
    assert run.stats["unified_elided_bytes"] == MIB and run.own_lines() == [], run.describe()


def hurried(factor):
    """For the torch backend time passes this many times as fast."""
    return {"LD_PRELOAD": f"{harness.LIBRARY}:{harness.hurry()}", "HURRY": str(factor)}


def test_writer_waits_for_a_device_that_still_reads(torch113):
    """Who is to write waits for the device, also for much longer than half a minute, which is half a second here."""
    run = both(torch113, "still_read", "1", "1", device="orin", **hurried(60))[1]
    assert run.stats["unified_elided_bytes"] > 0 and run.own_lines() == [], run.describe()


def test_lazy_clone_is_copied(torch213):
    both(torch213, "lazy_clone", device="orin")


@pytest.mark.parametrize("kernel, operator, who", [("7", "0", "the device"), ("0", "7", "an operator of another thread")])
def test_kernel_without_an_end_ends_the_program(torch213, kernel, operator, who):
    """What does not come to an end, as far as one can tell, ends the program, and is no wrong result."""
    with harness.disk_dir() as where:
        run = harness.start(torch213, "unified", str(STANDIN), "still_read", kernel, operator, where=where, budget=96,
                            env=on("orin", **hurried(200))).finish()
    assert run.rc == 5 and len(run.own_lines()) == 1, run.describe()
    assert "a weight that is about to be written" in run.own_lines()[0], run.describe()
    assert f"{who} does not come to an end" in run.own_lines()[0], run.describe()


def test_unknown_streams_share_nothing(torch213):
    """A PyTorch that does not say what it launches on: nobody would know when a device is done, so nothing is shared."""
    run = both(torch213, "move", device="orin", STANDIN_HIDES_STREAMS="1")[1]
    assert run.stats["unified_elided_bytes"] == 0, run.describe()
    assert len(run.own_lines()) == 1 and "does not say which stream" in run.own_lines()[0], run.describe()


@pytest.mark.parametrize("device", ["orin", "thor"])
def test_callback_of_the_device_is_not_waited_for(torch, device):
    """No thread waits for a device while it holds a lock that the device may be waiting for."""
    run = both(torch, "called_back", device=device)[1]
    assert run.stats["unified_elided_bytes"] > 0 and run.own_lines() == [], run.describe()


@pytest.mark.parametrize("mode", ["ordered", "readers", "modes"])
def test_sharing_changes_nothing_that_programs_see(torch, mode):
    """What nobody may notice: the order of a stream's copies, threads that only read, and the program's own modes."""
    run = both(torch, mode, device="thor")[1]
    assert run.stats["unified_elided_bytes"] > 0, run.describe()
    assert run.own_lines() == [], run.describe()


def test_compiled_in_a_child(torch213):
    run = both(torch213, "compiled_child", device="thor")[1]
    assert run.stats["unified_elided_bytes"] > 0, run.describe()
    assert run.own_lines() == [], run.describe()


@functools.cache
def checkpoint(torch):
    """A model of 16 MiB, saved by a plain run."""
    path = f"{harness.session_dir('unified')}/{torch.name}.pth"
    harness.plain(torch, "unified", str(STANDIN), "save", path)
    return path


@pytest.mark.parametrize("device, budget", [("thor", 12), ("orin", 40)])
def test_graph_loaded(torch, device, budget):
    """What streams otherwise stays for a graph; what there is no room for is copied, which is said."""
    run = both(torch, "graph_loaded", checkpoint(torch), device=device, budget=budget)[1]
    stats, lines = run.stats, run.own_lines()
    assert stats["unified_elided_bytes"] > 0, run.describe()
    assert len(lines) == (budget < 16) and all("a CUDA graph" in line for line in lines), run.describe()


@pytest.mark.parametrize("device, budget", [("thor", 12), ("thor", 24), ("orin", 24), ("xavier", 24), ("nano", 24)])
def test_loaded(torch, device, budget):
    """By reference: nothing is copied, neither when the checkpoint is read nor when the model is moved. Where the device
    reads what is mapped, the model may be larger than the budget."""
    run = both(torch, "load", checkpoint(torch), device=device, budget=budget)[1]
    notes, stats = run.record["notes"], run.stats
    assert stats["deferred_bytes"] >= notes["shared_bytes"], run.describe()
    assert stats["unified_elided_bytes"] == notes["shared_bytes"], run.describe()
    assert stats["unified_copied_bytes"] == notes["small_bytes"] + notes["input_bytes"], run.describe()
    assert notes["live"]["registered"] == (16 if WAYS[device] == "registered" else 0), run.describe()
    assert notes["live"]["managed"] == (16 if device == "nano" else 0), run.describe()
    harness.assert_bounded(run)
    if budget < 16:
        harness.assert_streamed(run)
        # Read ahead and lent at their own addresses, not page by page.
        assert stats["window_hits"] > 4 * stats["window_misses"], run.describe()
    assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("device", ["orin", "thor"])
def test_one_copy(torch, device):
    """Of weights whose both sides are kept there is one copy in memory, sampled from outside. Plainly there are two."""
    plain, run = both(torch, "peak", device=device, budget=128)
    shared = run.record["notes"]["shared_bytes"]
    assert plain.record["notes"]["peak"] > 1.9 * shared, plain.describe()
    assert run.record["notes"]["peak"] < 1.25 * shared, run.describe()


def test_fetched_back_without_a_copy(torch):
    """To the device and back: registered each time, and not a byte of it copied, but for the heads of the file."""
    run = both(torch, "fetched", checkpoint(torch), device="thor", budget=24)[1]
    shared = run.record["notes"]["shared_bytes"]
    assert run.stats["unified_copied_bytes"] == 0 and run.stats["unified_elided_bytes"] == shared, run.describe()
    assert run.stats["deferred_bytes"] > 3 * shared - MIB // 16, run.describe()


@pytest.mark.parametrize("device", ["orin", "thor"])
def test_taken_away(torch, device):
    run = both(torch, "taken_away", checkpoint(torch), device=device, budget=24)[1]
    assert run.stats["unified_elided_bytes"] >= 16 * MIB, run.describe()
    assert run.record["notes"]["live"]["registered"] == 0 and run.own_lines() == [], run.describe()


def straight(torch, how, device, budget):
    run = both(torch, "straight", checkpoint(torch), how, device=device, budget=budget)[1]
    notes, stats = run.record["notes"], run.stats
    assert stats["unified_elided_bytes"] == notes["shared_bytes"], run.describe()
    assert run.own_lines() == [], run.describe()
    harness.assert_bounded(run)
    return run


@pytest.mark.parametrize("device, budget", [("thor", 12), ("orin", 24), ("nano", 24)])
def test_straight_to_the_device(torch, device, budget):
    """torch.load(map_location=...): the storages that PyTorch makes on the device come to name the checkpoint's bytes,
    and are never all there."""
    run = straight(torch, "read", device, budget)
    assert run.record["notes"]["device_peak"] < 3 * MIB, run.describe()


@pytest.mark.parametrize("how", ["mmap", "safetensors"])
@pytest.mark.parametrize("device, budget", [("thor", 12), ("nano", 24)])
def test_mapped_files_go_straight_to_the_device(torch213, how, device, budget):
    """Files that PyTorch maps."""
    run = straight(torch213, how, device, budget)
    assert run.record["notes"]["device_peak"] < 3 * MIB, run.describe()


@functools.cache
def llama(torch):
    path = f"{harness.session_dir('unified')}/llama"
    harness.plain(torch, "unified", str(STANDIN), "device_map", path)  # writes it
    return path


@pytest.mark.parametrize("device, budget", [("thor", 16), pytest.param("orin", 40, marks=pytest.mark.slow), ("orin", 30)])
def test_device_map(torch213, device, budget):
    """from_pretrained(device_map=...) copies no weight either; nor are they kept for the thread that its progress bar
    leaves behind, where each has an address of its own."""
    run = both(torch213, "device_map", llama(torch213), device=device, budget=budget)[1]
    notes, stats = run.record["notes"], run.stats
    assert stats["unified_elided_bytes"] == notes["shared_bytes"], run.describe()
    if budget != 30:
        harness.assert_bounded(run)
    assert run.stats["over_budget_bytes"] < MIB, run.describe()
    assert run.stats["device_kept_bytes"] == 0 and (run.stats["device_swap_ins"] > 0) == (budget == 30), run.describe()


@pytest.mark.parametrize("device", ["orin", "nano"])
def test_weights_without_room_come_and_go(torch213, device):
    """Memory that may not leave, and not enough of it: the rest comes and goes (test_devswap.py)."""
    run = both(torch213, "load", checkpoint(torch213), device=device, budget=12)[1]
    assert run.stats["unified_elided_bytes"] == run.record["notes"]["shared_bytes"], run.describe()
    assert run.stats["device_swap_ins"] > 0 and run.stats["device_kept_bytes"] == 0, run.describe()
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("device", ["orin", "thor"])
def test_beside_a_streamed_model(torch, device):
    """What the device holds counts, and the plan of what streams on the processor knows of it."""
    run = both(torch, "beside", device=device, budget=44)[1]
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.stats["plans"] > 0 and run.own_lines() == [], run.describe()


@pytest.mark.parametrize("model, budget", [("transformer", 96), pytest.param("resnet101", 320, marks=pytest.mark.slow)])
@pytest.mark.parametrize("device", ["orin", "thor"])
def test_models_are_shared_whole(torch, model, budget, device):
    run = both(torch, "bits", model, device=device, budget=budget)[1]
    assert run.stats["unified_elided_bytes"] == run.record["notes"]["shared_bytes"], run.describe()
    assert run.own_lines() == [], run.describe()


def test_compiled_code_has_memory_of_its_own(torch213):
    """Nobody says what compiled code writes: everything gets memory of its own before it runs."""
    run = both(torch213, "compiled", device="thor")[1]
    assert len(run.own_lines()) == 1 and "compiled code runs" in run.own_lines()[0], run.describe()


@pytest.mark.parametrize("wish, way", [("managed", "managed"), ("registered", "registered"), ("off", "off"),
                                       ("pageable", "none")])
def test_way_that_is_asked_for_is_taken_or_refused(torch113, wish, way):
    """SWAPNET_UNIFIED takes another way than the device's best, or none; what the device does not know is refused."""
    env = on("orin", SWAPNET_UNIFIED=wish)
    run = harness.both(torch113, "unified", str(STANDIN), "tied", budget=96, env=env)[1]
    assert run.stats["unified"] == way, run.describe()
    assert ["has no pageable memory" in line for line in run.own_lines()] == ([True] if wish == "pageable" else [])


def test_without_a_device(torch113):
    """Where there is no CUDA runtime, nothing is looked for and nothing is said."""
    run = harness.both(torch113, "infer", "mlp", budget=48, env={"SWAPNET_UNIFIED": "managed"})[1]
    assert (run.stats["unified"], run.stats["unified_copied_bytes"]) == ("none", 0), run.describe()
    assert run.own_lines() == [], run.describe()


def test_kernel_of_the_devices(torch):
    """Of the program's own, for an operator that computes with weights: those of the processor are lent as ever."""
    run = harness.both(torch, "device_kernels", str(STANDIN), budget=12, env=on("discrete"))[1]
    harness.assert_streamed(run)
    assert run.stats["window_hits"] > 40 and run.stats["window_misses"] == 0, run.describe()
    assert run.own_lines() == [], run.describe()


def test_device_tests_have_their_label():
    """`ctest -L unified` has all of it, and scripts/test does not run this file twice."""
    def listed(*options):
        return subprocess.run(["ctest", "--test-dir", harness.BUILD, "-N", *options], capture_output=True, text=True,
                              check=True).stdout
    names = ("t_unified", "t_device", "e2e-unified", "gpu")
    assert all(f": {name}\n" in listed("-L", "unified") for name in names), listed("-L", "unified")
    assert "-LE 'e2e|timed'" in (harness.REPO / "scripts" / "test").read_text() and "e2e-unified" not in listed("-LE", "e2e")


@pytest.mark.parametrize("device, parts", [
    pytest.param("discrete", "moves,leaks,rules,models", marks=pytest.mark.slow, id="discrete"),
    pytest.param("orin", "moves,leaks,rules,models", marks=pytest.mark.slow, id="orin"),
    pytest.param("orin", "rules", id="orin-rules")])
def test_gpu_script(torch113, torch213, device, parts):
    """Each part of tests/gpu/run, in small, where it can go without a GPU; and what it says where there is none."""
    python = (torch213 if device == "discrete" else torch113).python
    command = [harness.REPO / "tests" / "gpu" / "run", "--python", python, "--build", harness.BUILD]
    env = harness.clean_env()
    done = subprocess.run([*command, "--standin", device, "--small", "--jobs", "2", "--parts", parts], capture_output=True, text=True, env=env)
    assert done.returncode == 0 and "0 failures" in done.stdout, done.stdout + done.stderr
    none = subprocess.run([*command, "--ctest"], capture_output=True, text=True, env=env | {"CUDA_VISIBLE_DEVICES": ""})
    assert none.returncode == 77 and none.stdout.startswith("gpu: skipped: "), none.stdout + none.stderr
