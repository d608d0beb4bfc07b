"""Profiles and plans: what `swapnetctl profile` measures of real programs, and what the planners make of it."""
import csv
import fcntl
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

import harness

CTL = harness.BUILD / "bin" / "swapnetctl"
PARTITION = harness.BUILD / "bin" / "swapnet-partition"
MIB = harness.MIB
DEVICES = sorted((harness.REPO / "share" / "devices").glob("*.json"))


def run(program, *args, code=0, env=None, cwd=None):
    done = subprocess.run([program, *map(str, args)], env=harness.clean_env(env), cwd=cwd, capture_output=True, text=True,
                          timeout=harness.HANG_S, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done
    return done


def profile(torch, disk, program, *args, options=()):
    """The profile, and the record of the program."""
    path, record = f"{disk}/profile.json", f"{disk}/record.json"
    done = run(CTL, "profile", "-o", path, "-s", f"{disk}/store", *options, "--", torch.python,
               harness.program_file(program), record, *args)
    with open(path) as made, open(record) as kept:
        return json.load(made), json.load(kept), done


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A model profile as a file: 24 layers of different sizes on a device of which all is known."""
    layers = [{"name": f"layers.{i}.weight", "bytes": (1 + i % 5) * MIB, "depth": 1, "flops": 10_000_000,
               "compute_s": 0.002, "activation_bytes": 4096} for i in range(24)]
    path = tmp_path_factory.mktemp("plan") / "model.json"
    path.write_text(json.dumps({
        "schema": 1, "kind": "model", "name": "example", "other_bytes": 2 * MIB, "layers": layers,
        "coefficients": {"alpha_s_per_byte": 1e-9, "beta_s_per_reference": 1e-4, "gamma_s_per_flop": 2e-10,
                         "eta_s_per_reference": 1e-6}}))
    return path


# ---- measuring ----

def test_flops_are_those_that_pytorch_counts(torch, disk):
    made, record, _ = profile(torch, disk, "flops")
    assert sum(layer["flops"] for layer in made["layers"]) == record["notes"]["flops"]
    if "torch_flops" in record["notes"]:
        assert record["notes"]["flops"] - record["notes"]["beyond_torch"] == record["notes"]["torch_flops"]


@pytest.mark.by_turns
@pytest.mark.timed
def test_profile_in_memory(torch, disk):
    """Without a budget nothing is streamed; coming and going is measured afterwards."""
    made, _, done = profile(torch, disk, "infer", "mlp", 24)
    assert len(made["layers"]) == 24
    assert all(layer["bytes"] == 4 * MIB + 4096 and layer["depth"] == 2 for layer in made["layers"])  # with the bias
    assert all(layer["compute_s"] > 0 and layer["swap_in"] for layer in made["layers"])
    assert made["passes"] >= 20 and made["latency_s"] > 0
    # all layers are alike, and bytes and references are told apart all the same
    known = made["coefficients"]
    harness.in_time(known["alpha_s_per_byte"] > 0 and known["eta_s_per_reference"] > 0, known)
    shown = run(CTL, "profile", "--show", f"{disk}/profile.json").stdout
    assert "24 layers" in shown and "R^2" in shown and "not fitted" not in shown + done.stderr


@pytest.mark.by_turns
@pytest.mark.timed
def test_unwatched_passes_have_equal_values(torch, disk):
    """Some passes go by without the operator hook, and what they compute is the same."""
    reference = harness.plain(torch, "infer", "convnet", 200)
    made, record, _ = profile(torch, disk, "infer", "convnet", 200)
    assert record["values"] == reference.record["values"]
    # None on a machine that is busy with something else, where one pass is not like the next.
    harness.in_time(made["watching_s"] is not None, "no two passes were alike")
    assert made["passes"] < 200 - 3 and 0 <= made["watching_s"]
    harness.in_time(made["watching_s"] < 0.3 * made["latency_s"], (made["watching_s"], made["latency_s"]))
    assert "while the disk is read from" in run(CTL, "profile", "--show", f"{disk}/profile.json").stdout


@pytest.mark.by_turns
@pytest.mark.timed
def test_profile_of_resnet(torch, disk):
    """One command gives the model information table as the architecture says, and all coefficients."""
    made, _, done = profile(torch, disk, "vision", "resnet18", 16)
    fits = [made["fit"][delay]["r2"] for delay in ("swap_in", "swap_out")]
    harness.in_time(min(fits) > 0.6, f"a disk that is busy with something else makes a bad fit: {fits}")
    layers = made["layers"]
    # A convolution comes with its batch norm's four tensors. The first one is too small to be a layer of its own and
    # goes with what was read last, the linear layer; that of a skip with the convolution before it.
    assert sorted(layer["depth"] for layer in layers) == [5] * 17 + [2 + 5, 5 + 5]
    assert max(layers, key=lambda layer: layer["depth"])["bytes"] == 4 * (9 * 128 * 128 + 64 * 128 + 8 * 128)
    assert sum(layer["depth"] for layer in layers) == 62 + 40  # all parameters, running means and variances,
    assert sum(layer["bytes"] for layer in layers) == 4 * (11689512 + 9600)  # and of all the bytes
    known = made["coefficients"]
    assert known["beta_s_per_reference"] >= 0
    harness.in_time(known["alpha_s_per_byte"] > 0 and known["gamma_s_per_flop"] > 0 and known["eta_s_per_reference"] > 0, known)
    harness.in_time(known["beta_s_per_reference"] < 1e-3, known)  # reads have that much less when others wait for the disk
    assert made["fit"]["execution"]
    counts = {read[2] for layer in layers for read in layer["swap_in"]}
    assert {5, 7, 10} < counts and counts == {release[1] for layer in layers for release in layer["swap_out"]}
    assert all(name in done.stderr for name in ("alpha", "beta", "gamma", "eta")) and "not fitted" not in done.stderr


@pytest.mark.slow
def test_profile_within_budget(torch, disk):
    made, _, done = profile(torch, disk, "infer", "tall", 24, options=("-b", "64M"))
    assert sum(layer["bytes"] for layer in made["layers"]) >= 112 * MIB
    assert sum(len(layer["swap_in"]) for layer in made["layers"]) > 24
    assert made["coefficients"]["alpha_s_per_byte"] > 0 and "R^2" in done.stderr
    assert made["fit"]["swap_in"]["samples"] > 24
    # each layer is a weight and a bias: what that leaves unsaid is said
    assert made["coefficients"]["eta_s_per_reference"] > 0 and "same number of references" in done.stderr


def test_disk_profile_is_what_the_library_does(torch213, disk):
    """What the disk likes is measured, lies where the library looks, and is what it then does."""
    store = f"{disk}/store"
    shown = run(CTL, "profile", "--disk", "-s", store).stdout
    dev = os.stat(store).st_dev
    path = f"{store}/disk-{os.major(dev)}-{os.minor(dev)}.json"
    with open(path) as text:
        made = json.load(text)
    queue = made["queue"]
    assert path in shown and "1024 KiB" in shown and os.listdir(store) == [os.path.basename(path)]
    assert made["kind"] == "device" and made["coefficients"]["alpha_s_per_byte"] > 0 and queue["depth"] >= 2
    rates = {(depth, request): rate for depth, request, rate in queue["measured"]}
    assert (8, MIB) in rates and rates[queue["depth"], queue["request_bytes"]] > 0
    assert f"{queue['depth']} of {queue['request_bytes'] >> 10} KiB at once" in run(CTL, "profile", "--show", path).stdout
    code = "import torch; torch.ones(1 << 20)"
    env = {"SWAPNET_BUDGET": "64M", "SWAPNET_STORE": store, "SWAPNET_VERBOSE": "1"}
    said = run(CTL, "run", "--", torch213.python, "-c", code, env=env).stderr
    assert f"up to {queue['depth']} reads of {queue['request_bytes'] >> 10} KiB at once, as {path} says" in said
    run(CTL, "profile", "--disk", "--", "true", code=125)
    run(CTL, "profile", "--disk", "-s", "/proc/nowhere", code=1)


def test_exit_codes(disk):
    run(CTL, "profile", "-o", f"{disk}/p.json", "--", "sh", "-c", "exit 3", code=3)
    none = run(CTL, "profile", "-o", f"{disk}/p.json", "--", "true", code=1).stderr
    assert "no profile came of it: the program (exit status 0) wrote none; it has to load PyTorch" in none
    run(CTL, "profile", "-o", f"{disk}/p.json", "--", "/nonexistent/program", code=127)
    killed = run(CTL, "profile", "-o", f"{disk}/p.json", "--", "sh", "-c", "kill -9 $$", code=128 + 9).stderr
    assert "no profile came of it" in killed and "signal 9 (Killed)" in killed
    run(CTL, "profile", code=125)
    run(CTL, "profile", "-o", f"{disk}/nowhere/p.json", "--", "true", code=125)
    run(CTL, "profile", "--show", f"{disk}/nothing", code=1)
    for option in "-o", "-b", "-s":  # which would do nothing
        assert "no other option" in run(CTL, "profile", "--show", DEVICES[0], option, "64M", code=125).stderr
    assert "budget" in run(CTL, "profile", "--disk", "-b", "64M", code=125).stderr


def test_limit_of_files(disk):
    """What is measured with is larger, and the limit's signal would end the command."""
    said = run("bash", "-c", f"ulimit -f 1000; exec '{CTL}' profile --disk -s '{disk}/store'", code=1).stderr
    assert "File too large" in said


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_leaves_nothing_when_it_is_ended(disk, example, ending):
    """When the command has run, and nobody reads what is said of its profile."""
    path = pathlib.Path(disk, "p.json")
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 4096)
    with subprocess.Popen([CTL, "profile", "-o", path, "-s", f"{disk}/store", "--", "sh", "-c", f"cp '{example}' $SWAPNET_PROFILE"],
                          env=harness.clean_env(), stdin=subprocess.DEVNULL, stderr=writer) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(ending)
        assert process.wait(harness.HANG_S) == -ending
    assert [name for name in os.listdir(disk) if name.startswith("p.json")] == ["p.json"]
    os.close(reader)
    os.close(writer)


