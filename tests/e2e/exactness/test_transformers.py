"""GPT-2 with greedy generation and ViT, from transformers with random weights, on PyTorch 2.13."""
import pytest

import harness

CASES = [
    ("gpt2", "small", 48),   # 91 MB of weights
    ("hf_vit", "small", 48),  # 79 MB
    pytest.param("gpt2", "gpt2", 300, marks=pytest.mark.slow),  # 498 MB, its tied embedding 154 MB of it
    pytest.param("hf_vit", "base", 190, marks=pytest.mark.slow),  # 346 MB
]


@pytest.mark.parametrize("program, size, budget", CASES)
def test_language_and_vision_transformers_have_equal_bits(torch213, program, size, budget):
    if not torch213.has("transformers"):
        pytest.fail(f"{torch213.python} has no transformers")
    reference, run = harness.both(torch213, program, size, budget=budget)
    assert False not in reference.record["values"].values(), "the generation is degenerate and proves nothing"
    harness.assert_streamed(run)
    harness.assert_bounded(run)
    assert run.own_lines() == [], run.describe()
