"""swapnet-serve without PyTorch: its engine is a fake one that gives back what it gets (tests/tools/fake_engine.c)."""
import concurrent.futures
import contextlib
import gzip
import json
import pathlib
import resource
import select
import socket
import struct
import threading
import time

import pytest

import serve_front
from serve_front import binary, body_of, front, outputs, repository, tensor, wait_for

pytestmark = serve_front.needs_serve

VALUES = [0.0, 1.5, -2.25, 1024.0]


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """A server whose models do nothing unusual, for tests that leave it as it is."""
    repo = repository(tmp_path_factory.mktemp("repo"), echo="", two="inputs=2 type=INT64", row="rank=1",
                      wrong="fail=it_broke", word="type=BYTES rank=1", pairs="inputs=2")
    (repo / "pairs" / "config.pbtxt").write_text("max_batch_size: 4")
    (repository(repo, classes="") / "classes" / "labels.txt").write_text("cat\n\nday of rest\n")
    (repo / "classes" / "config.pbtxt").write_text(
        'max_batch_size: 4 output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" }')
    (repo / "word" / "config.pbtxt").write_text('input { name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] }')
    with front(repo, "--buffers", "8M") as f:
        yield f.ready()


# ---- the protocol ----

def test_json_request_gets_its_tensor_back(echo):
    answer = echo.infer("echo", body_of(tensor(VALUES), id="a7"))
    assert answer[0] == 200
    assert outputs(answer) == {"OUTPUT0": VALUES}
    assert json.loads(answer[2])["id"] == "a7"
    assert json.loads(answer[2])["parameters"] == {"swapnet_bits": "exact"}


def test_binary_request_gets_its_bytes_back(echo):
    status, headers, body = echo.infer("echo", *binary(VALUES))
    assert status == 200
    length = int(headers["Inference-Header-Content-Length"])
    assert body[length:] == struct.pack("<4f", *VALUES)
    assert json.loads(body[:length])["outputs"][0]["parameters"]["binary_data_size"] == 16


def test_raw_request_is_the_only_input(echo):
    data = struct.pack("<4f", *VALUES)
    status, headers, body = echo.infer("row", data, {"Inference-Header-Content-Length": "0"})
    assert status == 200, body
    length = int(headers.get("Inference-Header-Content-Length", len(body)))
    output = json.loads(body[:length])["outputs"][0]
    assert output["shape"] == [4]
    assert body[length:] == data or output["data"] == VALUES


def test_raw_request_can_be_one_string(echo):
    for data in (b"427", b"", b"\0" * 100000):
        status, headers, body = echo.infer("word", data, {"Inference-Header-Content-Length": "0"})
        length = int(headers.get("Inference-Header-Content-Length", 0))
        assert status == 200 and body[length:] == struct.pack("<I", len(data)) + data, body[:500]
    packed = gzip.compress(b"427")
    status, headers, body = echo.infer("word", packed, {"Inference-Header-Content-Length": "0", "Content-Encoding": "gzip"})
    assert status == 200 and body.endswith(b"\3\0\0\x00427")


def test_a_batch_has_at_most_the_samples_that_its_model_allows(echo):
    def batch(n, name="INPUT0"):
        return {"name": name, "shape": [n, 1], "datatype": "FP32", "data": [1.0] * n}
    assert [echo.infer("classes", body_of(batch(n)))[0] for n in (1, 4)] == [200, 200]
    status, _, body = echo.infer("classes", body_of(batch(5)))
    assert (status, json.loads(body)["error"]) == (400, "inference request batch-size must be <= 4 for 'classes'")
    uneven = body_of(batch(4), batch(3, "INPUT1"))
    status, _, body = echo.infer("pairs", uneven)
    assert (status, json.loads(body)["error"]) == (400, "input 'INPUT1' batch size does not match other inputs for 'pairs'")
    assert echo.infer("echo", body_of(batch(1000)))[0] == 200


