"""swapnet-serve under swapnetd: one program with one lease, which its engines share, whatever becomes of either."""
import json

import serve_front
from daemons import daemon, leased
from harness import MIB
from serve_front import body_of, front, outputs, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

VALUES = [0.0, 1.5]
BODY = body_of(tensor(VALUES))
FIXED = ("--buffers", "8M", "--queue", "16", "--connections", "64")


def under(place, log=None, **more):
    """The environment of a server that finds the daemon of that place."""
    return {"XDG_RUNTIME_DIR": place} | ({"FAKE_LOG": str(log)} if log else {}) | more


def entry(d, f):
    return d.list().get(f.process.pid, {})


def engine_budget(f):
    return int(f.metric("swapnet_serve_engine_budget_bytes"))


def budgets(log):
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("BUDGET ")]


def test_server_is_one_program_whose_lease_its_engines_share(place, tmp_path):
    log = tmp_path / "log"
    repo = repository(tmp_path / "repo", echo="weights=400", least="weights=1 least=60")
    with daemon(place, "--total", "150M") as d, front(repo, *FIXED, env=under(place, log)) as f:
        f.ready()
        listing = d.ask({"op": "list"})
        assert [p["pid"] for p in listing["processes"]] == [f.process.pid]  # engines do not register
        server = listing["processes"][0]
        assert server["name"] == "swapnet-serve" and server["budget_bytes"] == 150 * MIB
        fixed = 150 * MIB - engine_budget(f)  # the buffer, and what the server takes itself
        assert 8 * MIB < fixed < 50 * MIB and server["minimum_bytes"] >= fixed
        # Changes while it runs: down, which is counted when the engine has given way, and up.
        assert d.ctl("set", f.process.pid, "budget=100M").returncode == 0
        wait_for(lambda: entry(d, f)["counted_bytes"] == 100 * MIB)
        assert engine_budget(f) == 100 * MIB - fixed and budgets(log) == [100 * MIB - fixed]
        assert d.ctl("set", f.process.pid, "budget=140M").returncode == 0
        wait_for(lambda: budgets(log)[1:] == [140 * MIB - fixed])
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}
        # Less than the engine can do without: the server keeps what that takes, and says so.
        assert d.ctl("set", f.process.pid, "budget=auto").returncode == 0
        assert d.ctl("total", "80M").returncode == 0
        wait_for(lambda: entry(d, f)["minimum_bytes"] == fixed + 60 * MIB)
        assert entry(d, f)["state"] in ("holding", "shrinking", "running")
        wait_for(lambda: entry(d, f)["counted_bytes"] == fixed + 60 * MIB)
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}


def test_two_servers_divide_the_total(place, tmp_path):
    repo = repository(tmp_path, echo="weights=300")
    with daemon(place, "--total", "200M", "--policy", "equal") as d, front(repo, *FIXED, env=under(place)) as one:
        one.ready()
        assert entry(d, one)["budget_bytes"] == 200 * MIB
        with front(repo, *FIXED, env=under(place, SWAPNET_NAME="second", SWAPNET_URGENCY="2")) as two:
            two.ready()
            wait_for(lambda: entry(d, one)["counted_bytes"] == entry(d, two)["counted_bytes"] == 100 * MIB)
            assert entry(d, two)["name"] == "second" and entry(d, two)["urgency"] == 2
            assert leased(d.ask({"op": "list"})) <= 200 * MIB
            for f in (one, two):
                assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES}
        wait_for(lambda: entry(d, one)["counted_bytes"] == 200 * MIB)  # what the other one had


def test_server_keeps_its_lease_when_the_daemon_is_lost(place, tmp_path):
    log = tmp_path / "log"
    repo = repository(tmp_path / "repo", echo="weights=400")
    with daemon(place, "--total", "150M") as d, front(repo, *FIXED, env=under(place, log)) as f:
        f.ready()
        had = engine_budget(f)
        d.kill()
        f.said("is gone; going on under its last lease of 150")
        assert outputs(f.infer("echo", BODY)) == {"OUTPUT0": VALUES} and engine_budget(f) == had
        d.start()
        wait_for(lambda: entry(d, f).get("state") == "running")
        assert entry(d, f)["budget_bytes"] == 150 * MIB and engine_budget(f) == had
        assert budgets(log) == []


def test_daemon_is_left_aside_where_it_is_not_wanted(place, tmp_path):
    repo = repository(tmp_path, echo="")
    with daemon(place, "--total", "150M") as d, front(repo, *FIXED, env=under(place, SWAPNET_DAEMON="off")) as f:
        f.ready()
        assert d.list() == {} and engine_budget(f) > 150 * MIB


def test_program_that_needs_little_gets_its_part(place, tmp_path):
    """A worker's part shrinks with the lease, and neither engine is told more than there is."""
    log = tmp_path / "log"
    repo = repository(tmp_path / "repo", echo="weights=100")
    (repo / "python" / "1").mkdir(parents=True)
    (repo / "python" / "1" / "model.py").write_text("")
    with daemon(place, "--total", "100M") as d, front(repo, *FIXED, env=under(place, log)) as f:
        f.ready()
        for name in ("echo", "python"):
            assert outputs(f.infer(name, BODY)) == {"OUTPUT0": VALUES}
        assert d.ctl("total", "400M").returncode == 0
        wait_for(lambda: entry(d, f)["budget_bytes"] == 200 * MIB)  # --memory
        assert json.loads(d.ctl("status", "-o", "json").stdout)["leased_bytes"] == 200 * MIB
        assert d.ctl("total", "90M").returncode == 0
        wait_for(lambda: entry(d, f)["counted_bytes"] == 90 * MIB)
        for name in ("echo", "python"):
            assert outputs(f.infer(name, BODY)) == {"OUTPUT0": VALUES}
