"""Convolutions that compute their result in stripes: equal bits, and within a budget that the matrix their kernels would
make of the input exceeds."""
import harness
from harness import MIB

# Whose matrix exceeds the budget, alone or with what it is made of: where the whole fits, measured time decides.
SECTIONS = ["plane", "batch", "strided", "dilated", "line", "volume", "again"]


def _striped(run, section):
    """In how many stripes; None: parts do not have the bits of the whole with this machine's library."""
    stripes, refused = run.record["notes"][section]
    assert stripes or refused, f"{section}: whole, untried\n{run.describe()}"
    return stripes or None


def _run(torch, *args, budget=32, env=()):
    with harness.disk_dir() as runtime:
        runtime.chmod(0o700)
        return harness.both(torch, *args, budget=budget, env={"XDG_RUNTIME_DIR": str(runtime), **dict(env)})[1]


def test_float64(torch):
    run = _run(torch, "striped", "float64")
    harness.assert_streamed(run, mapped=True)
    assert run.stats["stripes"] > 0, run.describe()
    if all([_striped(run, section) for section in SECTIONS]):
        harness.assert_bounded(run)
        assert run.own_lines() == [], run.describe()
    for section in ("small", "with gradients"):
        assert run.record["notes"][section] == [0, 0], run.describe()


def test_float32_without_onednn(torch):
    run = _run(torch, "striped", "float32")
    harness.assert_streamed(run, mapped=True)
    _striped(run, "batch")
    assert run.record["notes"]["oneDNN"] == [0, 0], run.describe()


def test_peak(torch):
    """The matrix, what it is made of and what it is for exceed the budget together: then tensors that are in use leave
    for it, as the control run shows. In stripes nothing does but the large weight."""
    run = _run(torch, "striped", "one", env={"SWAPNET_STRICT": "1"})
    control = _run(torch, "striped", "one", env={"SWAPNET_WITHOUT": "stripes"})
    assert control.stats["stripes"] == 0, control.describe()
    if _striped(run, "plane"):
        harness.assert_bounded(run)
        assert run.stats["spilled_bytes"] < control.stats["spilled_bytes"] - 3 * MIB, run.describe()


def test_other_bits(torch113, disk):
    """Of a library whose products have other bits in parts, which a convolution made of parts would have, too."""
    odd = harness.odd_gemm()
    plain = harness.start(torch113, "striped", "one", where=disk / "plain", preload=odd).finish()
    with harness.disk_dir() as runtime:
        runtime.chmod(0o700)
        env = {"LD_PRELOAD": f"{harness.LIBRARY}:{odd}", "XDG_RUNTIME_DIR": str(runtime)}
        run = harness.start(torch113, "striped", "one", where=disk / "swapped", budget=32, env=env).finish()
    harness.assert_same(plain, run)
    assert run.record["notes"]["plane"] == [0, 2], run.describe()
    usual = _run(torch113, "striped", "one")
    assert usual.record["values"]["plane0"] != plain.record["values"]["plane0"], "it is not used"
