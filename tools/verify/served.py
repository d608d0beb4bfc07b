"""A server: started for this purpose, or one that runs; and what it answers."""
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time

PATIENCE_S = 600


class ServerFailed(Exception):
    """It does not answer, or not as the protocol says."""


class Server:
    """One that runs, at `host`, `port`."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, bytes); anew while there is no room."""
        end = time.monotonic() + PATIENCE_S
        while True:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
            try:
                connection.request(method, path, body, headers or {})
                answer = connection.getresponse()
                found = answer.status, answer.headers, answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise ServerFailed(f"the server does not answer: {error}") from None
            finally:
                connection.close()
            if found[0] != 503 or not found[1].get("Retry-After") or time.monotonic() > end:
                return found
            time.sleep(0.2)

    def document(self, method, path, body=None):
        status, _, text = self.ask(method, path, body)
        try:
            found = json.loads(text)
        except ValueError:
            raise ServerFailed(f"{path}: the answer is no JSON") from None
        return found if status == 200 else {"error": found.get("error", f"status {status}")}

    def index(self):
        found = self.document("POST", "/v2/repository/index")
        if not isinstance(found, list):
            raise ServerFailed(f"the server has no index of models: {found.get('error')}")
        return found

    def settled(self):
        """The index, when no model is on its way any more."""
        end = time.monotonic() + PATIENCE_S
        while any(one.get("state") == "LOADING" for one in self.index()) and time.monotonic() < end:
            time.sleep(0.1)
        return self.index()

    def infer(self, name, version, inputs):
        """[(name, datatype, shape, bytes)], in the server's order. inputs: likewise. A server's error is its text."""
        head = json.dumps({"inputs": [{"name": one, "datatype": word, "shape": shape,
                                       "parameters": {"binary_data_size": len(data)}} for one, word, shape, data in inputs],
                           "parameters": {"binary_data_output": True}}).encode()
        status, headers, body = self.ask("POST", f"/v2/models/{name}/versions/{version}/infer",
                                         head + b"".join(data for *_, data in inputs),
                                         {"Inference-Header-Content-Length": str(len(head))})
        try:
            length = int(headers.get("Inference-Header-Content-Length") or len(body))
            document = json.loads(body[:length])
            if status != 200:
                return str(document.get("error", f"status {status}"))
            return self.taken_apart(document["outputs"], body[length:])
        except (ValueError, KeyError, TypeError) as error:
            raise ServerFailed(f"model {name}: the answer is not as the protocol has it: {error}") from None

    @staticmethod
    def taken_apart(outputs, data):
        found, at = [], 0
        for one in outputs:
            size = int(one["parameters"]["binary_data_size"])
            if size < 0 or at + size > len(data):
                raise ValueError("an output lacks bytes")
            found.append((one["name"], one["datatype"], one["shape"], data[at:at + size]))
            at += size
        return found

    def end(self):
        """Not ours to end."""


class OwnServer(Server):
    """A process for as long as the comparison takes, which clients elsewhere do not know."""

    def __init__(self, program, options, env):
        self.process = subprocess.Popen([program, "--http-address", "127.0.0.1", "--http-port", "0", *options], env=env,
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        port = None
        for line in self.process.stderr:
            self.pass_on(line)
            if found := re.search(rb"listening on 127\.0\.0\.1, port (\d+)", line):
                port = int(found[1])
                break
        if port is None:
            self.process.wait()
            raise ServerFailed("the server does not start")
        super().__init__("127.0.0.1", port)
        self.reader = threading.Thread(target=lambda: [self.pass_on(line) for line in self.process.stderr], daemon=True)
        self.reader.start()

    @staticmethod
    def pass_on(line):
        sys.stderr.write("".join(c if c.isprintable() or c == "\n" else "?" for c in line.decode(errors="replace")))

    def end(self):
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def plain_environment():
    """Without anything of swapnet's."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SWAPNET")}
    others = [one for one in re.split(r"[ :]", env.pop("LD_PRELOAD", "")) if one and os.path.basename(one) != "libswapnet.so"]
    return env | ({"LD_PRELOAD": ":".join(others)} if others else {})