def test_classes_of_an_output(echo):
    """The largest numbers of each sample with their labels; as Triton says them."""
    asked = [{"name": "OUTPUT0", "parameters": {"classification": 2}}]
    assert outputs(echo.infer("classes", body_of(tensor(VALUES), outputs=asked))) == {"OUTPUT0": ["1024.000000:3", "1.500000:1:"]}
    two = {"name": "INPUT0", "shape": [2, 3], "datatype": "FP32", "data": [1, 0, 2, 3, 3, 0.5]}
    answer = echo.infer("classes", body_of(two, outputs=asked))
    assert outputs(answer) == {"OUTPUT0": ["2.000000:2:day of rest", "1.000000:0:cat", "3.000000:0:cat", "3.000000:1:"]}
    said = json.loads(answer[2])["outputs"][0]
    assert said["datatype"] == "BYTES" and said["shape"] == [2, 2]
    asked[0]["parameters"]["binary_data"] = True
    status, headers, body = echo.infer("echo", body_of(two, outputs=asked))  # without a batch and labels
    assert status == 200, body
    assert body[int(headers["Inference-Header-Content-Length"]):] == b"".join(
        struct.pack("<I", len(text)) + text for text in (b"3.000000:3", b"3.000000:4"))
    status, _, body = echo.infer("two", body_of(tensor([1], "INPUT0", "INT64"), tensor([5], "INPUT1", "INT64"),
                                                outputs=[{"name": "OUTPUT1", "parameters": {"classification": 2**32 - 1}}]))
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == ["5:0"]
    status, _, body = echo.infer("word", body_of({"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["x"]}, outputs=asked))
    assert status == 400 and b"unsupported type 'BYTES'" in body


def test_two_inputs_in_any_order(echo):
    answer = echo.infer("two", body_of(tensor([2**62, -1], "INPUT1", "INT64"), tensor([5], "INPUT0", "INT64"),
                                       outputs=[{"name": "OUTPUT1"}]))
    assert outputs(answer) == {"OUTPUT1": [2**62, -1]}


def test_compressed_request_and_answer(echo):
    values = [float(i % 7) for i in range(100000)]
    packed = gzip.compress(body_of(tensor(values)))
    status, headers, body = echo.infer("echo", packed, {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"})
    assert status == 200
    assert headers["Content-Encoding"] == "gzip"
    assert outputs((status, headers, gzip.decompress(body))) == {"OUTPUT0": values}


def test_chunked_request(echo):
    body = body_of(tensor([float(i) for i in range(50000)]))
    pieces = (body[i:i + 1000] for i in range(0, len(body), 1000))
    c = echo.connection()
    c.request("POST", "/v2/models/echo/infer", pieces, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    assert c.getresponse().status == 200
    c.close()


def test_body_of_unknown_length_holds_what_it_is(tmp_path):
    gate = tmp_path / "gate"
    body, headers = binary(VALUES)
    with front(repository(tmp_path / "repo", slow=f"wait_for={gate}"), "--buffers", "8M") as f, \
            concurrent.futures.ThreadPoolExecutor(8) as pool:
        f.ready()
        work = [pool.submit(f.infer, "slow", gzip.compress(body), headers | {"Content-Encoding": "gzip"}) for _ in range(4)]
        work += [pool.submit(f.infer, "slow", iter([body]), headers) for _ in range(4)]
        wait_for(lambda: f.metric("swapnet_serve_requests") == 8)
        assert f.metric("swapnet_serve_buffer_used_bytes") < 8 * 4096
        gate.touch()
        assert [one.result()[0] for one in work] == [200] * 8


@pytest.mark.parametrize("framing", ["Content-Length: 5\r\nContent-Length: {0}", "Content-Length: {0}\r\nContent-Length: {0}",
                                     "Transfer-Encoding: chunked\r\nContent-Length: 5",
                                     "Transfer-Encoding: chunked\r\nContent-Length: {0}", "Transfer-Encoding: identity",
                                     "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Content-Length : {0}",
                                     "Transfer-Encoding : chunked"])
def test_body_whose_end_is_not_clear_ends_the_connection(echo, framing):
    """What follows is no request, as a proxy may have taken it for the body."""
    body = body_of(tensor(VALUES))
    if "chunked" in framing:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with echo.dial() as s:
        s.sendall(f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\n{framing.format(len(body))}\r\n\r\n".encode() + body +
                  b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while more := s.recv(4096):
                answer += more
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and b"close" in answer, answer


def test_server_and_models_describe_themselves(echo):
    assert json.loads(echo.get("/v2")[2])["name"] == "swapnet-serve"
    assert json.loads(echo.get("/v2/health/live")[2]) == {"live": True}
    assert json.loads(echo.get("/v2/health/ready")[2]) == {"ready": True}
    assert json.loads(echo.get("/v2/models/two/ready")[2]) == {"name": "two", "ready": True}
    metadata = json.loads(echo.get("/v2/models/two")[2])
    assert [one["name"] for one in metadata["inputs"]] == ["INPUT0", "INPUT1"]
    assert metadata["versions"] == ["1"] and metadata["parameters"] == {"swapnet_bits": "exact"}
    assert json.loads(echo.get("/v2/models/two/versions/1/config")[2])["input"][0]["data_type"] == "TYPE_INT64"
    index = json.loads(echo.ask("POST", "/v2/repository/index")[2])
    assert {one["name"] for one in index} == {"echo", "two", "row", "wrong", "word", "pairs", "classes"}


def test_statistics_count_requests(echo):
    def count():
        stats = json.loads(echo.get("/v2/models/two/stats")[2])["model_stats"]
        return stats[0]["inference_stats"]["success"]["count"]
    before = count()
    for _ in range(3):
        assert echo.infer("two", body_of(tensor([1], "INPUT0", "INT64"), tensor([1], "INPUT1", "INT64")))[0] == 200
    assert count() == before + 3
    assert echo.metric('nv_inference_request_success{model="two",version="1"}') == before + 3


# ---- what clients get wrong ----

BAD = [
    ("GET", "/v2/models/none", None, 404), ("GET", "/v2/models/none/ready", None, 404),
    ("GET", "/v2/models/echo/versions/7", None, 404), ("GET", "/v2/models/echo/versions/x", None, 400),
    ("GET", "/v2/models/echo/versions/1/2", None, 404), ("GET", "/v3", None, 404), ("GET", "/", None, 404),
    ("POST", "/v2/models/none/infer", body_of(tensor(VALUES)), 404),
    ("PUT", "/v2/models/echo/infer", b"{}", 405), ("DELETE", "/v2/models/echo", None, 405),
    ("GET", "/v2/models/echo/infer", None, 405), ("POST", "/v2/health/live", b"", 405),
    ("POST", "/v2/models/echo/infer", b"", 400), ("POST", "/v2/models/echo/infer", b"{", 400),
    ("POST", "/v2/models/echo/infer", b"[" * 100000, 400), ("POST", "/v2/models/echo/infer", b"\xff\xfe{}", 400),
    ("POST", "/v2/models/echo/infer", b'{"inputs":[]}', 400),
    ("POST", "/v2/models/echo/infer", body_of(tensor(VALUES, "NOT")), 400),
    ("POST", "/v2/models/echo/infer", body_of(tensor([1], kind="INT8")), 400),
    ("POST", "/v2/models/echo/infer", body_of(tensor(VALUES), outputs=[{"name": "NOT"}]), 400),
    ("POST", "/v2/models/echo/infer", body_of(tensor(VALUES) | {"shape": [1 << 62, 1 << 62]}), 400),
    ("POST", "/v2/models/echo/infer", body_of(tensor(VALUES) | {"shape": [-1, 4]}), 400),
    ("POST", "/v2/models/echo/infer", body_of(tensor(VALUES), outputs=[{"name": f"o{i}"} for i in range(100)]), 400),
    ("POST", "/v2/models/echo/infer", body_of(*(tensor([1.0], f"i{i}") for i in range(100))), 400),
    ("POST", "/v2/models/two/infer", body_of(tensor([1], kind="INT64")), 400),
    ("POST", "/v2/models/wrong/infer", body_of(tensor(VALUES)), 500),
    ("POST", "/v2/repository/index", b"nonsense", 400),
    ("POST", "/v2/repository/models/echo/load", b"", 400), ("POST", "/v2/repository/models/echo/unload", b"", 400),
]


def test_errors_leave_the_connection_usable(echo):
    c = echo.connection()
    for method, path, body, status in BAD:
        answer = echo.ask(method, path, body, connection=c)
        assert answer[0] == status, (method, path, body, answer)
        assert json.loads(answer[2])["error"]
        sock = c.sock
        assert sock is not None, f"{method} {path} closed the connection"
        assert outputs(echo.infer("echo", body_of(tensor(VALUES)), connection=c)) == {"OUTPUT0": VALUES}
        assert c.sock is sock
    c.close()


def test_unknown_versions_are_said(echo):
    """As Triton says them."""
    for method, path in (("GET", ""), ("GET", "/ready"), ("GET", "/stats"), ("POST", "/infer")):
        body = body_of(tensor(VALUES)) if method == "POST" else None
        status, _, answer = echo.ask(method, f"/v2/models/echo/versions/99{path}", body)
        assert (status, json.loads(answer)["error"]) == (404, "Request for unknown model: 'echo' version 99 is not found"), path


@pytest.mark.parametrize("length", ["-1", "999999", "x", "18446744073709551616", "3"])
def test_wrong_length_of_the_json_is_refused(echo, length):
    body, _ = binary(VALUES)
    assert echo.infer("echo", body, {"Inference-Header-Content-Length": length})[0] == 400


def test_paths_never_leave_the_repository(echo):
    for name in ("..", "%2e%2e", "..%2f..%2fetc", "%00", "a%00b", "%", "%zz", ".hidden", "a" * 5000, "echo%2f1", "é"):
        with echo.dial() as s:
            s.sendall(f"GET /v2/models/{name}/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = s.makefile("rb").read()
        assert answer.split()[1] in (b"400", b"404"), (name, answer)


def test_headers_have_a_limit(echo):
    with echo.dial() as s:
        try:
            s.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 500) for i in range(1000)))
            answer = s.makefile("rb").readline()
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.split()[1] in (b"431", b"413"), answer
    assert echo.get("/v2")[0] == 200


def test_body_has_a_limit(echo):
    c = echo.connection()
    assert echo.infer("echo", b"x" * (5 << 20), connection=c)[0] == 413
    assert echo.infer("echo", body_of(tensor(VALUES)), connection=c)[0] == 200
    c.request("POST", "/v2/models/echo/infer", (b"x" * 65536 for _ in range(80)), encode_chunked=True,
              headers={"Transfer-Encoding": "chunked"})
    assert c.getresponse().status == 413
    c.close()
    bomb = gzip.compress(b"0" * (64 << 20))
    assert echo.infer("echo", bomb, {"Content-Encoding": "gzip"})[0] == 413
    with echo.dial() as s:  # too much to be read and left aside
        s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert s.makefile("rb").readline().split()[1] == b"413"
    wait_for(lambda: echo.metric("swapnet_serve_buffer_used_bytes") == 0)


def test_limit_of_bodies_has_the_name_that_triton_gives_it(tmp_path):
    with front(repository(tmp_path, echo=""), "--http-max-input-size=1024") as f:
        f.ready()
        assert f.infer("echo", binary([0.0] * 300)[0])[0] == 413
        assert f.infer("echo", *binary(VALUES))[0] == 200


def test_body_limit_is_exact_also_when_it_is_compressed(tmp_path):
    body = body_of(tensor(VALUES))
    with front(repository(tmp_path, echo=""), "--body-limit", "4096") as f:
        f.ready()
        for size, status in ((4095, 200), (4096, 200), (4097, 413)):
            padded = body[:-1] + b" " * (size - len(body)) + body[-1:]
            assert f.infer("echo", padded)[0] == status, size
            assert f.infer("echo", gzip.compress(padded), {"Content-Encoding": "gzip"})[0] == status, size


def test_one_address_has_no_more_connections_than_it_may(tmp_path):
    with front(repository(tmp_path, echo=""), "--connections-per-address", "6") as f:
        f.ready()
        wait_for(lambda: f.metric("swapnet_serve_connections") <= 1)
        mine = [f.dial() for _ in range(12)]
        for s in mine:
            with contextlib.suppress(ConnectionError):
                s.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")

        def answer(s):
            with contextlib.suppress(ConnectionError):
                return s.recv(16)[:12]
            return b""
        assert [answer(s) for s in mine].count(b"HTTP/1.1 200") in (5, 6)
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.settimeout(serve_front.PATIENCE_S)
            other.connect(("127.0.0.1", f.port))
            other.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer(other) == b"HTTP/1.1 200"
        for s in mine:
            s.close()


def test_client_that_waits_for_our_word_is_refused_before_its_body(echo):
    with echo.dial() as s:
        s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\nExpect: 100-continue\r\n\r\n")
        assert s.makefile("rb").readline().split()[1] == b"413"


def test_body_in_a_million_chunks_is_a_body(echo):
    """3 MB of chunks of a byte each, as those that made servers allocate for each of them."""
    body = body_of(tensor(VALUES))
    flood = body[:-1] + b" " * 500000 + body[-1:]
    memory = anonymous_kib(echo)
    with echo.dial() as s:
        s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
                  b"".join(b"1\r\n%c\r\n" % byte for byte in flood) + b"0\r\n\r\n")
        answer = s.makefile("rb").read()
    assert answer.split()[1] == b"200", answer
    assert anonymous_kib(echo) < memory + 2048


def test_clients_do_not_learn_where_the_repository_lies(tmp_path):
    """Whatever an engine says; the log has all of it."""
    where = f"cannot_open:{tmp_path}/bad/1/model.pt"
    repo = repository(tmp_path, echo="", bad=f"refuse={where}", broken=f"fail={where}")
    with front(repo, "--model-control-mode", "explicit", "--load-model", "*", "--strict-readiness", "false") as f:
        f.said(where)
        wait_for(f.is_ready)
        answers = [f.infer("broken", body_of(tensor(VALUES))), f.infer("bad", body_of(tensor(VALUES))),
                   f.ask("POST", "/v2/repository/models/bad/load"), f.ask("POST", "/v2/repository/index"), f.get("/metrics"),
                   f.get("/v2/models/bad"), f.get("/v2/models/stats")]
    assert [status for status, *_ in answers[:3]] == [500, 503, 400]
    for _, headers, body in answers:
        assert str(tmp_path).encode() not in body + json.dumps(headers).encode(), body
    assert b"cannot_open:bad/1/model.pt" in answers[2][2] + answers[3][2]


def test_pipelined_requests_are_answered_in_order(echo):
    with echo.dial() as s:
        for i in range(20):
            body = body_of(tensor([float(i)]))
            s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        s.sendall(b"GET /v2/models/echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = s.makefile("rb").read().decode()
    found = [float(part.partition("]")[0]) for part in text.split('"data":[')[1:]]
    assert found == [float(i) for i in range(20)]


# ---- slow clients, and many ----

def drip_until(sockets, stop):
    """A byte now and then to each."""
    while not stop.wait(0.2):
        for s in sockets:
            try:
                s.send(b" ")
            except OSError:
                pass


def test_slow_clients_and_idle_ones_hold_nobody_up(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    repo = repository(tmp_path, echo="")
    idle, slow, stop = [], [], threading.Event()
    try:
        with front(repo, "--header-timeout-secs", "5", "--least-rate", "1M", "--connections", "2200") as f:
            f.ready()
            idle = [f.dial() for _ in range(2000)]
            slow = [f.dial() for _ in range(20)]
            for i, s in enumerate(slow):  # half in their headers, half in their bodies
                s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\n" +
                          (b"Content-Length: 1000\r\n\r\n" if i % 2 else b"X: "))
            dripping = threading.Thread(target=drip_until, args=(slow, stop))
            dripping.start()
            for _ in range(50):
                assert f.infer("echo", body_of(tensor(VALUES)))[0] == 200
            for s in slow:  # their time is over, whatever they send
                try:
                    while s.recv(4096):
                        pass
                except ConnectionError:
                    pass
            stop.set()
            dripping.join()
            wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)
            assert f.metric("swapnet_serve_connections") >= 2000
            assert f.infer("echo", body_of(tensor(VALUES)))[0] == 200
            for s in idle + slow:
                s.close()
            wait_for(lambda: f.descriptors() < 100, "closing")
    finally:
        stop.set()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_client_that_does_not_read_loses_its_connection(tmp_path):
    repo = repository(tmp_path, echo="")
    with front(repo, "--buffers", "120M", "--header-timeout-secs", "30", "--answer-timeout-secs", "1",
               "--least-rate", "100M") as f:
        f.ready()
        body, headers = binary([1.0] * (8 << 20))
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(serve_front.PATIENCE_S)
            s.connect(("127.0.0.1", f.port))
            s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
                      b"Inference-Header-Content-Length: %s\r\n\r\n"
                      % (len(body), headers["Inference-Header-Content-Length"].encode()) + body)
            wait_for(lambda: f.metric('nv_inference_request_success{model="echo",version="1"}') == 1)
            wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0, "giving back")


@pytest.mark.parametrize("part", ["none of it", "a part", "all"])
def test_connections_of_clients_that_have_left_are_closed(tmp_path, part):
    """Within seconds, though the end came together with the last bytes; a connection may be idle for 120 s."""
    body = body_of(tensor(VALUES))
    sent = {"none of it": 0, "a part": 10, "all": len(body)}[part]
    with front(repository(tmp_path, echo=""), "--header-timeout-secs", "100") as f:
        f.ready()
        for _ in range(60):
            with f.dial() as s:
                s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:sent])
        began = time.monotonic()
        wait_for(lambda: f.metric("swapnet_serve_connections") <= 1, "closing")
        assert time.monotonic() - began < 90
        wait_for(lambda: f.metric("swapnet_serve_buffer_used_bytes") == 0)


