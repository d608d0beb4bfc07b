"""Models on a device that has no room for all of their weights, which come and go there: on a card with memory of its own
(SWAPNET_DEVICE_BUDGET), and where what the device uses may not leave the processor's memory. The device is a stand-in
(tests/fakes/cuda) that ends the program when a kernel reads what is not there, or what changes meanwhile."""
import functools

import pytest

import harness
from harness import MIB

pytestmark = [pytest.mark.unified, pytest.mark.halved, pytest.mark.forked("devswap")]
STANDIN = harness.BUILD / "tests" / "fakes"
MLP = 48  # MiB

# Each kind of device, and on a card both versions; tests/unit/skeleton/device/t_swapper.c has the rest.
WHERE = pytest.mark.parametrize("torch, device", [(harness.TORCH113, "discrete"), (harness.TORCH213, "discrete"),
                                                  (harness.TORCH213, "orin"), (harness.TORCH113, "nano"),
                                                  (harness.TORCH213, "xavier")], indirect=["torch"],
                                ids=["torch1.13-card", "torch2.13-card", "torch2.13-orin", "torch1.13-nano", "torch2.13-xavier"])


def both(torch, mode, *args, device, budget, device_budget=None, **extra):
    env = {"STANDIN_DEVICE": device, "SWAPNET_DEVICE": "privateuseone"} | extra
    if device_budget:
        env["SWAPNET_DEVICE_BUDGET"] = f"{device_budget}M"
    return harness.both(torch, "devswap", str(STANDIN), mode, *args, budget=budget, env=env)[1]


def on_card(torch, mode, *args, room=12, **options):
    return both(torch, mode, *args, device="discrete", budget=64, device_budget=room, **options)


def assert_swapped(run, room=None):
    stats = run.stats
    assert stats["device_swap_ins"] > 0, run.describe()
    if room:
        assert stats["device_peak_bytes"] <= room * MIB, run.describe()
    assert stats["over_budget_bytes"] == 0, run.describe()


@pytest.mark.parametrize("share", [25, 50, 100])
@pytest.mark.parametrize("model, size", [("transformer", 48), pytest.param("resnet101", 176, marks=pytest.mark.slow)])
def test_card_holds_no_more_than_its_budget(torch, model, size, share):
    """Equal bits, and no more of the card's memory for weights than was said."""
    room = size * share // 100 + (4 if share == 100 else 0)
    run = on_card(torch, "bits", model, room=room)
    assert_swapped(run, room)
    stats, notes = run.stats, run.record["notes"]
    assert stats["device_kept_bytes"] == 0 and run.own_lines() == [], run.describe()
    if share == 100:  # read once
        assert stats["device_swapped_bytes"] <= notes["shared_bytes"], run.describe()
    else:
        assert notes["device_peak"] < notes["shared_bytes"], run.describe()


@pytest.mark.parametrize("device, budget", [("orin", 24), ("xavier", 40), ("nano", 24)])
def test_larger_than_the_budget(torch, device, budget):
    """Of what the device shares, and may not leave, as much as there is room for; the rest comes and goes."""
    run = both(torch, "bits", "mlp", device=device, budget=budget)
    assert_swapped(run)
    harness.assert_bounded(run)
    assert run.stats["device_kept_bytes"] == 0 and run.own_lines() == [], run.describe()


@functools.cache
def checkpoint(torch):
    return f"{harness.session_dir('devswap')}/{torch.name}.pth"


@WHERE
def test_checkpoint_goes_from_disk_to_device(torch, device):
    """From the disk to the device, and not through the processor's tensors."""
    room = 16 if device == "discrete" else None
    harness.plain(torch, "devswap", str(STANDIN), "loaded", checkpoint(torch))
    run = both(torch, "loaded", checkpoint(torch), device=device, budget=32, device_budget=room)
    assert_swapped(run, room)
    assert run.stats["device_swapped_bytes"] > 32 * MIB, run.describe()
    assert run.own_lines() == [], run.describe()


