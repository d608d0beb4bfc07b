"""`swapnetctl verify --model-repository`: answers of a server have the bits of plain PyTorch, or it is said which have not."""
import json
import re
import subprocess

import pytest

import harness
import serve_front
from daemons import CTL
from harness import MIB
from serve_front import front

pytestmark = serve_front.needs_serve

MODEL = """import torch
class Model:
    inputs = [("INPUT0", "FP32", [-1, -1])]
    def __call__(self, INPUT0):
        return {answer}
"""


def verify(torch, store, *args, seconds=harness.HANG_S):
    env = harness.clean_env({"SWAPNET_PYTHON": torch.python, "SWAPNET_STORE": str(store)})
    return subprocess.run([CTL, "verify", "--model-repository", *map(str, args)], env=env, capture_output=True, text=True,
                          timeout=seconds, stdin=subprocess.DEVNULL)


def put(repo, name, answer, kind="FP32"):
    (repo / name / "1").mkdir(parents=True)
    (repo / name / "1" / "model.py").write_text(MODEL.replace("{answer}", answer).replace("FP32", kind))


def test_server_has_the_bits_of_plain_pytorch_in_less_memory(torch113):
    """48 MiB of weights in an engine that has less than 34, and a model in Python."""
    with harness.disk_dir() as where:
        harness.plain(torch113, "save_models", str(where), "mlp:1024:12:2")
        repo = where / "models"
        (repo / "mlp" / "1").mkdir(parents=True)
        (where / "mlp.pt").rename(repo / "mlp" / "1" / "model.pt")
        put(repo, "python", '{"y": INPUT0.mul_(2).softmax(1), "n": INPUT0.argmax(1)}')
        put(repo, "strings", "[[one + b'!' for one in row] for row in INPUT0.tolist()]", "BYTES")
        done = verify(torch113, where / "store", repo, "--memory", "64M", "-o", "json", "--threads", "2")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["verdict"] == "same" and document["memory_bytes"] == 64 * MIB
        assert [(m["name"], m["verdict"], m["requests"], m["answers"]) for m in document["models"]] == [
            ("mlp", "same", 3, 6), ("python", "same", 3, 6), ("strings", "same", 3, 6)]


def test_what_differs_is_named(torch113, tmp_path):
    """The server's engine, which is a fake, answers each model with its input."""
    repo = tmp_path / "repo"
    for name, answer in {"same": "INPUT0", "double": "INPUT0 * 2", "chance": "torch.rand(1) + INPUT0", "unsafe": "INPUT0"}.items():
        put(repo, name, answer)
    with front(repo) as f:
        f.ready()
        (repo / "unsafe" / "1" / "model.py").chmod(0o666)
        done = verify(torch113, tmp_path, repo, "--server", f"127.0.0.1:{f.port}", "-o", "json", "--requests", "2",
                      "--shape", "INPUT0:2,3")
        assert done.returncode == 4, done.stderr
        models = {m["name"]: m for m in json.loads(done.stdout)["models"]}
        assert {name: m["verdict"] for name, m in models.items()} == {
            "same": "same", "double": "different", "chance": "undetermined", "unsafe": "none"}
        first = models["double"]["first_difference"]
        assert (first["request"], first["output"], first["index"], first["at_once"]) == (0, "OUTPUT0", 0, False)
        assert "users other than" in models["unsafe"]["reason"]
        table = verify(torch113, tmp_path, repo, "unsafe", "missing", "--server", f"127.0.0.1:{f.port}")
        assert table.returncode == 1 and "no model of that name" in table.stdout and "its code is not run" in table.stdout


# A file of torch.export whose sample inputs, which nobody needs, are a pickle that makes a directory.
EXPORT = """import io, os, sys, torch
class Evil:
    def __reduce__(self):
        return os.mkdir, (sys.argv[2],)
torch.export.save(torch.export.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),)), "good.pt2")
pickle = io.BytesIO()
torch.save(Evil(), pickle)
reader, writer = torch._C.PyTorchFileReader("good.pt2"), torch._C.PyTorchFileWriter(sys.argv[1])
for name in reader.get_all_records():
    data = pickle.getvalue() if "sample_inputs" in name else reader.get_record(name)
    if name not in ("version", ".data/serialization_id"):
        writer.write_record(name, data, len(data))
writer.write_end_of_file()
"""