def anonymous_kib(f):
    text = pathlib.Path(f"/proc/{f.process.pid}/status").read_text(encoding="ascii")
    return int(text.partition("RssAnon:")[2].split()[0])


def test_connections_take_what_is_kept_for_them(tmp_path):
    repo = repository(tmp_path, echo="")
    count, each_kib, filler = 400, 16 + 4, "x" * 7000
    with front(repo, "--connections", str(count + 20), "--queue", "64", "--buffers", "8M", "--log-verbose", "1") as f:
        kept_kib = (16 << 10) + (count + 20) * each_kib + (64 + 64 // 8 + 8) * 40
        budget = float(f.said(r"engine 0 is process \d+, with ([0-9.]+) MiB")[1])
        assert abs(budget - (200 - 8 - kept_kib / 1024)) < 1
        f.ready()
        before = anonymous_kib(f)
        body = body_of(tensor(VALUES))
        sockets = [f.dial() for _ in range(count)]
        for s in sockets:
            s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nX: %s\r\nContent-Length: %d\r\n\r\n"
                      % (filler.encode(), len(body)) + body)
            assert s.recv(4096).split()[1] == b"200"
        for s in sockets:  # the headers of another one, as many as there may be
            s.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: %s" % filler.encode())
        assert f.get("/v2")[0] == 200
        grown = anonymous_kib(f) - before
        assert grown < count * each_kib, f"{grown / count:.1f} KiB for each"
        for s in sockets:
            s.close()


