"""What a request costs whose model does nothing: an identity of one element, by swapnet-serve and by MLServer in turns."""
import json
import shutil
import statistics
import subprocess

import peers
import programs
import zoo
from plan import MIB

GOAL_RATE, GOAL_P99 = 5, 5
COLUMNS = ("server", "requests/s", "p50 us", "p99 us", "max us", "errors")
PATHS = {"swapnet-serve": "/v2/models/identity/infer", "MLServer": "/v2/models/identity/infer"}


def add_options(parser):
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=4, help="of each server in each round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--alone", action="store_true", help="swapnet-serve alone, without MLServer beside it")


def load(port, path, connections, seconds):
    """What wrk says, as a dictionary."""
    done = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--timeout", "30s", "-s",
                           str(zoo.HERE / "identity.lua"), f"http://127.0.0.1:{port}{path}"],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _ours(setup, group):
    repository = setup.folder / "identity"
    shutil.rmtree(repository, ignore_errors=True)
    (repository / "identity" / "1").mkdir(parents=True)
    subprocess.run([setup.python, zoo.HERE / "make_models.py", "identity", repository / "identity" / "1" / "model.pt"], check=True)
    return programs.swapnet(setup.build, setup.python, repository, 256 * MIB, group, setup.folder / "identity.log")


def _theirs(setup, group):
    return peers.mlserver(setup, {"identity": {"implementation": "mlserver_model.Identity"}}, group)


def run(setup, args):
    if not shutil.which("wrk"):
        raise SystemExit("wrk is not there: scripts/setup --with-peers installs it")
    found = {}
    with setup.group("swapnet-serve", None) as one, setup.group("swapnet-mlserver", None) as other, _ours(setup, one) as ours:
        servers = [ours]
        with _theirs(setup, other) if not args.alone else ours as theirs:
            if theirs is not ours:
                servers.append(theirs)
            for server in servers:
                if server.ended:
                    raise SystemExit(f"{server.title}: {server.ended}\n{server.last_words()}")
            for n in range(args.rounds):
                for server in servers[::1 if n % 2 else -1]:
                    found.setdefault(server.title, []).append(
                        load(server.port, PATHS[server.title], args.clients, args.seconds))
                setup.say(f"round {n + 1} of {args.rounds}")
    return _report(setup, found)


def _rate(r):
    return r["requests"] / r["us"] * 1e6


def _report(setup, found):
    rows, failed = [], []
    for title, rounds in found.items():
        errors = sum(r["wrong"] + r["errors"] for r in rounds)
        rows.append((title, f"{statistics.median(map(_rate, rounds)):.0f}", *(
            f"{statistics.median(r[key] for r in rounds):.0f}" for key in ("p50_us", "p99_us", "max_us")), str(errors)))
        if errors:
            failed.append(f"{title}: {errors} errors")
    setup.print_table(COLUMNS, rows)
    if len(found) == 2:
        ours, theirs = found["swapnet-serve"], found["MLServer"]
        rate = statistics.median(_rate(a) / _rate(b) for a, b in zip(ours, theirs))
        p99 = statistics.median(b["p99_us"] / a["p99_us"] for a, b in zip(ours, theirs))
        print(f"- round by round, in the median: {rate:.1f} times the requests per second, p99 {p99:.1f} times shorter")
        if rate < GOAL_RATE:
            failed.append(f"{rate:.1f} times MLServer's requests per second; the goal is {GOAL_RATE}")
        if p99 < GOAL_P99:
            failed.append(f"p99 is {p99:.1f} times shorter than MLServer's; the goal is {GOAL_P99}")
    return failed, {"found": found}
