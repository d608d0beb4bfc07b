"""HTTPS: the same answers under TLS, from a certificate and a key that are files, with their memory counted."""
import gzip
import http.client
import json
import os
import socket
import ssl
import struct
import subprocess

import pytest

import harness
import serve_front
from serve_front import binary, body_of, front, outputs, repository, tensor, wait_for
from test_front import anonymous_kib

pytestmark = serve_front.needs_serve

VALUES = [1.5, -2.25]
TLS_KIB = 64  # TLS_BYTES of options.c


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with a certificate for 127.0.0.1, its key, and another key."""
    where = tmp_path_factory.mktemp("tls")
    for name in ("server", "other"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
                        "-keyout", where / f"{name}.key", "-out", where / f"{name}.crt"], check=True, capture_output=True)
        (where / f"{name}.key").chmod(0o600)
        (where / f"{name}.crt").chmod(0o644)
    return where


def tls_options(files, cert="server.crt", key="server.key"):
    return "--https-port", "0", "--tls-cert", files / cert, "--tls-key", files / key


@pytest.fixture(scope="module")
def secure(files, tmp_path_factory):
    repo = repository(tmp_path_factory.mktemp("repo"), echo="", word="type=BYTES")
    with front(repo, *tls_options(files)) as f:
        f.tls_port = int(f.said(r"listening with TLS on .*, port (\d+)")[1])
        yield f.ready()


def trusting(files):
    return ssl.create_default_context(cafile=files / "server.crt")


def connection(f, files):
    return http.client.HTTPSConnection("127.0.0.1", f.tls_port, timeout=serve_front.PATIENCE_S, context=trusting(files))


def test_answers_are_those_without_tls(secure, files):
    c = connection(secure, files)
    large = [float(i) for i in range(200000)]
    for values in (VALUES, large):
        status, _, body = secure.infer("echo", *binary(values), c)
        assert status == 200 and body == secure.infer("echo", *binary(values))[2]
    assert outputs(secure.infer("echo", body_of(tensor(VALUES)), connection=c)) == {"OUTPUT0": VALUES}
    assert secure.ask("GET", "/v2/models/none", connection=c)[0] == 404
    assert secure.ask("GET", "/metrics", connection=c)[0] == 200
    assert c.sock.version() in ("TLSv1.2", "TLSv1.3")
    c.close()


def test_tritonclient_speaks_https(secure, files):
    python = harness.REPO / ".deps" / "clients" / "bin" / "python"
    assert python.exists(), "run scripts/setup --with-clients"
    program = harness.program_file("triton_https")
    done = subprocess.run([python, program, str(secure.tls_port), files / "server.crt"], capture_output=True, text=True, timeout=serve_front.PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "sync aio refused\n"), done.stderr


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(secure, files, version):
    context = trusting(files)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", secure.tls_port), timeout=serve_front.PATIENCE_S) as s:
        if version == ssl.TLSVersion.TLSv1_1:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(s, server_hostname="127.0.0.1")
        else:
            with context.wrap_socket(s, server_hostname="127.0.0.1") as wrapped:
                wrapped.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert wrapped.recv(4096).split()[1] == b"200"


def test_noise_and_plain_text_do_no_harm(secure, files):
    for noise in (b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 70000, os.urandom(5000), b"\x16"):
        with socket.create_connection(("127.0.0.1", secure.tls_port), timeout=serve_front.PATIENCE_S) as s:
            try:
                s.sendall(noise)
                s.shutdown(socket.SHUT_WR)
                assert b"200" not in s.recv(4096)
            except OSError:
                pass
    c = connection(secure, files)
    assert secure.ask("GET", "/v2", connection=c)[0] == 200
    c.close()
    wait_for(lambda: secure.metric("swapnet_serve_connections") == 1)


def test_endless_handshake_ends_the_connection(secure):
    """GnuTLS would collect 16 MiB of it."""
    before = anonymous_kib(secure)
    sockets = [socket.create_connection(("127.0.0.1", secure.tls_port), timeout=serve_front.PATIENCE_S) for _ in range(10)]
    hello = b"\1\xff\xff\xff\3\3" + bytes(16000)
    for s in sockets:
        with pytest.raises(ConnectionError):
            while True:
                s.sendall(b"\x16\3\1" + struct.pack(">H", len(hello)) + hello)
                hello = bytes(16000)
    wait_for(lambda: secure.metric("swapnet_serve_connections") == 1)
    assert anonymous_kib(secure) - before < len(sockets) * 200
    for s in sockets:
        s.close()


def test_clients_that_leave_and_many_at_once(secure, files):
    with socket.create_connection(("127.0.0.1", secure.tls_port)) as s:
        with trusting(files).wrap_socket(s, server_hostname="127.0.0.1") as wrapped:
            wrapped.sendall(b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    many = [connection(secure, files) for _ in range(30)]
    for c in many:
        c.request("POST", "/v2/models/echo/infer", body_of(tensor(VALUES)))
    for c in many:
        assert json.loads(c.getresponse().read())["outputs"][0]["data"] == VALUES
        c.close()
    wait_for(lambda: secure.metric("swapnet_serve_buffer_used_bytes") == 0)


def refused(repo, *options):
    done = subprocess.run([str(one) for one in (serve_front.SERVE, "--model-repository", repo, "--memory", "200M", "--http-port", "0",
                                                "--engine", serve_front.FAKE, "--library", "none", *options)],
                          capture_output=True, text=True, timeout=serve_front.PATIENCE_S, env=harness.clean_env())
    assert done.returncode in (2, 3)
    return done.returncode, done.stderr


def test_what_is_wrong_is_said_in_one_line(files, tmp_path):
    repo = repository(tmp_path / "repo", echo="")
    secret = tmp_path / "wrong.key"
    secret.write_text((files / "server.key").read_text())
    for mode in (0o640 if os.geteuid() else 0o644, 0o602):
        secret.chmod(mode)
        status, said = refused(repo, *tls_options(files, key=secret))
        assert status == 3 and f"others can read or write {secret}" in said
    secret.chmod(0o600)
    certificate = tmp_path / "open.crt"
    certificate.write_text((files / "server.crt").read_text())
    certificate.chmod(0o666)
    assert f"others can write to {certificate}" in refused(repo, *tls_options(files, cert=certificate))[1]
    for cert, key in (("server.crt", "other.key"), ("server.key", "server.key"), ("server.crt", "server.crt")):
        (tmp_path / "key").write_text((files / key).read_text())
        (tmp_path / "key").chmod(0o600)
        assert "have to be a certificate and its key" in refused(repo, *tls_options(files, cert, tmp_path / "key"))[1], (cert, key)
    assert "cannot open" in refused(repo, *tls_options(files, key="none"))[1]
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path):
        assert "is no file" in refused(repo, *tls_options(files, key=path))[1]
    assert refused(repo, *tls_options(files)[:4]) == (2, "swapnet-serve: --https-port needs --tls-cert and --tls-key\n")
    assert refused(repo, *tls_options(files)[2:])[0] == 2
    assert refused(repo, "--allow-http", "false")[0] == 2


def test_without_http_the_connections_with_tls_are_counted(files, tmp_path):
    """An idle connection whose requests had large headers and a body takes no more than what is kept for it."""
    count, each_kib = 150, 16 + 4 + TLS_KIB
    repo = repository(tmp_path, echo="")
    with front(repo, "--allow-http=false", "--connections", str(count + 20), "--queue", "64", "--buffers", "8M", "--log-verbose", "1",
               *tls_options(files)) as f:
        f.tls_port = f.port
        kept_kib = (16 << 10) + (count + 20) * each_kib + (64 + 64 // 8 + 8) * 40
        budget = float(f.said(r"engine 0 is process \d+, with ([0-9.]+) MiB")[1])
        assert abs(budget - (200 - 8 - kept_kib / 1024)) < 1
        wait_for(lambda: f.ask("GET", "/v2/health/ready", connection=connection(f, files))[0] == 200)
        before = anonymous_kib(f)
        many = [connection(f, files) for _ in range(count)]
        for c in many:
            assert f.infer("echo", *binary([1.0] * 30000), c)[0] == 200
            assert f.ask("GET", "/v2", headers={"X": "x" * 7000}, connection=c)[0] == 200
        grown = anonymous_kib(f) - before
        assert grown < count * each_kib, f"{grown / count:.1f} KiB for each"
        for c in many:
            c.close()


def test_places_for_inferences_are_those_of_both_listeners(files, tmp_path):
    with front(repository(tmp_path, echo=""), *tls_options(files), "--queue", "8") as f:
        f.tls_port = int(f.said(r"listening with TLS on .*, port (\d+)")[1])
        f.ready()
        head = (b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nContent-Encoding: gzip\r\n\r\n" +
                gzip.compress(b"{")[:5])  # takes a place and does not end
        packed = [f.dial() for _ in range(8 + 1 + 8)]
        for s in packed:
            s.sendall(head)

        def no_place_is_left():
            c = connection(f, files)
            answer = f.infer("none", body_of(tensor(VALUES)), connection=c)
            c.close()
            return answer[0] == 503 and b"too many requests" in answer[2]
        wait_for(no_place_is_left, "the last place")
        for s in packed:
            s.close()
        wait_for(lambda: not no_place_is_left(), "a free place")
