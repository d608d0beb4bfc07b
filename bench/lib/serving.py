"""How a worker is asked and how it answers; PyTorch has no part in it.

Requests are lines on stdin: "infer INDEX" or "quit"; each answer is one JSON line on stdout, the first one when the
model is there. {"refused": REASON} says that there will be no more. Between requests the process only waits in a
read."""
import json
import os
import resource
import sys
import time


# Rounding makes 1e-6 of other engines' outputs; another of the plain program's inputs 1e-3.
TOLERANCE = 1e-4


class Refused(Exception):
    """There is nothing to measure; the text says why and fits into a table cell."""


def take_stdout():
    """A private copy of stdout for answers, so that no library can print between them."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="ascii")
    os.dup2(2, 1)
    return answers


def read_bytes():
    """Bytes this process had read from the disk so far: O_DIRECT reads and page faults alike."""
    with open("/proc/self/io", encoding="ascii") as file:
        for line in file:
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    return 0


def infer(forward, data, describe):
    """One inference as an answer: what it took, what describe(output) tells, and what the process has cost so far."""
    cpu_before = time.process_time()
    start = time.perf_counter()
    output = forward(data)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, **describe(output), "read_bytes": read_bytes(),
            "major_faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
            "cpu_before": cpu_before, "cpu_after": time.process_time()}


def say(answers, answer):
    print(json.dumps(answer), file=answers)


def serve(answers, infer_index):
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return
        if len(words) != 2 or words[0] != "infer":
            raise SystemExit(f"worker: unknown request: {line!r}")
        say(answers, infer_index(int(words[1])))


def serve_engine(answers, build, infer_index):
    """Another engine than PyTorch: infer_index(what build() returned, index) is an answer. Both may raise Refused."""
    start = time.perf_counter()
    try:
        built = build()
        say(answers, {"build_seconds": time.perf_counter() - start})
        serve(answers, lambda index: infer_index(built, index))
    except Refused as refused:
        say(answers, {"refused": str(refused)})


def infer_compared(forward, data, plain, index):
    """infer() whose output is compared with the plain program's."""
    def describe(output):
        deviation = plain.deviation(index, output)
        if not deviation <= TOLERANCE:
            raise Refused(f"other outputs than PyTorch's, by {deviation:.0e}")
        return {"deviation": deviation}
    return infer(forward, data, describe)