def test_all_of_the_memory(disk):
    """Unless the user says otherwise: a daemon's lease would make it stream."""
    for options, env, said in (((), {}, ["off"]), (("-b", "64M"), {}, []), ((), {"SWAPNET_BUDGET": "64M"}, [])):
        run(CTL, "profile", "-o", f"{disk}/p.json", *options, "--", "sh", "-c", f"env >{disk}/env", code=1, env=env)
        lines = pathlib.Path(disk, "env").read_text().splitlines()
        assert [line.split("=")[1] for line in lines if line.startswith("SWAPNET_DAEMON=")] == said
        assert ("SWAPNET_BUDGET=64M" in lines) == (not said)


def test_what_is_there_stays(disk):
    """Until there is a profile to take its place; and what is no file is not replaced at all."""
    old = pathlib.Path(disk, "precious.json")
    old.write_text("mine")
    run(CTL, "profile", "-o", old, "--", "/nonexistent/program", code=127)
    run(CTL, "profile", "-o", old, "--", "true", code=1)
    assert old.read_text() == "mine"
    for name, make in ("pipe", os.mkfifo), ("link", lambda path: os.symlink(old, path)), ("dir", os.mkdir):
        path = f"{disk}/{name}"
        make(path)
        before = os.lstat(path)
        said = run(CTL, "profile", "-o", path, "--", "sh", "-c", f"touch {disk}/ran", code=125).stderr
        assert "no regular file" in said and os.lstat(path).st_ino == before.st_ino
    assert not os.path.exists(f"{disk}/ran") and sorted(os.listdir(disk)) == ["dir", "link", "pipe", "precious.json"]