def test_connections_beyond_the_limit_wait(tmp_path):
    with front(repository(tmp_path, echo=""), memory="64M") as f:
        f.ready()
        most = (64 << 20) // 16 // (20 << 10)
        waiting = [f.dial() for _ in range(most + 50)]
        for s in waiting:
            s.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")

        def answered():
            return select.select(waiting, [], [], 0)[0]
        served = wait_for(lambda: found if len(found := answered()) == most else None, "as many answers as connections")
        assert len(answered()) == most
        waiting = [s for s in waiting if s not in served]
        for s in served:
            s.close()
        wait_for(lambda: len(answered()) == 50, "the others' turn")
        for s in waiting:
            assert s.recv(16).startswith(b"HTTP/1.1 200")
            s.close()


def test_places_for_inferences_are_counted(tmp_path):
    with front(repository(tmp_path, echo=""), "--queue", "1", "--body-limit", "256K") as f:
        f.ready()
        assert f.infer("echo", body_of(tensor(VALUES)))[0] == 200
        head = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
        plain = [f.dial() for _ in range(20)]  # these have no place yet
        for s in plain:
            s.sendall(head + b"\r\n{")
        assert f.infer("echo", body_of(tensor(VALUES)))[0] == 200
        packed = []

        def no_place_is_left():
            """One that comes while the question has the last place is refused, so another one comes."""
            packed.append(f.dial())  # what unpacks a body takes memory
            packed[-1].sendall(head + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"{")[:5])
            return f.infer("echo", body_of(tensor(VALUES)))[0] == 503
        wait_for(no_place_is_left, "the last place")
        for s in packed:
            s.close()
        wait_for(lambda: f.infer("echo", body_of(tensor(VALUES)))[0] == 200, "a free place")
        for s in plain:
            s.close()


