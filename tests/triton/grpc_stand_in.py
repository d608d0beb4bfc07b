"""tritonclient.grpc for suites that ask by gRPC and mean the server: each call goes to port 8000 by HTTP, and answers have the
attributes that they have in gRPC. What gRPC alone has (deadlines, channels, headers) is not here."""
import threading

import tritonclient.http as over_http
from tritonclient.utils import InferenceServerException

InferInput, InferRequestedOutput = over_http.InferInput, over_http.InferRequestedOutput
STATUS = {"400": "StatusCode.INVALID_ARGUMENT", "404": "StatusCode.NOT_FOUND", "503": "StatusCode.UNAVAILABLE",
          "500": "StatusCode.INTERNAL"}


class Message(dict):
    """JSON with attributes, as messages have them."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return message(self[name])


def message(value):
    if isinstance(value, dict):
        return Message(value)
    return [message(one) for one in value] if isinstance(value, list) else value


class Result:
    def __init__(self, result):
        self.result = result

    def as_numpy(self, name):
        return self.result.as_numpy(name)

    def get_response(self, as_json=False):
        return message(self.result.get_response())

    def get_output(self, name, as_json=False):
        return message(self.result.get_output(name))


class InferenceServerClient:
    def __init__(self, url, verbose=False, **_):
        self.url = url.replace(":8001", ":8000")
        self.stream = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stream = None

    def ask(self, name, *args, as_json=False, client_timeout=None, compression_algorithm=None, **more):
        """A client of its own, as those of HTTP belong to a thread."""
        if compression_algorithm:
            more |= {"request_compression_algorithm": compression_algorithm, "response_compression_algorithm": compression_algorithm}
        with over_http.InferenceServerClient(self.url, network_timeout=client_timeout or 120, connection_timeout=60) as client:
            try:
                return getattr(client, name)(*args, **more)
            except InferenceServerException as error:
                raise InferenceServerException(error.message(), STATUS.get(error.status(), error.status())) from None

    def infer(self, *args, **more):
        return Result(self.ask("infer", *args, **more))

    def async_infer(self, model_name, inputs, callback, **more):
        def run():
            try:
                callback(result=self.infer(model_name, inputs, **more), error=None)
            except InferenceServerException as error:
                callback(result=None, error=error)
        threading.Thread(target=run, daemon=True).start()

    def start_stream(self, callback, **_):
        self.stream = callback

    def stop_stream(self, **_):
        self.stream = None

    def async_stream_infer(self, model_name, inputs, **more):
        more.pop("enable_empty_final_response", None)
        self.async_infer(model_name, inputs, self.stream, **more)

    def get_model_config(self, *args, **more):
        return Message(config=self.ask("get_model_config", *args, **more))

    def get_model_repository_index(self, **more):
        return Message(models=self.ask("get_model_repository_index", **more))

    def __getattr__(self, name):
        if name.startswith("_") or not hasattr(over_http.InferenceServerClient, name):
            raise AttributeError(name)
        return lambda *args, **more: message(self.ask(name, *args, **more))
