"""Models in Python: the worker that swapnet-engine becomes has their bits in its budget, and survives what they do."""
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess

import pytest

import harness
import serve_front
from serve_engine import Engine, ServeError

ENGINE = harness.BUILD / "bin" / "swapnet-engine"
WHAT = {name: number for number, name in enumerate(
    "echo fail leave talk text sparse blame die hang fill key array pair many later words objects loop mute blind".split())}


@contextlib.contextmanager
def worker(torch, **variables):
    with Engine(ENGINE, harness.clean_env({"SWAPNET_PYTHON": torch.python, **variables}), options=["--worker"]) as e:
        assert e.receive("READY")[2].startswith(torch.name)
        yield e


def put(folder, program):
    """The folder of a version, with that program as its model."""
    folder.mkdir(parents=True)
    shutil.copy(harness.program_file(program), folder / "model.py")
    return folder


@pytest.fixture(scope="module")
def made():
    """A function: a PyTorch's model `net` in the repository `models` of a directory: 40 MiB of weights, and what they answer."""
    made = {}
    with contextlib.ExitStack() as directories:
        def make(torch):
            if torch.name not in made:
                where = directories.enter_context(harness.disk_dir())
                folder = put(where / "models" / "net" / "1", "net_model")
                shutil.copy(harness.program_file("net_layers"), folder / "net_layers.py")
                harness.plain(torch, "worker_models", str(folder))
                made[torch.name] = where, folder
            return made[torch.name]
        yield make


def odd(what, x=(1.0, -2.0), shape=(1, 2)):
    """Inputs of odd_model.py."""
    return [("what", "INT64", (1,), struct.pack("q", WHAT[what])), ("x", "FP32", shape, struct.pack(f"{len(x)}f", *x))]