def test_no_growth_of_memory_or_descriptors(echo):
    def rss():
        return anonymous_kib(echo)

    def burst():
        c = echo.connection()
        for i in range(200):
            assert echo.infer("echo", body_of(tensor(VALUES)), connection=c)[0] == 200
            assert echo.infer("echo", *binary(VALUES), connection=c)[0] == 200
            echo.ask(*BAD[i % len(BAD)][:3], connection=c)
            assert echo.ask("GET", "/metrics", connection=c)[0] == 200
        c.close()
    burst()
    burst()
    memory, descriptors = rss(), echo.descriptors()
    for _ in range(3):
        burst()
    assert rss() < memory + 2048
    wait_for(lambda: echo.descriptors() <= descriptors)


def test_clients_that_say_much_and_send_nothing_hold_nothing(tmp_path):
    repo = serve_front.repository(tmp_path, echo="")
    with serve_front.front(repo, "--buffers", "8M", "--body-limit", "4M") as server:
        server.ready()
        silent = [server.dial() for _ in range(8)]
        for s in silent:
            s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n{")
        serve_front.wait_for(lambda: server.metric("swapnet_serve_connections") > 8, "connections")
        for _ in range(5):
            status, _, body = server.infer("echo", serve_front.body_of(serve_front.tensor([1.5] * 1000)))
            assert status == 200, body
        for s in silent:
            s.close()
