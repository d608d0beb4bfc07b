"""Clients: threads with a keep-alive connection each, which send requests until all are answered, and compare bits."""
import base64
import http.client
import json
import queue
import threading
import time
from dataclasses import dataclass

import zoo

PATIENCE_SECONDS = 120


@dataclass
class Answer:
    model: str
    began: float
    seconds: float
    error: str      # "": none
    same: bool


class OipBinary:
    """The Open Inference Protocol with its binary tensors."""

    @staticmethod
    def request(model, data):
        head = json.dumps({"inputs": [{"name": model.input_name, "datatype": "FP32", "shape": zoo.SHAPE,
                                       "parameters": {"binary_data_size": len(data)}}],
                           "parameters": {"binary_data_output": True}}).encode()
        return (f"/v2/models/{model.name}/infer", head + data,
                {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"})

    @staticmethod
    def output(answer, headers):
        return answer[int(headers["Inference-Header-Content-Length"]):]


class OipBase64:
    """The same without that extension: raw bytes as one element of type BYTES, as MLServer's base64 codec has it."""

    @staticmethod
    def request(model, data):
        body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "base64"},
                            "data": [base64.b64encode(data).decode()]}]}
        return f"/v2/models/{model.name}/infer", json.dumps(body).encode(), {"Content-Type": "application/json"}

    @staticmethod
    def output(answer, _):
        return base64.b64decode(json.loads(answer)["outputs"][0]["data"][0])


class Raw:
    """Raw floats both ways; the model's name is the path."""

    @staticmethod
    def request(model, data):
        return f"/{model.name}", data, {"Content-Type": "application/octet-stream", "serve_multiplexed_model_id": model.name}

    @staticmethod
    def output(answer, _):
        return answer


class JsonBase64:
    """JSON with the model's name and base64 of the floats: LitServe reads JSON."""

    @staticmethod
    def request(model, data):
        body = {"model": model.name, "data": base64.b64encode(data).decode()}
        return "/predict", json.dumps(body).encode(), {"Content-Type": "application/json"}

    @staticmethod
    def output(answer, _):
        return base64.b64decode(json.loads(answer)["data"])


def _infer(connection, model, k, protocol):
    path, body, headers = protocol.request(model, model.inputs[k])
    began = time.monotonic()
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    answer = response.read()
    seconds = time.monotonic() - began
    if response.status != 200:
        return Answer(model.name, began, seconds, f"{response.status} {answer[:200].decode(errors='replace')}", False)
    return Answer(model.name, began, seconds, "", protocol.output(answer, response.headers) == model.outputs[k])


def one(port, model, k, protocol=OipBinary, connection=None):
    """The Answer to one request."""
    c = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    began = time.monotonic()
    try:
        return _infer(c, model, k, protocol)
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        c.close()  # the next request has a new connection
        return Answer(model.name, began, time.monotonic() - began, f"{type(error).__name__}: {error}", False)
    finally:
        if not connection:
            c.close()


def many(port, requests, clients, protocol=OipBinary, say=None, is_dead=lambda: False):
    """[Answer] to all requests, pairs of a model and the number of its input; to those before is_dead() holds."""
    waiting, answers, lock = queue.SimpleQueue(), [], threading.Lock()
    for request in requests:
        waiting.put(request)

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        while True:
            try:
                model, k = waiting.get_nowait()
            except queue.Empty:
                model = None
            if not model or is_dead():
                connection.close()
                return
            answer = one(port, model, k, protocol, connection)
            with lock:
                answers.append(answer)
                if say and len(answers) % 100 == 0:
                    say(f"{len(answers)} of {len(requests)}, {sum(bool(a.error) for a in answers)} errors")

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
