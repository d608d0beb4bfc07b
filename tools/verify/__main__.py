"""The program behind `swapnetctl verify --model-repository`: python DIRECTORY OPTION... Prints one JSON document.

Each model's answers come from the server, first one request after the other, and then all of all models at once in an order of
chance, so that models and requests take turns in memory. What they are compared with comes from a process of plain PyTorch.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

from served import OwnServer, Server, ServerFailed, plain_environment
from trust import who_else_can_write

USUAL = ("model.pt", "model.pt2", "model.py", "config.json")
SIZES = {"BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
         "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d", "BF16": "H"}
AT_ONCE = 8
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,250}")


class Model:
    """One version, and what is found of it."""

    def __init__(self, name, version):
        self.name, self.version = name, version
        self.reason = self.first = self.torch = self.path = None
        self.spec, self.requests, self.answers = None, [], 0
        self.is_same = self.repeats = True
        self.is_ensemble = False

    def verdict(self):
        if self.reason:
            return "skipped" if self.is_ensemble else "none"
        return "same" if self.is_same else "different" if self.repeats else "undetermined"

    def document(self):
        return {"name": self.name, "version": self.version, "verdict": self.verdict(), "requests": len(self.requests),
                "answers": self.answers, "torch_version": self.torch, "reason": self.reason, "first_difference": self.first}


# ---- what there is ----

def file_of(repository, model, config):
    """The file that the server has for this version."""
    folder = os.path.join(repository, model.name, str(model.version))
    wanted = config.get("default_model_filename")
    for name in [wanted] if wanted else USUAL:
        path = os.path.join(folder, name)
        if NAME.fullmatch(name) and os.path.isfile(path) and not os.path.islink(path):
            return path
    return None


def describe(server, model, args):
    """Fills in the model's spec, or why it is not compared."""
    at = f"/v2/models/{model.name}/versions/{model.version}"
    metadata, config = server.document("GET", at), server.document("GET", f"{at}/config")
    if "error" in metadata or "error" in config:
        model.reason = metadata.get("error") or config.get("error")
    elif metadata.get("platform") == "ensemble":
        model.reason, model.is_ensemble = "an ensemble: the models of its steps are compared", True
    elif not (path := file_of(args.repository, model, config)):
        model.reason = "its file is not in the repository"
    elif path.endswith(".py") and (writable := who_else_can_write(path, args.repository)):
        model.reason = f"its code is not run: users other than this one and root can write to {writable}"
    else:
        shapes = {name: shape for where, name, shape in args.shape if where in (None, model.name)}
        model.spec = {"path": path, "inputs": metadata["inputs"], "shapes": shapes,
                      "requests": args.requests, "seed": args.seed, "where": args.where, "mark": f"{args.marks}"}
        args.marks += 1


def models_of(server, args):
    found = []
    for entry in server.settled():
        name, version = str(entry.get("name")), str(entry.get("version", ""))
        if args.models and name not in args.models:
            continue
        if not NAME.fullmatch(name) or (version and not version.isdigit()):
            raise ServerFailed("the server has a model of a name that is none")
        model = Model(name, int(version or 0))
        found.append(model)
        if entry.get("state") != "READY":
            model.reason = str(entry.get("reason") or f"it is {entry.get('state')}")
        else:
            describe(server, model, args)
    for name in args.models:
        if name not in {model.name for model in found}:
            found.append(model := Model(name, 0))
            model.reason = "no model of that name"
    return found


# ---- plain PyTorch ----