def test_names_from_store(torch213, disk):
    """Weights loaded from a checkpoint are known by name, and a store is planned with their times."""
    checkpoint, made = f"{disk}/m.safetensors", f"{disk}/p.json"
    run(torch213.python, "-c", "import torch; from torch import nn; from safetensors.torch import save_file; "
        f"save_file(nn.Sequential(*[nn.Linear(512 + 64 * i, 512 + 64 * (i + 1)) for i in range(12)]).state_dict(), '{checkpoint}')")
    code = ("import torch; from torch import nn; from safetensors.torch import load_file\n"
            "m = nn.Sequential(*[nn.Linear(512 + 64 * i, 512 + 64 * (i + 1)) for i in range(12)])\n"
            f"m.load_state_dict(load_file('{checkpoint}'))\n"
            "x = torch.ones(1, 512)\n"
            "with torch.no_grad():\n"
            "    for _ in range(30): m(x)\n")
    run(CTL, "profile", "-o", made, "-s", f"{disk}/store", "-b", "16M", "--", torch213.python, "-c", code)
    with open(made) as text:
        names = {layer["name"] for layer in json.load(text)["layers"]}
    assert names == {f"{i}.weight" for i in range(12)}
    run(PARTITION, "build", "-q", checkpoint, "-o", f"{disk}/s.store")
    plan = json.loads(run(PARTITION, "plan", "-b", "20M", "-p", made, "-o", "json", "--curve=4", f"{disk}/s.store").stdout)
    assert sum(block["layers"] for block in plan["blocks"]) == 12
    assert plan["latency_s"] > 0 and plan["library"]["latency_s"] > 0 and len(plan["curve"]) == 4
    # a table is computed once, unasked, and used
    assert plan["from_table"] and os.path.getsize(f"{disk}/s.store.table") > 32
    run(PARTITION, "table", "-p", made, f"{disk}/s.store")
    assert os.path.getsize(f"{disk}/s.store.table") < MIB
    again = json.loads(run(PARTITION, "plan", "-b", "20M", "-p", made, "-o", "json", "--curve=4", f"{disk}/s.store").stdout)
    assert again["latency_s"] == pytest.approx(plan["latency_s"], rel=1e-9)
    # a damaged one is not
    with open(f"{disk}/s.store.table", "r+b") as table:
        table.seek(100)
        table.write(b"\xff\xff\xff")
    assert json.loads(run(PARTITION, "plan", "-b", "20M", "-p", made, "-o", "json", f"{disk}/s.store").stdout)["latency_s"] \
        == pytest.approx(plan["latency_s"], rel=1e-9)