def test_model_has_the_bits_of_a_plain_run_in_less_memory(torch, made):
    where, folder = made(torch)
    with worker(torch, **harness.swapnet_env(24, where / "stats.json", where / "store")) as e:
        head, tensors, _ = e.load(1, folder / "model.py")
        assert head.weight_bytes == 10 * (1024 * 1024 + 1024) * 4 == sum(g.bytes for g in e.groups)
        assert [(t.name, t.rank) for t in tensors] == [(b"x", 2), (b"y", 2), (b"largest", 0)]
        for seed in (0, 1, 2, 0):
            answer = e.infer(1, [("x", "FP32", (2, 1024), (folder / f"{seed}.in").read_bytes())])
            assert answer["y"] == ("FP32", (2, 1024), (folder / f"{seed}.y.out").read_bytes())
            assert answer["largest"] == ("INT64", (2,), (folder / f"{seed}.largest.out").read_bytes())
    assert e.process.returncode == 0
    stats = json.loads((where / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 24 << 20


def serving(torch, where, *options, memory="80M"):
    env = {"SWAPNET_PYTHON": torch.python, "SWAPNET_STORE": str(where / "store"), "SWAPNET_DAEMON": "off"}
    return serve_front.front(where / "models", "--engine", ENGINE, "--library", harness.LIBRARY, "--buffers", "16M", *options,
                             memory=memory, env=env)


@pytest.mark.by_turns
@serve_front.needs_serve
def test_server_answers_with_the_bits_of_a_plain_run(torch, made):
    """From a worker that begins with 8 MiB, and borrows; and from one that takes its place."""
    where, folder = made(torch)
    with serving(torch, where) as f:
        f.ready()
        for turn in range(4):
            data = (folder / f"{turn % 3}.in").read_bytes()
            head = json.dumps({"inputs": [{"name": "x", "shape": [2, 1024], "datatype": "FP32",
                                           "parameters": {"binary_data_size": len(data)}}],
                               "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
            status, _, body = f.infer("net", head + data, {"Inference-Header-Content-Length": str(len(head))})
            assert status == 200, body
            assert body.endswith((folder / f"{turn % 3}.y.out").read_bytes())
            if turn == 2:
                os.kill(next(pid for pid in f.engines() if b"swapnet/worker" in command(pid)), signal.SIGKILL)


@pytest.mark.slow
@serve_front.needs_serve
def test_model_that_ends_or_hangs_is_begun_again_and_then_given_up(torch113, tmp_path):
    put(tmp_path / "models" / "odd" / "1", "odd_model")

    def ask(f, what):
        status, _, body = f.infer("odd", serve_front.body_of({"name": "what", "shape": [1], "datatype": "INT64", "data": [WHAT[what]]},
                                                             serve_front.tensor([1.5], "x")))
        return status, json.loads(body)
    with serving(torch113, tmp_path, "--group-timeout-ms", "1500") as f:
        f.ready()
        shared = [pid for pid in f.engines() if b"swapnet/worker" not in command(pid)]
        status, said = ask(f, "die")
        assert status == 500 and "died" in said["error"]
        assert ask(f, "echo")[1]["outputs"][0]["data"] == [1.5]
        assert ask(f, "hang")[0] in (500, 503)
        assert [pid for pid in f.engines() if b"swapnet/worker" not in command(pid)] == shared
        serve_front.wait_for(lambda: ask(f, "echo")[0] == 503)


def command(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return f.read()


def packed(*strings):
    """As the protocol has them: each behind its length."""
    return b"".join(struct.pack("<I", len(one)) + one for one in strings)


@pytest.mark.by_turns
def test_strings_are_objects_of_numpy(torch, tmp_path):
    path = put(tmp_path / "odd" / "1", "odd_model") / "model.py"
    with worker(torch) as e:
        e.load(1, path)
        given = ("x", "BYTES", (2, 1), packed(b"a\0b", "\u00e9".encode()))
        assert e.infer(1, [odd("echo")[0], given]) == {"OUTPUT__0": given[1:]}
        assert e.infer(1, [odd("echo")[0], ("x", "BYTES", (0, 3), b"")]) == {"OUTPUT__0": ("BYTES", (0, 3), b"")}
        assert e.infer(1, [odd("words")[0], given]) == {
            "lists": ("BYTES", (2, 2), packed("\u00e9".encode(), b"\0", b"", b"\0")), "text": ("BYTES", (2,), packed(b"ab", b"")),
            "bytes": ("BYTES", (), packed(b"abc")), "none": ("BYTES", (2, 0), b""),
            "upper": ("BYTES", (2, 1), packed(b"A\0B", "\u00e9".encode()))}


OPTIONAL = """
import torch
class Model:
    def __call__(self, x, scale=None, **others):
        y = x if scale is None else x * scale
        return {"y": y + sum(others.values()), "given": [name.encode() for name in sorted(others)]}
"""
OPTIONAL_CONFIG = "".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [ -1 ] {more} }}\n' for name, more in (
    ("x", ""), ("scale", "optional: true"), ("more", "optional: true"), ("needed", "")))


@serve_front.needs_serve
def test_optional_inputs_have_the_defaults_of_the_call(torch113, tmp_path):
    folder = tmp_path / "models" / "optional" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(OPTIONAL)
    (folder.parent / "config.pbtxt").write_text(OPTIONAL_CONFIG)

    def ask(f, **inputs):
        status, _, body = f.infer("optional", serve_front.body_of(*(
            {"name": name, "shape": [1], "datatype": "FP32", "data": [value]} for name, value in inputs.items())))
        answer = json.loads(body)
        return (status, *([one["data"] for one in answer["outputs"]] if status == 200 else [answer["error"]]))
    with serving(torch113, tmp_path) as f:
        f.ready()
        assert ask(f, x=3.0, needed=1.0) == (200, [4.0], ["needed"])
        assert ask(f, x=3.0, scale=2.0, needed=1.0) == (200, [7.0], ["needed"])
        assert ask(f, x=3.0, scale=2.0, needed=1.0, more=4.0) == (200, [11.0], ["more", "needed"])
        status, why = ask(f, x=3.0, scale=2.0, more=4.0)
        assert status == 400 and "missing required input(s) ['needed']" in why
        assert ask(f, needed=1.0, scale=2.0)[0] == 400
        assert ask(f)[0] == 400
        inputs = json.loads(f.get("/v2/models/optional/config")[2])["input"]
        assert [one["optional"] for one in inputs] == [False, True, True, False]


@pytest.mark.by_turns
def test_what_models_do_ends_their_request_alone(torch, tmp_path):
    path = put(tmp_path / "odd" / "1", "odd_model") / "model.py"
    with worker(torch) as e:
        e.load(1, path)
        data = struct.pack("2f", 1.0, -2.0)
        for what, status, words in (("fail", "failed", "ValueError: a line"), ("leave", "failed", "SystemExit: 3"),
                                    ("text", "failed", "str, which is no tensor"), ("sparse", "failed", "no dense tensor"),
                                    ("blame", "bad_input", "x is not nice"), ("fill", "no_memory", "memory"),
                                    ("key", "failed", "1 is no name"), ("many", "failed", "65 outputs"),
                                    ("later", "no_memory", ""), ("objects", "failed", "neither numbers nor strings"),
                                    ("loop", "failed", "list, which is no tensor"), ("mute", "failed", "Mute: it does not say why"),
                                    ("blind", "failed", "not seen")):
            with pytest.raises(ServeError) as failed:
                e.infer(1, odd(what))
            assert failed.value.status == status and words in str(failed.value), (what, str(failed.value))
            assert e.infer(1, odd("echo")) == {"OUTPUT__0": ("FP32", (1, 2), data)}, what
        assert e.infer(1, odd("talk"))["OUTPUT__0"][2] == data
        assert e.infer(1, odd("array")) == {"y": ("INT32", (3, 2), struct.pack("6i", 0, 3, 1, 4, 2, 5))}
        assert e.infer(1, odd("pair")) == {"OUTPUT__0": ("FP32", (2, 1), data), "OUTPUT__1": ("BOOL", (1, 2), b"\1\0")}
        for wrong, words in ((odd("echo")[:1], '"x" is missing'), (odd("echo") + [("z", "FP32", (0,), b"")], '"z" is not'),
                             ([odd("echo")[0], ("x", "BYTES", (1,), struct.pack("<I", 9))], "4 bytes are not 1 strings"),
                             ([odd("echo")[0], ("x", "BYTES", (1,), packed(b"", b""))], "8 bytes are not 1 strings"),
                             ([odd("echo")[0], ("x", "BYTES", (1 << 21,), bytes(8 << 20))], "strings; 1048576 is the most")):
            with pytest.raises(ServeError, match=words) as failed:
                e.infer(1, wrong)
            assert failed.value.status == "bad_input"
        e.ours.close()
        out, log = e.process.communicate(timeout=harness.HANG_S)
    assert out == b"" and b"said to standard output" in log
    assert log.count(b"ValueError: a line") == 1 and b"in fail" in log  # where it comes from, once
    assert e.process.returncode == 0
    assert not (path.parent / "__pycache__").exists()


@pytest.mark.parametrize("text, words", [
    ("x = 1", "has no class Model"),
    ("class Model:\n    pass", "has no __call__"),
    ("class Model(:", "SyntaxError"),
    ("import no_such_module", "ModuleNotFoundError"),
    ("class Mute(Exception):\n    def __str__(self): raise KeyError\nraise Mute", "Mute: it does not say why"),
    ("class Model:\n    def load(self, d):\n        raise OSError('no file')\n    def __call__(self, x): pass", "OSError: no file"),
    ("class Model:\n    def __call__(self, **x): pass", "what its inputs are"),
    ("class Model:\n    inputs = [('x', 'FP31', [1])]\n    def __call__(self, x): pass", "FP31"),
    ("class Model:\n    inputs = [('x', 'FP32', [-2])]\n    def __call__(self, x): pass", "no shape"),
    ("class Model:\n    inputs = [('x' * 128, 'FP32', [1])]\n    def __call__(self, x): pass", "no name of a tensor"),
    ("class Model:\n    inputs = [1]\n    def __call__(self, x): pass", "TypeError"),
])
def test_model_that_cannot_be_used_is_refused_with_a_reason(loader, tmp_path, text, words):
    (tmp_path / "model.py").write_text(text)
    with pytest.raises(ServeError) as failed:
        loader.load(0, tmp_path / "model.py")
    assert failed.value.status == "unreadable" and words in str(failed.value)


@pytest.fixture(scope="module")
def loader():
    """One worker for all that it refuses."""
    usable = [torch for torch in harness.ALL_TORCH if not torch.missing()]
    with worker(usable[0]) as e:
        yield e
        e.load(0, harness.program_file("odd_model"))  # it goes on


def test_model_that_is_loaded_again_is_read_anew(loader, tmp_path):
    """So are modules beside it, and packages, with and without an __init__.py."""
    for folder in ("package", "plain"):
        (tmp_path / folder).mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "model.py").write_text("import beside\nfrom package import inner\nfrom plain import open\nclass Model:\n"
                                       "    inputs = [('_'.join((beside.X, inner.X, open.X)), 'FP32', [1])]\n"
                                       "    def __call__(self, **x): pass")
    for number, said in enumerate(("first", "the_second")):
        for name in ("beside.py", "package/inner.py", "plain/open.py"):
            (tmp_path / name).write_text(f"X = '{said}'")
        assert [t.name.decode() for t in loader.load(20 + number, tmp_path / "model.py")[1]] == ["_".join([said] * 3)]
        loader.ask("UNLOAD", model=20 + number)


