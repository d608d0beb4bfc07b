"""One variant in one round-robin: its inferences, and what they cost."""
import statistics

import variants
from child import Ended

INPUTS = 4
# The order has to be learned, and the disk and the layers measured, before there is a plan.
WARM_UP_PASSES = 8
BUILD_TIMEOUT_SECONDS = 300
# A variant this slow is measured without a discarded pass and once a round.
SLOW_SECONDS = 3.0


class Lane:
    def __init__(self, variant, worker, sampler, timeout):
        self.variant, self.worker, self.timeout = variant, worker, timeout
        self.sampler = sampler
        self.hashes, self.latencies = {}, []
        self.deviation = None       # the largest from the plain program's output, where other bits are expected
        self.ended = None           # why there are no (more) answers
        self.passes = 0             # since the counters below were last reset
        self._inferences = 0
        self._last = None
        self._first_read_bytes = 0
        self.idle_cpu_seconds = 0.0

    def build(self, timeout):
        self._guard(lambda: self.worker.answer(timeout))

    def warm_up(self, passes=WARM_UP_PASSES):
        for _ in range(passes):
            self._infer()
            if self.ended or self._slow():
                break
        if not self.ended:
            self.passes, self._first_read_bytes = 0, self._last["read_bytes"]
            self.worker.wait_until_quiet()

    def require(self):
        """Give up with the worker's own words if it has ended."""
        if self.ended:
            raise SystemExit(f"{self.variant}: {self.ended}\n{self.worker.log_tail()}")

    def round(self, timed):
        """Several passes on end; the first one is not timed, because what was read ahead while
        the other variants ran would flatter it."""
        if self._slow():
            timed = 1
        else:
            self._infer()
        for _ in range(timed):
            answer = self._infer()
            if answer:
                self.latencies.append(answer["seconds"])
        if not self.ended:
            self.worker.wait_until_quiet()

    def latency(self):
        return statistics.median(self.latencies) if self.latencies else None

    def read_bytes_per_pass(self):
        if not self.passes or self._last is None:
            return None
        return (self._last["read_bytes"] - self._first_read_bytes) / self.passes

    def same_bits(self, expected):
        """Every output equals the plain program's for the same input, and all of that are equal; None without any."""
        if not self.hashes:
            return None
        return all(len(hashes) == 1 and hashes == expected.get(index) for index, hashes in self.hashes.items())

    def _slow(self):
        return bool(self._last) and self._last["seconds"] > SLOW_SECONDS

    def _infer(self):
        if self.ended:
            return None
        index = self._inferences % INPUTS
        answer = self._guard(lambda: self.worker.infer(index, self.timeout))
        if answer:
            if self._last:
                self.idle_cpu_seconds += answer["cpu_before"] - self._last["cpu_after"]
            self._last = answer
            self._inferences += 1
            self.passes += 1
            if "hash" in answer:
                self.hashes.setdefault(index, set()).add(answer["hash"])
            else:
                self.deviation = max(self.deviation or 0.0, answer["deviation"])
        return answer

    def _guard(self, ask):
        self.sampler.watch(self.worker.group)
        try:
            return ask()
        except Ended as end:
            self.ended = str(end)
            self.worker.kill()
            return None
        finally:
            self.sampler.watch(None)


def start(setup, sampler, group_kind, variant, model, label, timeout, limit=None, budget=None,
          passes=WARM_UP_PASSES, extra_env=None):
    """A lane in a cgroup of its own that has built its model and warmed up, or ended trying."""
    group = group_kind(f"swapnet-bench-{label}", limit)
    try:
        worker = variants.start(setup, variant, model, group, label, budget, extra_env)
    except BaseException:
        group.close()
        raise
    lane = Lane(variant, worker, sampler, timeout)
    try:
        lane.build(BUILD_TIMEOUT_SECONDS)
        lane.warm_up(passes)
    except BaseException:
        worker.close()
        raise
    return lane
