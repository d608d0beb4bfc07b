"""The accounting: budgets, the limit of physics, and nothing that measures. All sizes in bytes.

s  all weights        e  weights of at least 64 KiB (only these can be streamed)
a  peak of other live tensors in one inference of the plain program
p  the part of e that a budget pays for
"""
from dataclasses import dataclass

MIB = 1 << 20
# What a run may use beyond base and budget: the library's own tables, kernel memory, noise.
SLACK_BYTES = 32 * MIB
# Room for the read window, so that a "fits" budget has space for everything at once.
WINDOW_BYTES = 64 * MIB
FITS = "fits"


@dataclass(frozen=True)
class Facts:
    """What was measured once about one model."""
    weight_bytes: int          # s
    streamable_bytes: int      # e
    activation_bytes: int      # a
    peak_alloc_bytes: int      # of the whole plain program, construction included
    base_bytes: int = 0        # peak anonymous memory of the plain program less its tensors
    file_bytes: int = 0        # file pages charged to the plain program
    layers: tuple = ()         # of (bytes of weights, part of T), in the order of execution


def parse_point(text):
    """'50' -> 0.5, 'fits' -> 'fits'."""
    if text == FITS:
        return FITS
    percent = float(text)
    if not 0 < percent <= 200:
        raise ValueError(f"a point is a percentage up to 200, or '{FITS}': {text}")
    return percent / 100


def point_name(point):
    return FITS if point == FITS else f"{point * 100:g} %"


def budget(facts, point):
    """b = a + (s - e) + p*e, or enough for all of it and a window."""
    if point == FITS:
        return facts.weight_bytes + facts.activation_bytes + WINDOW_BYTES
    resident = facts.weight_bytes - facts.streamable_bytes
    return facts.activation_bytes + resident + int(point * facts.streamable_bytes)


def retained(facts, budget_bytes, window_bytes=0):
    """r: streamable bytes that can stay in memory beside a read window."""
    resident = facts.weight_bytes - facts.streamable_bytes
    return max(0, min(facts.streamable_bytes,
                      budget_bytes - facts.activation_bytes - resident - window_bytes))


def missing(facts, budget_bytes, window_bytes=0):
    """e - r: bytes that no exact program can avoid reading in each pass."""
    return facts.streamable_bytes - retained(facts, budget_bytes, window_bytes)


def limit_seconds(plain_seconds, facts, budget_bytes, bytes_per_second, window_bytes=0):
    """max(T, (e - r) / BW): compute and perfect reads, fully overlapped."""
    return max(plain_seconds,
               missing(facts, budget_bytes, window_bytes) / bytes_per_second)


def layered_limit_seconds(plain_seconds, facts, budget_bytes, bytes_per_second):
    """The same, layer by layer: of the weights of any layers that follow one another no more than the budget is there when
    the first begins, so these take (their bytes - budget) / BW at least, and the others what they compute."""
    room = budget_bytes - (facts.weight_bytes - facts.streamable_bytes)
    longest = limit_seconds(plain_seconds, facts, budget_bytes, bytes_per_second)
    for first in range(len(facts.layers)):
        size = part = 0
        for more, share in facts.layers[first:]:
            size, part = size + more, part + share
            longest = max(longest, (1 - part) * plain_seconds + (size - room) / bytes_per_second)
    return longest


def cgroup_limit(facts, budget_bytes):
    return facts.base_bytes + facts.file_bytes + budget_bytes + SLACK_BYTES
