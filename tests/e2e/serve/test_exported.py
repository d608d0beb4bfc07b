"""The tape of a file of torch.export computes what the exported model does, bit for bit, and takes the same inputs."""
import json

import pytest

import harness
from serve_engine import Engine

FORMS = ("convnet", "mlp", "containers", "in place", "no grad", "embedding", "batch", "dynamic", "lstm", "attention", "transformer", "half")
TORCHVISION = "resnet18 mobilenet_v2 vit_b_16 vgg19 resnet50 densenet121 vgg11 squeezenet1_1".split()


@pytest.fixture
def run(torch):
    if torch.name == "1.13":
        pytest.skip("PyTorch 1.13 has no files of torch.export")
    backend = harness.BUILD / "lib" / "swapnet" / f"serve-{torch.name}.so"

    def exported(*names, **options):
        run = harness.plain(torch, "exported", str(backend), *names, **options)
        wrong = [name for name, value in run.record["values"].items() if value is False]
        assert not wrong, wrong
        return run.record["values"]

    return exported


def test_tape_has_the_bits_of_the_export(run):
    values = run(*FORMS, timeout=600)
    assert values["convnet: groups"] > 6
    assert values["convnet: described"][0] == [["x", "FP32", [1, 3, 8, 8]]]
    assert values["batch: described"][0][0][2] == [-1, 3, 8, 8]
    assert values["embedding: described"] == [[["input", "INT64", [2, 3]]], [["OUTPUT__0", "FP32", [2, 3, 8]]]]
    assert [name for name, _, _ in values["containers: described"][1]] == ["low", "pair__0", "pair__1", "list__0"]
    assert values["containers: weight bytes"] == 4 * (2 * 64 * 32 + 3 * 32 + 32 + 32)
    assert values["mlp: weight bytes"] == 8 * (256 * 256 + 256) * 4


def test_what_does_not_fit_is_refused(run):
    values = run("refused")
    assert values["element"] == 'bad_input: input "x" is FP64, and must be FP32'
    assert values["rank"] == 'bad_input: input "x" has 3 dimensions, and must have 2'
    assert values["size"] == 'bad_input: input "x": dimension 1 is 63, and must be 64'
    assert values["most"].startswith('bad_input: input "x": dimension 0 is 17, and must be such that s')
    assert values["most"].endswith("is at most 16")
    assert values["equal"] == 'bad_input: input "y": dimension 0 is 4, and must be 3 as other dimensions of the request say'
    assert values["state"].startswith("unreadable: ") and "state" in values["state"]
    assert values["hidden 0"] == values["hidden 1"] == "failed: the program changes a weight"
    assert values["foreach"].startswith("unreadable: ") and "the program changes a weight, so it has a state" in values["foreach"]
    assert values["foreach view"] == "failed: the program changes a weight"
    assert values["statistics"].startswith("unreadable: ") and "the program changes a weight, so it has a state" in values["statistics"]
    assert values["text"].startswith("unreadable: ") and values["text"].endswith("is too long")
    assert values["cut"].startswith("unreadable: neither a TorchScript file nor one of torch.export")
    assert "Exception raised from" not in values["cut"]  # a stack trace follows
    assert values["weights"].startswith("unreadable: neither a TorchScript file nor one of torch.export")
    assert values["compiled"].startswith("unreadable: this is a package of AOTInductor")


def test_weights_are_registered_and_not_read(torch213):
    """The records of a .pt2 are extents of its store: loading reads none of them, within a budget that has half of them
    and within one that has all; and the answers have the bits of the program that wrote the file."""
    weights = 12 * 1024 * 1024 * 4
    with harness.disk_dir() as where:
        harness.plain(torch213, "save_models", str(where), "big.pt2:1024:12:4")
        for budget, requests in ((24, 0), (120, 0), (24, 2)):
            environment = harness.swapnet_env(budget, where / "stats.json", where / "store")
            with Engine(harness.BUILD / "bin" / "swapnet-engine",
                        harness.clean_env({"SWAPNET_PYTHON": torch213.python, **environment})) as e:
                assert e.receive("READY")
                e.load(0, where / "big.pt2")
                for seed in range(requests):
                    data, want = ((where / f"big.pt2.{seed}.{end}").read_bytes() for end in ("in", "out"))
                    found = e.infer(0, [("input", "FP32", (4, 1024), data)])
                    assert [value[2] for value in found.values()] == [want], seed
            assert e.process.returncode == 0, e.process.stderr
            stats = json.loads((where / "stats.json").read_text())
            assert stats["deferred_bytes"] >= weights and stats["spilled_bytes"] == 0, stats
            assert stats["peak_resident_bytes"] <= budget << 20 and stats["over_budget_bytes"] == 0, stats
            if not requests:
                assert stats["swap_ins"] == stats["fallback_reads"] == stats["streamed_bytes"] == 0, stats
        assert len(list((where / "store").rglob("*.swnstore"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHVISION)
def test_tape_of_torchvision_has_the_bits_of_the_export(run, name):
    assert run(name, timeout=600)[f"{name}: groups"] > 20