def test_inputs_are_those_of_the_config_the_model_or_its_call(loader, tmp_path):
    (tmp_path / "model.py").write_text("class Model:\n    def __call__(self, a, b, c=1): return a")
    tensors = loader.load(10, tmp_path / "model.py")[1]
    assert [(t.name, t.element, t.rank) for t in tensors] == [(b"a", 0, 0), (b"b", 0, 0)]
    told = loader.tensors([("c", "FP16", (3,), b""), ("d", "INT8", (4,), b"")])
    for t in told:
        t.offset, t.shape[0] = 0, -1
    head, tensors, _ = loader.ask("LOAD", model=11, text=str(tmp_path / "model.py"), tensors=told, inputs=1)
    assert head.inputs == 1 and [(t.name, list(t.shape[:t.rank])) for t in tensors] == [(b"c", [-1]), (b"d", [-1])]


# ---- Hugging Face folders ----

@pytest.fixture(scope="module")
def folders():
    """Folders bert, gpt2, vit and bin with version 1, and what they answer."""
    if not harness.TORCH213.has("transformers"):
        pytest.skip("no transformers: scripts/setup --with-2.13")
    with harness.disk_dir() as where:
        harness.plain(harness.TORCH213, "hugging_face", str(where), whole=True)
        yield where


SHAPES = {"input_ids": ("INT64", (2, 12)), "attention_mask": ("INT64", (2, 12)), "pixel_values": ("FP32", (2, 3, 64, 64))}