@WHERE
def test_list_with_gaps_lends_what_follows_them(torch, device):
    """A list of tensors in which some are left out: those behind them are not forgotten, but lent as well."""
    room = 16 if device == "discrete" else None
    path = f"{checkpoint(torch)}.indexed"
    harness.plain(torch, "devswap", str(STANDIN), "indexed", path)
    run = both(torch, "indexed", path, device=device, budget=32, device_budget=room)
    stats = run.stats
    # What is not lent either stays, or is not there when the kernel reads it, which ends the program. Of what is brought
    # the indices alone are not of whole MiB.
    assert stats["device_kept_bytes"] == 0 and stats["device_swapped_bytes"] % MIB > 0, run.describe()


@WHERE
@pytest.mark.parametrize("mode", ["written", "streams", "graph", pytest.param("forked", marks=pytest.mark.whole), "dropped"])
def test_either_side_sees_what_a_copy_would_hold(torch, mode, device):
    """Code that inspects tensors sees what it would see if everything had been copied."""
    run = both(torch, mode, device=device, budget=48, device_budget=12 if device == "discrete" else None)
    assert_swapped(run)
    if mode != "written":
        assert run.own_lines() == [], run.describe()


@WHERE
@pytest.mark.parametrize("mode", ["graph_written", "graph_writes"])
def test_graphs_and_writers(torch, mode, device):
    """A graph sees what is written after it has been captured, and may write itself. It has more than there is room for."""
    run = both(torch, mode, device=device, budget=48, device_budget=12 if device == "discrete" else None)
    assert run.stats["device_swap_ins"] > 0, run.describe()
    said = ("a CUDA graph is captured that uses more", "need", "does not fit the room for weights")
    assert all(any(word in line for word in said) for line in run.own_lines()), run.describe()


@pytest.mark.parametrize("device", ["discrete", "orin", "xavier"])
def test_swapped_model_is_pickled_whole(torch213, device):
    assert_swapped(both(torch213, "pickled", device=device, budget=48, device_budget=12 if device == "discrete" else None))


@pytest.mark.parametrize("device", ["discrete", "orin"])
def test_late_kernel_is_given_its_weights(torch, device):
    run = both(torch, "late_kernel", device=device, budget=48, device_budget=12 if device == "discrete" else None)
    assert_swapped(run)
    # The three weights that it is given; not the one that it uses besides.
    assert run.stats["device_kept_bytes"] <= 3 * 4 * MIB, run.describe()


@pytest.mark.parametrize("device", ["discrete", "orin"])
def test_forked_before(torch, device):
    both(torch, "forked_before", device=device, budget=96, device_budget=12 if device == "discrete" else None)


@WHERE
def test_graph_of_all(torch, device):
    """What a graph has beyond the room is said, and counted."""
    card = device == "discrete"
    run = both(torch, "graph_of_all", device=device, budget=48, device_budget=12 if card else None)
    assert run.stats["device_kept_bytes"] >= (32 * MIB if card else MIB), run.describe()
    lines = run.own_lines()
    assert "a CUDA graph is captured" in lines[0], run.describe()
    assert len(lines) == (1 if run.stats["over_budget_bytes"] == 0 else 2), run.describe()


def test_weight_written_while_it_is_brought_is_right(torch):
    run = on_card(torch, "overtaken", STANDIN_MAP_MS="200")
    assert run.stats["device_kept_bytes"] == 4 * MIB and run.own_lines() == [], run.describe()


@WHERE
def test_copy_to_another_type_is_made_on_the_device(torch, device):
    run = both(torch, "cast", device=device, budget=48, device_budget=12 if device == "discrete" else None)
    assert_swapped(run)
    assert run.stats["device_kept_bytes"] == 0, run.describe()
    # Some fit where they stay, as buffers that are filled by a copy.
    assert run.stats["unified_copied_bytes"] < (MLP if device == "nano" else 1) * MIB, run.describe()
    assert run.own_lines() == [], run.describe()


def test_two_cards(torch):
    """A model on each; the current device is the first throughout, and nothing is left on the wrong one's streams."""
    run = on_card(torch, "devices")
    assert_swapped(run, 24)
    assert run.own_lines() == [], run.describe()


@pytest.mark.parametrize("device", ["discrete", "orin"])
def test_second_thread_keeps_shared_addresses(torch213, device):
    """On a card addresses are for ever; elsewhere another thread could keep one, so that weights stay for good, which is
    said."""
    run = both(torch213, "threads", device=device, budget=64, device_budget=12 if device == "discrete" else None)
    if device == "discrete":
        assert_swapped(run, 12)
        assert run.own_lines() == [], run.describe()
    else:
        assert run.stats["device_kept_bytes"] > 0, run.describe()
        assert len(run.own_lines()) == 1 and "second thread" in run.own_lines()[0], run.describe()


