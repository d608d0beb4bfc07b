"""bench/experts.py and bench/ladder.py: what the routed bytes are compared with, and which budgets there are."""
import sys

import harness

BENCH = harness.REPO / "bench"
sys.path += [str(BENCH), str(BENCH / "lib"), str(BENCH / "language")]

import experts  # noqa: E402
import ladder  # noqa: E402

FACTS = {"experts": 8, "layers": 1, "expert_bytes": 10}
TOKENS = [[(0, 0), (0, 1)], [(0, 0), (0, 7)]]


def test_a_uniform_router_leaves_what_has_no_room():
    assert experts.not_kept_by_odds(TOKENS, 40, FACTS, "uniform") == 10  # half of two experts
    assert experts.not_kept_by_odds(TOKENS, 80, FACTS, "uniform") == 0
    assert experts.not_kept_by_odds(TOKENS, -1, FACTS, "uniform") == 20


def test_a_skewed_router_has_its_preferred_experts_kept_first():
    assert experts.not_kept_by_odds(TOKENS, 20, FACTS, "skewed") == 5  # experts 0 and 1 are kept
    assert experts.not_kept_by_odds(TOKENS, 50, FACTS, "skewed") == 2.5
    assert experts.not_kept_by_odds(TOKENS, 10, FACTS, "skewed") == 12.5


def test_hindsight_keeps_what_was_chosen_most_often():
    assert experts.not_kept(TOKENS, 10, 10) == 10
    assert experts.not_kept(TOKENS, 30, 10) == 0


def test_budgets_of_a_ladder():
    assert ladder.budgets(10, 100, 4) == [10, 40, 70, 100]