class Plain:
    """A process of plain PyTorch. A model.py has one to itself: its modules are the process's."""

    def __init__(self, threads):
        self.env = plain_environment() | ({"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} if threads else {})
        self.process = None

    def ask(self, spec):
        if spec["path"].endswith(".py"):
            self.end()
        if not self.process:
            program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference.py")
            self.process = subprocess.Popen([sys.executable, "-B", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            text=True, env=self.env)
        line = ""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(spec), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        try:
            found = json.loads(line)
        except ValueError:
            found = {"error": f"plain PyTorch ends with status {self.end()}"}
        if spec["path"].endswith(".py"):
            self.end()
        return found

    def end(self):
        """Its exit status."""
        if not self.process:
            return None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        status, self.process = self.process.wait(), None
        return status


def ask_plain(model, plain):
    found = plain.ask(model.spec)
    model.reason, model.torch = found.get("error"), found.get("torch")
    model.requests = found.get("requests", [])


def check_that_it_repeats(model, plain, args):
    """A model that does not do the same twice in plain PyTorch proves nothing."""
    again = plain.ask(model.spec | {"given": model.requests, "mark": model.spec["mark"] + "again"})
    model.repeats = "error" not in again and all(
        [read(one, args) for one in a["outputs"]] == [read(one, args) for one in b["outputs"]]
        for a, b in zip(model.requests, again["requests"]))


# ---- comparison ----

def read(one, args):
    with open(os.path.join(args.where, one["file"]), "rb") as f:
        return one["datatype"], one["shape"], f.read()


def shown(word, data):
    """An element, and its bits."""
    if word == "BYTES":
        return f"byte 0x{data[0]:02x}"
    value, = struct.unpack("<" + SIZES[word], data)
    bits = f"0x{int.from_bytes(data, 'little'):0{2 * len(data)}x}"
    return bits if word == "BF16" else f"{value!r} ({bits})"


def difference(wanted, found):
    """Of one answer; None: the same bits."""
    if isinstance(found, str):
        return {"output": None, "index": None, "plain": "an answer", "served": found}
    if len(wanted) != len(found):
        return {"output": None, "index": None, "plain": f"{len(wanted)} outputs", "served": f"{len(found)} outputs"}
    for (word, shape, data), (name, its_word, its_shape, its_data) in zip(wanted, found):
        if (word, shape) != (its_word, its_shape):
            return {"output": name, "index": None, "plain": f"{word}{shape}", "served": f"{its_word}{its_shape}"}
        if data != its_data:
            size = 1 if word == "BYTES" else struct.calcsize("<" + SIZES[word])
            places = range(0, min(len(data), len(its_data)), size)
            at = next((i for i in places if data[i:i + size] != its_data[i:i + size]), None)
            if at is None:
                return {"output": name, "index": None, "plain": f"{len(data)} bytes", "served": f"{len(its_data)} bytes"}
            return {"output": name, "index": at // size, "plain": shown(word, data[at:at + size]),
                    "served": shown(word, its_data[at:at + size])}
    return None


def ask_server(server, model, number, args):
    request = model.requests[number]
    inputs = [(one["name"], *read(one, args)) for one in request["inputs"]]
    found = server.infer(model.name, model.version, inputs)
    return difference([read(one, args) for one in request["outputs"]], found)


def note(model, number, is_at_once, found):
    model.answers += 1
    if found and model.is_same:
        model.is_same = False
        model.first = {"request": number, "at_once": is_at_once} | found


def compare(server, models, args):
    jobs = [(model, number) for model in models if not model.reason for number in range(len(model.requests))]
    for model, number in jobs:
        note(model, number, False, ask_server(server, model, number, args))
    random.Random(args.seed).shuffle(jobs)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda job: ask_server(server, *job, args), jobs))
    for (model, number), one in zip(jobs, found):
        note(model, number, True, one)


# ---- the whole ----

def weights_on_disk(repository):
    return sum(os.lstat(os.path.join(folder, file)).st_size for folder, _, files in os.walk(repository) for file in files)


def start(args):
    if args.server:
        host, _, port = args.server.rpartition(":")
        return Server(host.strip("[]"), int(port))
    # Half of the weights, so that something has to be read, and what the server and activations take.
    args.memory = args.memory or (192 << 20) + weights_on_disk(args.repository) // 2
    options = ["--model-repository", args.repository, "--memory", str(args.memory), "--strict-readiness", "false",
               "--model-control-mode", "explicit", "--exit-timeout-secs", "5"]
    for name in args.models or ["*"]:
        options += ["--load-model", name]
    if args.threads:
        options += ["--threads", str(args.threads)]
    env = {key: value for key, value in os.environ.items() if key not in ("SWAPNET", "SWAPNET_BUDGET")}
    return OwnServer(args.serve, options, env | {"SWAPNET_PYTHON": sys.executable, "SWAPNET_DAEMON": "off"})


def verify(args):
    server, plain = start(args), Plain(args.threads)
    try:
        models = models_of(server, args)
        for model in models:
            if not model.reason:
                ask_plain(model, plain)
        compare(server, models, args)
        server.end()
        for model in models:
            if not model.reason and not model.is_same:
                check_that_it_repeats(model, plain, args)
    finally:
        server.end()
        plain.end()
    return models


def shape(text):
    """[MODEL/]INPUT:2,3,4"""
    found = re.fullmatch(r"(?:([A-Za-z0-9._-]+)/)?([^/:]+):([1-9][0-9]{0,8}(?:,[1-9][0-9]{0,8}){0,15})", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no [MODEL/]INPUT:SIZE,SIZE,...")
    return found[1], found[2], [int(size) for size in found[3].split(",")]


def arguments():
    parser = argparse.ArgumentParser(prog="swapnetctl verify", add_help=False)
    parser.add_argument("--repository", required=True, type=os.path.realpath)
    parser.add_argument("--serve", required=True)
    parser.add_argument("--memory", type=int)
    parser.add_argument("--server")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shape", type=shape, action="append", default=[])
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    args.marks = 0
    return args


def main():
    args = arguments()
    store = os.environ.get("SWAPNET_STORE")
    with tempfile.TemporaryDirectory(prefix="verify-", dir=store if store and os.path.isdir(store) else None) as args.where:
        try:
            models = verify(args)
        except ServerFailed as error:
            print(f"swapnetctl: {error}", file=sys.stderr)
            return 1
    verdicts = {model.verdict() for model in models}
    verdict = next((word for word in ("different", "undetermined", "none", "same") if word in verdicts), "none")
    json.dump({"schema": 1, "verdict": verdict, "memory_bytes": None if args.server else args.memory, "server": args.server,
               "models": [model.document() for model in models]}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
