"""The smallest memory with which a way still answers, and what one run of a way at one limit came to. Nothing here starts
a process: `attempt` does."""
import statistics
from dataclasses import dataclass, field

from plan import MIB

# The search ends when what failed and what answered are so near each other.
NEAR_PART, NEAR_BYTES = 0.05, 8 * MIB
MOST_BYTES = 4 << 30


@dataclass
class Outcome:
    """Of one process, from exec to exit. Without an end it gave all the right answers that it was asked for."""
    limit_bytes: int | None
    ended: str | None = None        # why there are no (more) answers
    first_seconds: float | None = None  # from exec to the first answer
    seconds: list = field(default_factory=list)  # of each timed inference
    read_bytes: float | None = None  # of each timed inference, from the disk
    deviation: float | None = None  # None: equal bits
    peak_bytes: int = 0             # all that was charged, pages of files included


@dataclass
class Found:
    """The least limit that was answered, and the largest below it that was not, with the reason."""
    smallest_bytes: int | None
    failed_bytes: int = 0
    why: str = ""


def smallest(attempt, guess_bytes):
    """Doubles guess_bytes until attempt(limit) answers, then halves the distance to the largest limit that did not."""
    found, limit = Found(None), guess_bytes
    while found.smallest_bytes is None and found.failed_bytes < MOST_BYTES:
        _take(found, attempt(limit))
        limit = min(2 * limit, MOST_BYTES)
    while found.smallest_bytes and _far(found):
        _take(found, attempt((found.failed_bytes + found.smallest_bytes) // 2 // MIB * MIB))
    return found


def _far(found):
    near = max(NEAR_BYTES, NEAR_PART * found.smallest_bytes)
    return found.smallest_bytes - found.failed_bytes > near


def _take(found, outcome):
    if outcome.ended:
        found.failed_bytes, found.why = outcome.limit_bytes, outcome.ended
    else:
        found.smallest_bytes = outcome.limit_bytes


def worth_trying(found, limit_bytes):
    """At or above what was answered; in between nothing is known, so that is tried, too."""
    return bool(found.smallest_bytes) and limit_bytes > found.failed_bytes


def latency(outcomes):
    """The median of all timed inferences of these runs; None if one of them ended early."""
    if not outcomes or any(each.ended for each in outcomes):
        return None
    return statistics.median(second for each in outcomes for second in each.seconds)


def ratio(outcomes, plain):
    """The median over rounds of a run's median and that of the plain program's run in the same round; None if one of them
    ended early."""
    if latency(outcomes) is None or latency(plain) is None:
        return None
    return statistics.median(statistics.median(ours.seconds) / statistics.median(theirs.seconds)
                             for ours, theirs in zip(outcomes, plain))