def test_a_pickle_in_a_file_of_torch_export_is_not_run(torch213, tmp_path):
    folder = tmp_path / "repo" / "exported" / "1"
    folder.mkdir(parents=True)
    subprocess.run([torch213.python, "-c", EXPORT, str(folder / "model.pt2"), str(tmp_path / "ran")], check=True, cwd=tmp_path,
                   env=harness.clean_env(), timeout=harness.HANG_S)
    with front(tmp_path / "repo") as f:
        f.ready()
        done = verify(torch213, tmp_path, tmp_path / "repo", "--server", f"127.0.0.1:{f.port}", "-o", "json", "--shape", "INPUT0:2,4")
    assert [m["verdict"] for m in json.loads(done.stdout)["models"]] == ["none"], done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()


SAVES = """import sys, torch
class Saves(torch.nn.Module):
    def forward(self, x):
        torch.save(x, "was-run")
        return x
torch.jit.script(Saves()).save(sys.argv[1])
class Foreign(torch.nn.Module):
    def forward(self, x):
        return torch.ops.c10d_functional_test.twice(x)
library = torch.library.Library("c10d_functional_test", "DEF")
library.define("twice(Tensor x) -> Tensor")
torch.jit.script(Foreign()).save(sys.argv[2])
"""


def test_verify_refuses_what_the_server_refuses():
    """The lists are in two languages."""
    cpp = (harness.REPO / "shim" / "serve" / "served_operators.cpp").read_text()
    python = (harness.REPO / "tools" / "verify" / "reference.py").read_text()
    for there, here in (("kNamespaces", "NAMESPACES"), ("kTouchFiles", "TOUCH_FILES"), ("kClasses", "CLASSES")):
        one = re.findall(r'"([^"]+)"', re.search(rf"{there}\[\] = \{{(.*?)\}};", cpp, re.S)[1])
        other = re.findall(r'"([^"]+)"', re.search(rf"^{here} = \((.*?)\)$", python, re.S | re.M)[1])
        assert one and one == other, (there, one, other)


def test_code_that_touches_files_is_not_run(torch113, tmp_path, monkeypatch):
    repo = tmp_path / "repo"
    files = [repo / name / "1" / "model.pt" for name in ("saves", "foreign")]
    for file in files:
        file.parent.mkdir(parents=True)
    (tmp_path / "saves.py").write_text(SAVES)  # TorchScript wants the source
    subprocess.run([torch113.python, tmp_path / "saves.py", *files], check=True, env=harness.clean_env({}))
    monkeypatch.chdir(tmp_path)
    with front(repo) as f:
        f.ready()
        done = verify(torch113, tmp_path, repo, "--server", f"127.0.0.1:{f.port}", "-o", "json", "--shape", "INPUT0:2,3")
        reasons = {m["name"]: (m["verdict"], m["reason"]) for m in json.loads(done.stdout)["models"]}
        assert reasons["saves"][0] == reasons["foreign"][0] == "none"
        assert "not run: it calls the operator aten::save, which touches files" in reasons["saves"][1], reasons
        assert "not run: it calls the operator c10d_functional_test::twice" in reasons["foreign"][1], reasons
        assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("args, words", [
    (["--memory", "much"], "is no size"), (["--server", "here"], "--server 'here'"), (["--requests", "0"], "--requests"),
    (["--budget", "8M"], "no --budget"), (["--shape", "x"], "--shape"), (["--memory", "80M", "--server", "a:1"], "has its own memory"),
    (["--unknown"], "unknown")])
def test_wrong_usage(torch113, tmp_path, args, words):
    done = verify(torch113, tmp_path, tmp_path, *args)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_option_of_the_program_is_its_own(torch113, tmp_path):
    env = harness.clean_env({"SWAPNET_STORE": str(tmp_path)})
    done = subprocess.run([CTL, "verify", "--budget", "8M", "true", "--model-repository", "x"], env=env, capture_output=True,
                          text=True, timeout=harness.HANG_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "no operator of PyTorch" in done.stderr