def of_folder(folders, name):
    names = ["pixel_values"] if name == "vit" else ["input_ids", "attention_mask"]
    return [(one, *SHAPES[one], (folders / f"{name}.{one}.in").read_bytes()) for one in names]


def test_hugging_face_folders_have_the_bits_of_a_plain_run(torch213, folders, tmp_path):
    """100 MiB of weights in 40; those of a pytorch_model.bin are the same. Without a config the usual inputs are enough."""
    with worker(torch213, **harness.swapnet_env(40, tmp_path / "stats.json", tmp_path / "store")) as e:
        for number, (name, file) in enumerate((("bert", "bert"), ("gpt2", "gpt2"), ("vit", "vit"), ("bert", "bin"))):
            _, tensors, _ = e.load(number, folders / file / "1" / "config.json")
            assert [t.name.decode() for t in tensors] == [one[0] for one in of_folder(folders, name)]
            answer = e.infer(number, of_folder(folders, name))
            outs = {"bert": ["last_hidden_state", "pooler_output"]}.get(name, ["logits"])
            assert sorted(answer) == outs
            for out in outs:
                assert answer[out][2] == (folders / f"{name}.{out}.out").read_bytes(), (file, out)
        told = e.tensors([("input_ids", "INT64", (1, 1), b""), ("token_type_ids", "INT64", (1, 1), b"")])
        for t in told:
            t.offset = 0
        head, tensors, _ = e.ask("LOAD", model=9, text=str(folders / "bert" / "1" / "config.json"), tensors=told, inputs=2)
        assert head.inputs == 2 and tensors[1].name == b"token_type_ids"
        told[1].name = b"pixel_values"
        with pytest.raises(ServeError, match="takes no input 'pixel_values'"):
            e.ask("LOAD", model=10, text=str(folders / "bert" / "1" / "config.json"), tensors=told, inputs=2)
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["over_budget_bytes"] == 0 and stats["peak_resident_bytes"] <= 40 << 20


