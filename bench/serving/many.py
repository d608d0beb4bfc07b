"""Many models behind one port in memory for four of them: errors, bits, memory, latencies, bytes read."""
import http.client
import random
import statistics
import time
from collections import Counter

import clients
import programs
import table
import zoo
from plan import MIB
from sampler import Sampler

# Of --memory: the buffer and what the server takes by itself (docs/design/serving.md); the rest is for weights.
BUFFER_BYTES, OWN_BYTES, OWN_PART = 64 * MIB, 16 * MIB, 3 / 32
COLUMNS = ("model", "weights MiB", "requests", "p50 ms", "p99 ms", "max ms", "errors", "same bits")


def memory_for(weight_bytes):
    """--memory such that so many bytes of weights stay."""
    return int((weight_bytes + BUFFER_BYTES + OWN_BYTES) / (1 - OWN_PART)) + MIB


def largest(models, count):
    return sum(sorted((m.weight_bytes for m in models.values()), reverse=True)[:count])


def add_options(parser):
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--fit", type=int, default=4, help="so many of the largest models fit into --memory")
    parser.add_argument("--seed", type=int, default=1)


def metrics(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", "/metrics")
    lines = c.getresponse().read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def run(setup, args):
    models = zoo.make(setup.tracing, setup.python, setup.folder, args.models or zoo.TWENTY)
    repository = zoo.of_these(models, setup.folder / "many")
    memory = memory_for(largest(models, args.fit))
    limit = memory + setup.beside
    chance = random.Random(args.seed)
    requests = [(chance.choice(list(models.values())), chance.randrange(zoo.SAMPLES)) for _ in range(args.requests)]
    sampler = Sampler()
    with setup.group("swapnet-serve", limit) as group, \
            programs.swapnet(setup.build, setup.python, repository, memory, group, setup.folder / "many.log",
                             setup.folder / "store", sampler) as server:
        if server.ended:
            raise SystemExit(f"swapnet-serve: {server.ended}\n{server.last_words()}")
        sampler.watch(group)
        read, began = server.read_bytes(), time.monotonic()
        answers = clients.many(server.port, requests, args.clients, say=setup.say)
        seconds, read = time.monotonic() - began, server.read_bytes() - read
        sampler.watch(None)
        said = metrics(server.port)
        peaks, usage, kills = sampler.peaks(group), group.usage_peak(), group.oom_kills()
    restarts = said["swapnet_serve_engine_restarts_total"]
    failed = _report(setup, models, answers, {
        "models": f"{len(models)}, {sum(m.weight_bytes for m in models.values()) / 1e9:.2f} GB of weights",
        "--memory": f"{memory / MIB:.0f} MiB: the {args.fit} largest models ({largest(models, args.fit) / MIB:.0f} MiB) fit",
        "limit of the cgroup": f"{limit / MIB:.0f} MiB" if group.limited else "none",
        "peak of anonymous, shared and kernel memory": f"{peaks['held'] / MIB:.0f} MiB",
        "peak of all that is charged, page cache with it": f"{usage / MIB:.0f} MiB",
        "killed, engines started again": f"{kills}, {restarts:.0f}",
        "requests, clients, seconds": f"{len(answers)}, {args.clients}, {seconds:.0f} ({len(answers) / seconds:.1f}/s)",
        "read": f"{read / 1e9:.1f} GB, {read / len(answers) / MIB:.1f} MiB per request, {read / seconds / 1e6:.0f} MB/s"})
    if peaks["held"] > limit:
        failed.append("more memory than the limit")
    if kills or restarts:
        failed.append("an engine ended")
    return failed, {"answers": [a.__dict__ for a in answers], "peaks": peaks, "usage": usage, "read": read, "seconds": seconds}


def _report(setup, models, answers, facts):
    rows = []
    for name, model in [*models.items(), ("all", None)]:
        own = [a for a in answers if name in ("all", a.model)]
        if not own:
            continue
        ms = [a.seconds * 1e3 for a in own]
        rows.append((name, f"{model.weight_bytes / MIB:.0f}" if model else "", str(len(own)), f"{statistics.median(ms):.0f}",
                     f"{clients.quantile(ms, 0.99):.0f}", f"{max(ms):.0f}", str(sum(bool(a.error) for a in own)),
                     table.same_bits(all(a.same for a in own))))
    setup.print_table(COLUMNS, rows)
    for name, value in facts.items():
        print(f"- {name}: {value}")
    for error, count in Counter(a.error for a in answers if a.error).most_common(8):
        print(f"- error, {count} times: {error}")
    failed = []
    if any(a.error for a in answers):
        failed.append("there are errors")
    if not all(a.same for a in answers if not a.error):
        failed.append("other bits than plain PyTorch's")
    return failed
