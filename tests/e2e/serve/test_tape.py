"""The tape of a model computes what the model's own forward() does, bit for bit, wherever requests take turns."""
import pytest

import harness

FORMS = ("convnet traced", "convnet scripted", "mlp traced", "branches", "containers", "in place", "state", "same", "forked",
         "half", "integers", "optional list", "scratch", "transposed")
TORCHVISION = ("alexnet convnext_tiny densenet121 googlenet inception_v3 maxvit_t mnasnet1_0 mobilenet_v2 "
               "mobilenet_v3_small regnet_y_400mf resnet18 resnet50 resnet101 resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 swin_t "
               "vgg11 vgg19 vit_b_16").split()


def backend(torch):
    return harness.BUILD / "lib" / "swapnet" / f"serve-{torch.name}.so"


def checked(run):
    wrong = [name for name, value in run.record["values"].items() if value is False]
    assert not wrong, wrong


def test_tape_has_the_bits_of_forward(torch):
    run = harness.plain(torch, "tape", str(backend(torch)), *FORMS)
    checked(run)
    values = run.record["values"]
    assert values["convnet traced: groups"] > 6  # a cut at least after each block
    assert values["state: groups"] == values["same: groups"] == values["scratch: groups"] == 1
    assert values["convnet traced: described"][0] == [["x", "FP32", [-1, 3, -1, -1]]]
    assert values["integers: described"][0] == [["input", None, []]]  # of any rank, and of two types
    assert values["mlp traced: described"][0] == [["input", "FP32", []]]
    assert values["transposed: described"][0] == [["input", "FP32", [-1, 16, -1, -1]]]
    assert values["mlp traced: weight bytes"] == 8 * (256 * 256 + 256) * 4


def test_tape_has_the_bits_of_forward_within_a_budget(torch):
    plain, run = harness.both(torch, "tape", str(backend(torch)), "mlp wide", "convnet traced", budget=16)
    harness.assert_same(plain, run)
    harness.assert_streamed(run)
    checked(run)


# What has a state is one group for that reason; the others are cut, or have nothing to cut.
STATELESS = {"ForkedFunction": 1, "ForkedForks": 3, "Dictionary": 1, "Nested": 1, "Listed": 1, "OwnThings": 3}


def test_what_outlives_a_request_is_what_it_is_to_pytorch(torch):
    """Changes that no step shows are seen: by lists and dictionaries, by operators that return an argument, by forks, calls and
    blocks that begin and end. What is the request's own is no such change, and the model is cut."""
    run = harness.plain(torch, "outliving", str(backend(torch)))
    checked(run)
    values = run.record["values"]
    for name in [name.split(":")[0] for name in values if name.endswith(": groups")]:
        assert values[f"{name}: groups"] >= STATELESS.get(name, 1), name
        assert name in STATELESS or name == "long" or values[f"{name}: groups"] == 1, name
    assert not [value for name, value in values.items() if name.endswith(": error") and name != "Unlisted: error"], values
    assert values["Unlisted: error"] == "failed: the program changes a weight"
    assert values["Nested: described"] == values["Nested: named"] == ["OUTPUT__0", "OUTPUT__1__0", "OUTPUT__1__1"]
    assert values["Dictionary: described"] == values["Listed: described"] == []
    assert values["LongText: MiB"] < 256
    assert values["NegativeGroups: described"] == [["x", None, []]]


def test_models_that_touch_files_are_refused(torch):
    """Wherever in their code they do, before any of it has run."""
    values = harness.plain(torch, "forbidden", str(backend(torch))).record["values"]
    for name, operator in (("Reads", "aten::from_file"), ("Writes", "aten::save"), ("ByInterface", "aten::save"),
                           ("Forks", "aten::save"), ("WhenLoaded", "aten::save"), ("Foreign", "swapnet_test::twice")):
        said, touched = values[name]
        assert not touched and isinstance(said, str), (name, said)
        assert said.startswith("unreadable: ") and f"the model calls the operator {operator}, which" in said, (name, said)
    assert values["Harmless"] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCHVISION)
def test_tape_of_torchvision_has_the_bits_of_forward(torch, name):
    run = harness.plain(torch, "tape", str(backend(torch)), f"{name} traced", f"{name} scripted", timeout=600)
    checked(run)
    assert run.record["values"][f"{name} traced: groups"] > 20