def test_compiled_code_has_its_weights_for_good(torch213):
    """Nobody says what compiled code reads: everything is there for good before it runs, and that is said."""
    run = on_card(torch213, "compiled")
    assert run.stats["device_kept_bytes"] >= MLP * MIB, run.describe()
    assert len(run.own_lines()) == 1 and "compiled code runs" in run.own_lines()[0], run.describe()


def out_of_memory(torch, memory):
    """Whether the plain program ends for want of the card's memory."""
    with harness.disk_dir() as where:
        run = harness.start(torch, "devswap", str(STANDIN), "bits", "mlp", where=where,
                            env={"STANDIN_DEVICE": "discrete", "STANDIN_MEMORY": str(memory)}).finish()
    assert run.rc == 0 or "no memory left" in run.stderr, run.describe()
    return run.rc != 0


def test_larger_than_the_card(torch):
    """Nobody said how much of the card is for weights: what has no place there comes and goes, which is said once."""
    assert out_of_memory(torch, 40)
    run = both(torch, "bits", "mlp", device="discrete", budget=64, STANDIN_MEMORY="40")
    assert_swapped(run)
    stats = run.stats
    assert 0 < stats["device_peak_bytes"] <= stats["device_budget_bytes"] < 20 * MIB, run.describe()
    assert stats["device_kept_bytes"] == 0, run.describe()
    assert len(run.own_lines()) == 1 and "no unified memory" in run.own_lines()[0], run.describe()


def test_no_memory_of_its_own(torch113):
    """What cannot be lent, and finds no memory on the card to be copied to, ends the program, which is told why."""
    with harness.disk_dir() as where:
        run = harness.start(torch113, "devswap", str(STANDIN), "unlisted", where=where, budget=64,
                            env={"STANDIN_DEVICE": "discrete", "STANDIN_MEMORY": "32", "SWAPNET_DEVICE": "privateuseone",
                                 "SWAPNET_DEVICE_BUDGET": "12M"}).finish()
    assert run.rc == 5, run.describe()
    assert "aten::trace may write a weight, or keep its address" in run.stderr, run.describe()
    assert "a weight that comes and goes, and cannot for the next operator, cannot be given memory of its own: the " \
           "device has no memory left;" in run.stderr, run.describe()


def test_unused_memory_of_the_card_is_not_lacking(torch213):
    """What PyTorch keeps of the card's memory without a use is not lacking."""
    run = both(torch213, "bits", "mlp", device="discrete", budget=64, STANDIN_MEMORY="52")
    assert_swapped(run)
    run = both(torch213, "bits", "mlp", device="discrete", budget=64, STANDIN_MEMORY="52", STANDIN_IDLE="16")
    assert run.stats["device_swap_ins"] == 0 and run.own_lines() == [], run.describe()


def test_kept_unused_given_back(torch213):
    """What PyTorch keeps unused is asked for before a weight is given up on."""
    run = both(torch213, "bits", "mlp", device="discrete", budget=64, device_budget=24, STANDIN_MEMORY="3", STANDIN_IDLE="32")
    assert_swapped(run)
    assert run.stats["device_kept_bytes"] == 0 and run.stats["device_peak_bytes"] > 3 * MIB, run.describe()


def test_without_a_device_budget(torch113):
    """PyTorch copies, and a word about it only where it was asked for."""
    run = both(torch113, "bits", "mlp", device="discrete", budget=64)
    assert run.stats["device_swap_ins"] == 0 and run.own_lines() == [], run.describe()
    run = both(torch113, "bits", "mlp", device="discrete", budget=64, SWAPNET_VERBOSE="1")
    assert sum("no unified memory" in line for line in run.own_lines()) == 1, run.describe()


@pytest.mark.parametrize("device", ["discrete", "thor"])
def test_late_copy_finds_the_weight_at_its_address(torch, device):
    """A device whose copy engine goes to pageable memory reads a weight after its frame has gone to others: what is at
    the weight's address is the weight all the same."""
    run = both(torch, "later", device=device, budget=24, STANDIN_COPIES_LATER="1")
    harness.assert_streamed(run)
    assert run.stats["over_budget_bytes"] == 0, run.describe()
