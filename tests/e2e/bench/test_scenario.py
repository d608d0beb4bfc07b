"""bench/scenario.py: several programs in one budget, and what it takes for a shortfall."""
import json
import subprocess
import sys

import pytest

import cgroup
import harness

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH), str(BENCH / "lib")]
MIB = harness.MIB
SMALL = """
import sys
sys.path.insert(0, {bench!r})
import scenario
scenario.SCENARIOS = {{"small": (240, (("a", "resnet101"), ("b", "resnet101")))}}
sys.exit(scenario.main())
"""


@pytest.mark.alone
@pytest.mark.presses
def test_two_of_one_model(torch113, disk):
    """Bits and memory as they should be, and the control fails; how long it takes is for the benchmark to say."""
    if why := cgroup.why_not():
        pytest.skip(why)
    out = disk / "out.json"
    done = subprocess.run(["/usr/bin/python3", "-c", SMALL.format(bench=str(BENCH)), "small", "--variants",
                           "mmap,eq1,not enforced", "--rounds", "1", "--slot", "1", "--warm-up", "2", "--dir", disk / "work",
                           "--library", harness.BUILD / "lib" / "libswapnet.so", "--python", torch113.python, "--json", out],
                          env=harness.clean_env(), capture_output=True, text=True, timeout=harness.HANG_S)
    assert done.returncode in (0, 1) and out.exists(), done.stderr  # 1: it takes longer than it should
    (small,) = json.loads(out.read_text())["scenarios"]
    assert done.returncode == bool(small["shortfalls"])
    assert all("best allocator" in line for line in small["shortfalls"]), done.stderr
    rows = {(row["variant"], row["dnn"]): row for row in small["rows"]}
    assert rows["not enforced", "all"]["killed"] or done.returncode, done.stderr
    for variant in ("sufficient memory", "mmap", "eq1"):
        for name in ("a", "b"):
            assert rows[variant, name]["same_bits"] and rows[variant, name]["latency_s"], (variant, name)
    assert 0 < rows["eq1", "all"]["over_base_bytes"] <= rows["eq1", "all"]["allowed_bytes"]
    assert not [path for path in (disk / "work").iterdir() if ".weights" in path.name]


def test_each_has_a_file_of_its_own(tmp_path):
    """Of memory-mapped weights the page cache would else be shared by those of one model."""
    import scenario
    import variants
    setup = variants.Setup("python", None, tmp_path, None)
    assert scenario.Scenario(setup, "rsu", None, None).weights == {
        "YOLOv3-a": setup.weights("yolov3"), "YOLOv3-b": setup.weights("YOLOv3-b"),
        "ResNet-101-a": setup.weights("resnet101"), "ResNet-101-b": setup.weights("ResNet-101-b"),
        "VGG-19": setup.weights("vgg19")}


def row(variant, dnn="all", **values):
    return {"variant": variant, "dnn": dnn, "ratio": 1.03, "limit_ratio": 1.01, "worst_ratio": 1.05, "same_bits": True,
            "over_base_bytes": 380 * MIB, "allowed_bytes": 400 * MIB, "killed": 0} | values


@pytest.fixture
def shortfalls():
    import scenario
    return lambda *rows, **options: list(scenario.shortfalls(list(rows), **options))


def test_nothing_falls_short(shortfalls):
    assert shortfalls(row("sufficient memory", ratio=None), row("mmap", ratio=4, same_bits=False, over_base_bytes=None),
                      row("eq1", "a"), row("eq1"), row("minmax"), row("not enforced", killed=1)) == []


@pytest.mark.parametrize("missed, text", [
    (row("eq1", over_base_bytes=403 * MIB), "eq1: peak is 3 MiB over"),
    (row("eq1", ratio=1.07), "1.070 of sufficient memory (goal 1.062"),
    (row("eq1", ratio=None), "best allocator takes - of"),
    (row("eq1", "a", same_bits=False), "eq1: a: other bits"),
    (row("eq1", "a", same_bits=None), "eq1: a: other bits"),
    (row("not enforced"), "not enforced: nothing was killed, and the peak is 20 MiB below"),
])
def test_what_falls_short(shortfalls, missed, text):
    (line,) = shortfalls(missed)
    assert text in line


def test_where_the_disk_does_not_allow_the_goal(shortfalls):
    """It is no shortfall then; how far it is to what the disk allows is told."""
    import scenario
    rows = [row("equal", ratio=1.5, limit_ratio=1.3), row("eq1", ratio=1.32, limit_ratio=1.2)]
    assert shortfalls(*rows) == []
    assert "equal: 1.154 of what it allows, eq1: 1.100 of" in scenario.verdict(rows)[0]


def test_without_a_limit(shortfalls):
    assert shortfalls(row("eq1"), limited=False) == ["no memory limit could be set: what they took was not judged"]


def test_minmax_that_is_not_best_for_the_slowest_falls_short(shortfalls):
    (line,) = shortfalls(row("eq1"), row("minmax", worst_ratio=1.2))
    assert line.startswith("minmax is not the best for the slowest")
