"""When nothing changes any more, a pass costs the library no memory and no allocation, and no more mappings and page-table
entries than what it reads."""
import pytest

import harness


def _steady(torch, model, budget):
    reference = harness.plain(torch, "steady", model)
    with harness.disk_dir() as where:
        runtime = where / "runtime"
        runtime.mkdir(mode=0o700)
        run = harness.start(torch, "steady", model, where=where, budget=budget, preload=f"{harness.malloc_meter()} {harness.LIBRARY}",
                            env={"XDG_RUNTIME_DIR": str(runtime)}).finish()
    assert run.rc == 0 and run.record, run.describe()
    harness.assert_same(reference, run)
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    steady, passes = run.record["notes"]["steady"], run.record["notes"]["passes"]
    assert steady["streamed_bytes"] > 8 * harness.MIB, run.describe()  # it streams all the while
    assert steady["placed_bytes"] > passes * harness.MIB, run.describe()
    assert steady["plans"] == steady["plan_reviews"] == 0 and steady["filled_bytes"] == 0 and steady["dropped_bytes"] == 0, (steady, run.describe())
    assert steady["spilled_bytes"] == 0, (steady, run.describe())
    assert run.record["notes"]["watched"] == [1, 1], run.describe()
    # Neither half takes memory, but for PyTorch's own small tensors. What is read is mapped, and the file again instead.
    (c_heap, c_maps, _), cpp = run.record["notes"]["own_allocations"]
    assert c_heap == 0 and cpp == [0, 0, 0], (run.record["notes"], run.describe())
    assert c_maps < 8 * steady["streamed_bytes"] / harness.MIB, (run.record["notes"], run.describe())
    # The entries of what is mapped count as faults, all at once. What is left is Python's, and that of the libraries;
    # without a plan activations alone are some thousand.
    mapped = steady["streamed_bytes"] / passes / 4096
    assert run.record["notes"]["faults_per_pass"] < 1.1 * mapped + 100, (run.record["notes"], reference.record["notes"])


# The transformer is a slow one: on a disk that is slow for a while, places are given up for its weights, rightly.
# The language model does not always come to rest, and is one, too, until it does.
QUICK = [("1.13", "vgg"), ("2.13", "resnet")]


@pytest.mark.parametrize("torch, model, budget", [
    pytest.param(torch, model, budget, id=f"{model}-torch{torch.name}",
                 marks=[] if (torch.name, model) in QUICK else [pytest.mark.slow])
    for torch in harness.ALL_TORCH for model, budget in (("vgg", 48), ("resnet", 48), ("transformer", 44), ("language", 40))],
    indirect=["torch"])
@pytest.mark.alone  # a busy machine has more reads under way than ever before, and a frame more for them
def test_steady_state(torch, model, budget):
    _steady(torch, model, budget)


@pytest.mark.parametrize("model, budget", [pytest.param("resnet101", 97, marks=pytest.mark.slow),
                                           pytest.param("mobilenet_v2", 19, marks=pytest.mark.slow), ("mobilenet_v2", 16)])
@pytest.mark.alone
def test_steady_state_with_part_of_the_weights(torch113, model, budget):
    """What they need for activations, and half of their weights; or a quarter, in which no window has slices of full
    length, and activations left in their place."""
    _steady(torch113, model, budget)
