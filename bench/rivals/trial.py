"""One process of one way, alone in its cgroup, from exec to exit."""
import time

import search
from child import Ended, Worker

INPUTS = 4
SLOW_SECONDS = 5.0  # of two inferences on end: there is no need for as many. One may be slow as a plan comes into force
SLOW_ANSWERS = 3


class Trials:
    """Of one model. The first one is the plain program's without a limit: what it answers is right."""

    def __init__(self, group_kind, log_path, patience_seconds, times_plain):
        self.group_kind, self.log_path = group_kind, log_path
        self.patience_seconds, self.times_plain = patience_seconds, times_plain
        self.plain_seconds, self.hashes = None, {}

    def run(self, start, limit_bytes, warm_up, timed):
        """start: argv and env (ways.Start). The outcome of so many inferences, of which the first are not timed."""
        outcome, answers = search.Outcome(limit_bytes), []
        # Starting, and any number of inferences of which each may take so many times what the plain program does.
        end = time.monotonic() + self.patience_seconds + (warm_up + timed) * self.times_plain * (self.plain_seconds or 1)
        group = self.group_kind("swapnet-rivals", limit_bytes)
        try:
            began = time.monotonic()
            worker = Worker(start.argv, group, start.env, self.log_path)
        except BaseException:
            group.close()
            raise
        try:
            worker.answer(end - time.monotonic())
            while len(answers) < warm_up + timed and not _slow(answers):
                answers.append(worker.infer(len(answers) % INPUTS, max(0, end - time.monotonic())))
                outcome.first_seconds = outcome.first_seconds or time.monotonic() - began
                self._check(answers, outcome)
            worker.quit()
        except Ended as ended:
            outcome.ended = "too slow" if str(ended).startswith("none in") else str(ended)
        finally:
            outcome.peak_bytes = group.usage_peak()
            worker.close()
        _take(outcome, answers, warm_up)
        return outcome

    def _check(self, answers, outcome):
        answer, index = answers[-1], (len(answers) - 1) % INPUTS
        if "hash" not in answer:  # it has compared them itself
            outcome.deviation = max(outcome.deviation or 0.0, answer["deviation"])
        elif self.plain_seconds is None:
            self.hashes.setdefault(index, answer["hash"])
        if "hash" in answer and self.hashes.get(index) != answer["hash"]:
            raise Ended("OTHER BITS")


def _slow(answers):
    return len(answers) >= SLOW_ANSWERS and all(answer["seconds"] > SLOW_SECONDS for answer in answers[-2:])


def _take(outcome, answers, warm_up):
    """Of a way that is so slow that it was not asked as often, all but the first answer count."""
    first = warm_up if len(answers) > warm_up else 1
    timed = answers[first:]
    outcome.seconds = [answer["seconds"] for answer in timed]
    if timed:
        outcome.read_bytes = (timed[-1]["read_bytes"] - answers[first - 1]["read_bytes"]) / len(timed)
