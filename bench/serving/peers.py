"""Other servers beside swapnet-serve: the same models, the same PyTorch, the same limit of memory, in turns."""
import json
import os
import random
import shutil
import statistics
import subprocess
from collections import Counter

import clients
import many
import programs
import pythons
import table
import zoo
from plan import MIB
from sampler import Sampler

PYTHON = str(pythons.ROOT / ".deps" / "peers" / "bin" / "python")
COLUMNS = ("server", "ready", "requests", "errors", "p50 ms", "p99 ms", "max ms", "requests/s", "read MiB", "peak", "cache",
           "same bits", "note")


def add_options(parser):
    parser.add_argument("--requests", type=int, default=200, help="of each server")
    parser.add_argument("--turn", type=int, default=25, help="requests of a server before the next one's turn")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--fit", type=int, default=2, help="so many of the largest models fit into --memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", type=lambda text: text.split(","), default=list(SERVERS), help=f"of {','.join(SERVERS)}")


def _environment(**more):
    return pythons.plain_environment() | {"PYTHONPATH": str(zoo.HERE), "PYTHONUNBUFFERED": "1"} | more


def mlserver(setup, models, group, sampler=None):
    """MLServer with models, {name: settings}, in one process, which takes least memory."""
    folder = setup.folder / "mlserver"
    shutil.rmtree(folder, ignore_errors=True)
    for name, settings in models.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "model-settings.json").write_text(json.dumps({"name": name} | settings))
    port, grpc, metrics = (programs.free_port() for _ in range(3))
    (folder / "settings.json").write_text(json.dumps({
        "http_port": port, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0, "debug": False,
        "host": "127.0.0.1", "logging_settings": None, "metrics_endpoint": None}))
    return programs.Server("MLServer", group, [PYTHON, "-m", "mlserver.cli.main", "start", folder], port, "/v2/health/ready",
                           setup.folder / "mlserver.log", _environment(), sampler)


def _swapnet(setup, repository, _models, memory, group, sampler):
    return programs.swapnet(setup.build, setup.python, repository, memory, group, setup.folder / "peers-swapnet.log",
                            setup.folder / "store-peers", sampler)


def _mlserver(setup, repository, models, _memory, group, sampler):
    settings = {name: {"implementation": "mlserver_model.TorchScript",
                       "parameters": {"uri": str(repository / name / "1" / "model.pt")}} for name in models}
    return mlserver(setup, settings, group, sampler)


def _python(title, program, ready, *options):
    def start(setup, repository, _models, _memory, group, sampler):
        port = programs.free_port()
        return programs.Server(title, group, [PYTHON, zoo.HERE / program, port, repository, *options], port, ready,
                               setup.folder / f"peers-{title.replace(' ', '-')}.log", _environment(), sampler)
    return start


def _mmap(setup, repository, *rest):
    subprocess.run([PYTHON, zoo.HERE / "mmap_server.py", "convert", repository], check=True, env=_environment())
    _forget_pages()
    return _python("mmap", "mmap_server.py", "/")(setup, repository, *rest)


SERVERS = {
    "swapnet-serve": (_swapnet, clients.OipBinary),
    "mmap": (_mmap, clients.Raw),
    "litserve": (_python("litserve", "litserve_server.py", "/health", "0"), clients.JsonBase64),
    "litserve-lru": (_python("litserve-lru", "litserve_server.py", "/health", "1"), clients.JsonBase64),
    "mlserver": (_mlserver, clients.OipBase64),
    "ray": (_python("ray", "ray_server.py", "/-/healthz"), clients.Raw),
}


def _stop_if_dead(server):
    """A server of which something was killed is not asked any more: what it would answer is an error."""
    if not server.ended and (server.process.poll() is not None or server.group.oom_kills()):
        server.ended = f"ended ({server.how()})"
    return server.ended


def run(setup, args):
    models = zoo.make(setup.tracing, setup.python, setup.folder, args.models or zoo.SIX)
    memory = many.memory_for(many.largest(models, args.fit))
    limit = memory + setup.beside
    chance = random.Random(args.seed)
    requests = [(chance.choice(list(models.values())), chance.randrange(zoo.SAMPLES)) for _ in range(args.requests)]
    sampler, servers, answers, read, spent = Sampler(), {}, {}, Counter(), Counter()
    groups = {name: setup.group(f"swapnet-peer-{name}", limit) for name in args.servers}
    try:
        for name in args.servers:
            repository = zoo.of_these(models, setup.folder / f"peers-{name}")
            _forget_pages()
            setup.say(f"starting {name}")
            servers[name] = SERVERS[name][0](setup, repository, models, memory, groups[name], sampler)
            answers[name] = []
            if servers[name].ended:
                setup.say(f"{name}: {servers[name].ended}\n{servers[name].last_words(6)}")
        for at in range(0, len(requests), args.turn):
            for name, server in list(servers.items())[::1 if at // args.turn % 2 else -1]:
                if not _stop_if_dead(server):
                    _turn(server, name, requests[at:at + args.turn], args.clients, sampler, answers, read, spent)
            setup.say(f"{at + args.turn} of {len(requests)} requests")
        return _report(setup, models, memory, limit, servers, groups, answers, read, spent, sampler)
    finally:
        for server in servers.values():
            server.__exit__()
        for group in groups.values():
            group.close()


def _forget_pages():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("1")


def _turn(server, name, requests, count, sampler, answers, read, spent):
    sampler.watch(server.group)
    before = server.read_bytes()
    some = clients.many(server.port, requests, count, SERVERS[name][1], is_dead=server.group.oom_kills)
    read[name] += max(0, server.read_bytes() - before)
    spent[name] += max(a.began + a.seconds for a in some) - min(a.began for a in some)
    answers[name] += some
    sampler.watch(None)


def _report(setup, models, memory, limit, servers, groups, answers, read, spent, sampler):
    rows, failed = [], []
    for name, server in servers.items():
        own, good = answers[name], [a for a in answers[name] if not a.error]
        ms = [a.seconds * 1e3 for a in good]
        peaks = sampler.peaks(groups[name])
        times = [f"{value:.0f}" for value in (statistics.median(ms), clients.quantile(ms, 0.99), max(ms))] if ms else [""] * 3
        rows.append((name, "yes" if own else "no", str(len(own)), str(len(own) - len(good)), *times,
                     f"{len(good) / spent[name]:.1f}" if good else "", f"{read[name] / MIB:.0f}", f"{peaks['held'] / MIB:.0f}",
                     f"{peaks['file'] / MIB:.0f}", table.same_bits(all(a.same for a in good) if good else None),
                     server.ended or (Counter(a.error for a in own if a.error).most_common(1) or [("", 0)])[0][0][:80]))
        if name == "swapnet-serve" and (len(good) < len(own) or not own or not all(a.same for a in own)):
            failed.append("swapnet-serve has errors or other bits")
    setup.print_table(COLUMNS, rows)
    print(f"- models: {len(models)}, {sum(m.weight_bytes for m in models.values()) / MIB:.0f} MiB of weights; --memory of swapnet-serve "
          f"{memory / MIB:.0f} MiB; limit of each server {limit / MIB:.0f} MiB")
    return failed, {name: [a.__dict__ for a in own] for name, own in answers.items()}
