"""swapnet-serve without PyTorch: its engine is a fake one that gives back what it gets (tests/tools/fake_engine.c)."""
import gzip
import json
import pathlib
import resource
import socket
import struct
import threading

import pytest

import serve_front
from serve_front import binary, body_of, front, outputs, repository, tensor, wait_for

pytestmark = pytest.mark.skipif(not serve_front.SERVE.exists(), reason="swapnet-serve is not built: no libmicrohttpd")

VALUES = [0.0, 1.5, -2.25, 1024.0]


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """A server whose models do nothing unusual, for tests that leave it as it is."""
    repo = repository(tmp_path_factory.mktemp("repo"), echo="", two="inputs=2 type=INT64", row="rank=1",
                      wrong="fail=it_broke")
    with front(repo, "--buffers", "8M") as f:
        yield f.ready()


# ---- the protocol ----

def test_json_request_gets_its_tensor_back(echo):
    answer = echo.infer("echo", body_of(tensor(VALUES), id="a7"))
    assert answer[0] == 200
    assert outputs(answer) == {"OUTPUT0": VALUES}
    assert json.loads(answer[2])["id"] == "a7"


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


def test_server_and_models_describe_themselves(echo):
    assert json.loads(echo.get("/v2")[2])["name"] == "swapnet-serve"
    assert echo.get("/v2/health/live")[0] == 200
    metadata = json.loads(echo.get("/v2/models/two")[2])
    assert [one["name"] for one in metadata["inputs"]] == ["INPUT0", "INPUT1"]
    assert metadata["versions"] == ["1"]
    assert json.loads(echo.get("/v2/models/two/versions/1/config")[2])["input"][0]["data_type"] == "TYPE_INT64"
    assert echo.get("/v2/models/two/ready")[0] == 200
    index = json.loads(echo.ask("POST", "/v2/repository/index")[2])
    assert {one["name"] for one in index} == {"echo", "two", "row", "wrong"}


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


def test_client_that_waits_for_our_word_is_refused_before_its_body(echo):
    with echo.dial() as s:
        s.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\nExpect: 100-continue\r\n\r\n")
        assert s.makefile("rb").readline().split()[1] == b"413"


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
        with front(repo, "--header-timeout-secs", "2", "--least-rate", "1M") as f:
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
    with front(repo, "--buffers", "120M", "--header-timeout-secs", "1", "--answer-timeout-secs", "1",
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


def test_no_growth_of_memory_or_descriptors(echo):
    def rss():
        text = pathlib.Path(f"/proc/{echo.process.pid}/status").read_text(encoding="ascii")
        return int(text.partition("RssAnon:")[2].split()[0])

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