def test_hugging_face_folder_runs_no_code(torch213, folders, tmp_path):
    """Neither that of a class of its own nor that of a pickle; and no link leads out of it."""
    (tmp_path / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\nclass Evil: pass\nclass EvilConfig: pass\n")
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "evil", "architectures": ["Evil"], "auto_map": {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.Evil"}}))
    (tmp_path / "pickle").mkdir()
    shutil.copy(folders / "bert" / "1" / "config.json", tmp_path / "pickle" / "config.json")
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(f"cos\nmkdir\n(S'{tmp_path / 'ran'}'\ntR.".encode())
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "config.json").write_text("{}")
    (tmp_path / "link" / "model.safetensors").symlink_to(folders / "bert" / "1" / "model.safetensors")
    (tmp_path / "shards").mkdir()
    shutil.copy(folders / "bert" / "1" / "config.json", tmp_path / "shards" / "config.json")
    (tmp_path / "shards" / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {"embeddings.word_embeddings.weight": str(folders / "bert" / "1" / "model.safetensors")}}))
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "config.json").write_text(json.dumps({"model_type": "bert", "attn_implementation": "some/kernel"}))
    (tmp_path / "elsewhere").mkdir()
    config = json.loads((folders / "bert" / "1" / "config.json").read_text())
    (tmp_path / "elsewhere" / "config.json").write_text(json.dumps(config | {"transformers_weights": "sub/model.safetensors"}))
    (tmp_path / "elsewhere" / "model.safetensors").touch()
    (tmp_path / "elsewhere" / "sub").mkdir()
    (tmp_path / "elsewhere" / "sub" / "model.safetensors").symlink_to(folders / "bert" / "1" / "model.safetensors")
    (tmp_path / "backbone").mkdir()
    (tmp_path / "backbone" / "config.json").write_text(json.dumps(
        {"model_type": "dpt", "parts": [{"backbone": str(tmp_path), "backbone_kwargs": {"out_indices": [1]}}]}))
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "config.json").write_text(json.dumps(
        {"model_type": "dpt", "backbone": "resnet50", "backbone_kwargs": {"trust_remote_code": True}}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["Trainer"]}))
    with worker(torch213) as e:
        for number, (folder, words) in enumerate(((tmp_path, ""), (tmp_path / "pickle", ""), (tmp_path / "link", "is a link"),
                                                  (tmp_path / "shards", "is not in the folder"), (tmp_path / "kernel", "is code from"),
                                                  (tmp_path / "elsewhere", "is from elsewhere"), (tmp_path / "backbone", "is from elsewhere"),
                                                  (tmp_path / "trust", "is code from"),
                                                  (tmp_path / "other", "no architecture Trainer"))):
            with pytest.raises(ServeError) as failed:
                e.load(number, folder / "config.json")
            assert failed.value.status == "unreadable" and words in str(failed.value), str(failed.value)
    assert not (tmp_path / "ran").exists()


def test_code_beside_the_weights_is_not_found(torch213, folders, tmp_path):
    """Some versions of transformers import custom_generate/generate.py of a local folder unasked; here it is asked for."""
    evil = shutil.copytree(folders / "gpt2" / "1", tmp_path / "model")
    (evil / "custom_generate").mkdir()
    (evil / "custom_generate" / "generate.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\ndef generate(model, **more): return 'ran'\n")
    script = ("import sys\nsys.path.insert(0, sys.argv[1])\nimport hugging_face\nmodel = hugging_face.from_folder(sys.argv[2])\n"
              "try:\n    print(model.load_custom_generate(sys.argv[2], trust_remote_code=True))\n"
              "except OSError as why:\n    print('refused:', why)\n")
    worker_py = harness.REPO / "shim" / "worker"
    (tmp_path / "as").mkdir()
    (tmp_path / "as" / "swapnet_worker").symlink_to(worker_py)
    done = subprocess.run([torch213.python, "-c", script, str(worker_py), str(evil)], capture_output=True, text=True,
                          env=harness.clean_env({"PYTHONPATH": str(tmp_path / "as")}), timeout=harness.HANG_S)
    assert "refused: code of a Hugging Face folder is not run" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
@serve_front.needs_serve
def test_server_finds_a_hugging_face_folder(torch213, folders, tmp_path):
    shutil.copytree(folders / "vit", tmp_path / "models" / "vit")
    with serving(torch213, tmp_path) as f:
        f.ready()
        data = (folders / "vit.pixel_values.in").read_bytes()
        head = json.dumps({"inputs": [{"name": "pixel_values", "shape": [2, 3, 64, 64], "datatype": "FP32",
                                       "parameters": {"binary_data_size": len(data)}}],
                           "parameters": {"binary_data_output": True}}).encode()
        status, _, body = f.infer("vit", head + data, {"Inference-Header-Content-Length": str(len(head))})
        assert status == 200 and body.endswith((folders / "vit.logits.out").read_bytes())