def write_checkpoint(path, sizes):
    """Layers of this many bytes, all zero; returns their number."""
    tensors, at = {}, 0
    for i, size in enumerate(sizes):
        tensors[f"l{i}.weight"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(tensors).encode()
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header + bytes(at))
    return at


def test_table_of_a_deep_model(disk):
    """Which has more cuts than a table keeps: what is looked up is nearly as good as what is searched."""
    chance = random.Random(1)
    sizes = [4096 * chance.randrange(1, 20) for _ in range(240)]
    at = write_checkpoint(f"{disk}/m.safetensors", sizes)
    layers = [{"name": f"l{i}.weight", "bytes": size, "depth": 1, "compute_s": chance.uniform(1e-5, 1e-4)}
              for i, size in enumerate(sizes)]
    with open(f"{disk}/p.json", "w") as f:
        json.dump({"schema": 1, "kind": "model", "name": "m", "other_bytes": 0, "layers": layers, "coefficients":
                   {"alpha_s_per_byte": 1e-9, "beta_s_per_reference": 1e-5, "eta_s_per_reference": 1e-6}}, f)
    run(PARTITION, "build", "-q", f"{disk}/m.safetensors", "-o", f"{disk}/s")

    def plan(budget, *args, model="s"):
        return json.loads(run(PARTITION, "plan", "-b", budget, "-p", f"{disk}/p.json", "-o", "json", *args, f"{disk}/{model}").stdout)
    budgets = [at * 20 // n for n in range(21, 41)]
    searched = [plan(budget, model="m.safetensors") for budget in budgets]
    run(PARTITION, "table", "-p", f"{disk}/p.json", f"{disk}/s")
    found = [plan(budget) for budget in budgets]
    assert not any(p["from_table"] for p in searched) and sum(p["from_table"] and not p["exact"] for p in found) >= 3, found
    for was, now, budget in zip(searched, found, budgets):
        assert now["block_count"] == was["block_count"] and now["largest_pair_bytes"] <= budget
        assert was["latency_s"] * (1 - 1e-9) <= now["latency_s"] <= was["latency_s"] * 1.01
    assert not plan(budgets[0], "-n", searched[0]["block_count"])["from_table"]
    table = run(PARTITION, "plan", "-b", budgets[0], "-p", f"{disk}/p.json", f"{disk}/s").stdout
    assert ("(from the table)" in table) == found[0]["from_table"]


def test_a_plan_keeps_its_table(disk):
    """The first plan of a store makes the table beside it, the next ones use it; where none can be, both plan without."""
    sizes = [(1 << 18) * (1 + i * 7 % 5) for i in range(20)]
    at = write_checkpoint(f"{disk}/m.safetensors", sizes)
    layers = [{"name": f"l{i}.weight", "bytes": size, "depth": 1, "compute_s": 1e-5 * (1 + i % 3)}
              for i, size in enumerate(sizes)]
    with open(f"{disk}/p.json", "w") as f:
        json.dump({"schema": 1, "kind": "model", "name": "m", "other_bytes": 0, "layers": layers, "coefficients":
                   {"alpha_s_per_byte": 1e-9, "beta_s_per_reference": 1e-5, "eta_s_per_reference": 1e-6}}, f)
    run(PARTITION, "build", "-q", f"{disk}/m.safetensors", "-o", f"{disk}/s")
    table = f"{disk}/s.table"

    def plan():
        made = json.loads(run(PARTITION, "plan", "-b", at // 2, "-p", f"{disk}/p.json", "-o", "json", f"{disk}/s").stdout)
        return made.pop("from_table"), made

    def what_if():
        return run(CTL, "plan", "--total", at * 3 // 4, "-o", "json", f"{disk}/s,profile={disk}/p.json").stdout
    tabled, first = plan()
    inode = os.stat(table).st_ino
    assert tabled and plan() == (True, first) and os.stat(table).st_ino == inode
    answer = what_if()
    assert os.stat(table).st_ino == inode  # read, not made again
    os.unlink(table)
    assert what_if() == answer and os.path.exists(table)
    for other in (b"notes of somebody", b""):  # not ours: it stays
        with open(table, "wb") as f:
            f.write(other)
        assert plan() == (False, first) and what_if() == answer
        with open(table, "rb") as f:
            assert f.read() == other
    os.unlink(table)
    os.mkfifo(table)  # nobody writes to it
    assert plan() == (False, first)
    os.unlink(table)
    with harness.mounted("--bind", disk, at=disk):
        subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
        assert plan() == (False, first) and what_if() == answer and not os.path.exists(table)


# ---- planning ----

def test_device_profiles_are_shown(example):
    assert len(DEVICES) >= 4
    for path in DEVICES:
        text = run(CTL, "profile", "--show", path).stdout
        assert "alpha" in text and "estimate" in text
        plan = json.loads(run(PARTITION, "plan", "-b", "40M", "-d", path.stem, "-o", "json", example).stdout)
        assert plan["latency_s"] > 0
    assert "no-such-device" in run(PARTITION, "plan", "-b", "40M", "-d", "no-such-device", example, code=1).stderr


def test_plan_for_device(example, tmp_path):
    """Times are the device's, also of layers without operations that are counted."""
    made = json.loads(example.read_text())
    for layer in made["layers"][::4]:
        layer["flops"] = 0
    some = tmp_path / "some.json"
    some.write_text(json.dumps(made))

    def ex_s(*args):
        done = run(PARTITION, "plan", "-b", "1G", "-n", 1, "-o", "json", *args)
        block, = json.loads(done.stdout)["blocks"]
        return block["ex_s"], done.stderr
    gamma = json.loads((harness.REPO / "share" / "devices" / "jetson-nx.json").read_text())["coefficients"]["gamma_s_per_flop"]
    assert ex_s(some)[0] == pytest.approx(24 * 0.002) and not ex_s(some)[1]
    seconds, said = ex_s("-d", "jetson-nx", example)
    assert seconds == pytest.approx(24 * 1e7 * gamma) and not said
    # an operation takes 2e-10 s where the profile was made: the others are as much faster as these
    seconds, said = ex_s("-d", "jetson-nx", some)
    assert seconds == pytest.approx(24 * 1e7 * gamma) and said.count("6 of 24 layers") == said.count("\n") == 1
    assert "6 of 24 layers" in run(CTL, "plan", "-t", "80M", "-d", "jetson-nx", some).stderr
    assert "6 of 24 layers" in run(PARTITION, "table", "-n", 2, "-d", "jetson-nx", some).stderr


def test_plan_of_profile(example):
    plan = json.loads(run(PARTITION, "plan", "-b", "40M", "-o", "json", "--curve", example).stdout)
    total = sum((1 + i % 5) * MIB for i in range(24))
    assert plan["block_count"] == -(-2 * total // (40 * MIB)) and plan["exact"]
    assert sum(block["bytes"] for block in plan["blocks"]) == total
    assert plan["largest_pair_bytes"] <= 40 * MIB
    assert plan["latency_s"] >= max(sum(block[key] for block in plan["blocks"]) for key in ("in_s", "ex_s"))
    curve = plan["curve"]
    assert [point["budget_bytes"] for point in curve] == sorted(point["budget_bytes"] for point in curve)
    assert curve[-1]["budget_bytes"] == total + 2 * MIB == plan["library"]["demand_bytes"]
    assert curve[-1]["latency_s"] == pytest.approx(24 * 0.002, rel=1e-6)
    assert curve[0]["latency_s"] > 1.2 * curve[-1]["latency_s"]
    table = run(PARTITION, "plan", "-b", "40M", "--curve=3", example).stdout
    assert "a pass under the library" in table and "BUDGET" in table
    # more than is reserved must not be used
    less = json.loads(run(PARTITION, "plan", "-b", "40M", "--delta", "0.25", "-o", "json", example).stdout)
    assert less["largest_pair_bytes"] <= 30 * MIB
    four = json.loads(run(PARTITION, "plan", "-b", "60M", "-n", 4, "-o", "json", example).stdout)
    assert four["block_count"] == 4
    rows = json.loads(run(PARTITION, "table", "-n", 4, "-o", "json", example).stdout)["rows"]
    within = [row["latency_s"] for row in rows if row["memory_bytes"] <= 60 * MIB]
    assert four["latency_s"] == pytest.approx(min(within), rel=1e-9)


def test_what_if_deep(tmp_path):
    """Its points are all there, or are said not to be."""
    layers = [{"name": f"l{i}.weight", "bytes": 8 * MIB, "depth": 1, "compute_s": 0.001} for i in range(1200)]
    (tmp_path / "deep.json").write_text(json.dumps({
        "schema": 1, "kind": "model", "name": "deep", "other_bytes": 0, "layers": layers,
        "coefficients": {"alpha_s_per_byte": 1e-9, "beta_s_per_reference": 0, "eta_s_per_reference": 0}}))

    def plan(form):
        return run(CTL, "plan", "-t", "16M", "-o", form, tmp_path / "deep.json").stdout
    model, = json.loads(plan("json"))["models"]
    assert model["points"] == list(range(1, 1200))
    row, = csv.DictReader(io.StringIO(plan("csv")))
    assert row["points"].split() == [str(i) for i in range(1, 1200)]
    assert plan("table").rstrip().endswith(" 63 64 …")


def test_what_if_memory_is_shared(tmp_path):
    """What reading takes from computing is in the latency within a budget, not in that with sufficient memory."""
    layers = [{"name": f"l{i}.weight", "bytes": 4 * MIB, "depth": 1, "compute_s": 0.004} for i in range(24)]
    (tmp_path / "app.json").write_text(json.dumps({
        "schema": 1, "kind": "model", "name": "app", "other_bytes": 0, "layers": layers, "latency_s": 0.096,
        "busy_latency_s": 0.144, "coefficients": {"alpha_s_per_byte": 4e-10, "beta_s_per_reference": 0, "eta_s_per_reference": 0}}))
    model, = json.loads(run(CTL, "plan", "-t", "40M", "-o", "json", tmp_path / "app.json").stdout)["models"]
    assert model["sufficient_latency_s"] == pytest.approx(0.096)
    assert 0.1 < model["latency_s"] < 0.144


@pytest.mark.parametrize("args", [("--delta", "1"), ("--delta", "x"), ("--curve=1",), ("--curve=x",), ("-n", "0"),
                                  ("-p",), ("--nonsense",)])
def test_plan_usage(example, args):
    run(PARTITION, "plan", "-b", "40M", *args, example, code=2)


def test_what_if(example):
    def plan(*args, code=0):
        return run(CTL, "plan", *args, code=code)

    def models(*args):
        made = json.loads(plan("-o", "json", *args).stdout)
        assert sum(model["budget_bytes"] for model in made["models"]) <= made["total_bytes"]
        return made["models"]
    two = ("-t", "66M", f"{example},name=a", f"{example},name=b,urgency=8")
    equal = models("--policy", "equal", *two)
    assert [model["budget_bytes"] for model in equal] == [33 * MIB] * 2
    assert equal[0]["latency_s"] == equal[1]["latency_s"] > equal[0]["sufficient_latency_s"] > 0
    assert equal[0]["block_count"] == len(equal[0]["points"]) + 1 >= 4
    first, second = models(*two)
    assert second["budget_bytes"] > first["budget_bytes"] and second["latency_s"] <= first["latency_s"]
    assert first["name"] == "a" and second["urgency"] == 8
    assert models("--policy", "minmax", *two) == [first, second]
    # there is enough for all: everyone gets the demand
    assert all(model["budget_bytes"] == model["demand_bytes"] for model in models("-t", "1G", *two[2:]))
    rows = list(csv.DictReader(io.StringIO(plan("-o", "csv", *two).stdout)))
    assert [row["name"] for row in rows] == ["a", "b"] and int(rows[0]["budget_bytes"]) > 0
    assert "URGENCY" in plan(*two).stdout and "…" not in plan(*two).stdout
    assert "at least" in plan("-t", "9M", *two[2:], code=1).stderr
    plan("-t", "80M", "/nonexistent.pth", code=1)
    for bad in (("-t", "80M"), (str(example),), ("-t", "x", example), ("-t", "1G", "--policy", "best", example),
                ("-t", "1G", f"{example},colour=1"), ("-t", "1G", f"{example},urgency=-1"), ("-t", "1G", "--delta", "2", example)):
        plan(*bad, code=2)


def test_policies_divide_by_their_rule(tmp_path):
    """Each does what it is for: Eq. 1 by the paper's formula, the same for all, and the least of the largest slowdowns."""
    sizes = {"large": (24 * 4 * MIB, 0.024), "slow": (24 * 2 * MIB, 0.072)}
    for name, (weights, seconds) in sizes.items():
        layers = [{"name": f"l{i}.weight", "bytes": weights // 24, "depth": 1, "compute_s": seconds / 24} for i in range(24)]
        (tmp_path / f"{name}.json").write_text(json.dumps({
            "schema": 1, "kind": "model", "name": name, "other_bytes": 2 * MIB, "layers": layers,
            "coefficients": {"alpha_s_per_byte": 1e-9, "beta_s_per_reference": 1e-4, "eta_s_per_reference": 1e-6}}))

    def plan(policy, urgency=1):
        made = json.loads(run(CTL, "plan", "-t", "80M", "--policy", policy, "-o", "json", f"large.json,urgency={urgency}",
                              "slow.json", cwd=tmp_path).stdout)
        assert made["policy"] == policy and sum(model["budget_bytes"] for model in made["models"]) == 80 * MIB
        worst = max(model["latency_s"] / model["sufficient_latency_s"] for model in made["models"])
        return [model["budget_bytes"] for model in made["models"]], worst

    for urgency in 1, 2:
        score = {name: seconds / weights for name, (weights, seconds) in sizes.items()}
        score["large"] *= urgency
        demand = {name: weights + 2 * MIB for name, (weights, _) in sizes.items()}
        want = [(demand[n] / sum(demand.values()) + score[n] / sum(score.values())) / 2 * 80 * MIB for n in sizes]
        assert plan("eq1", urgency)[0] == pytest.approx(want, abs=2)
    assert plan("equal")[0] == plan("equal", 2)[0] == [40 * MIB] * 2
    large, slow = plan("minmax")[0]
    assert large > 40 * MIB > slow  # which hides its reads behind what it computes
    assert plan("minmax")[1] < 0.8 * min(plan("eq1")[1], plan("equal")[1])
