"""NVIDIA's perf_analyzer sends requests at times of its own (open loop), reads metadata, config and statistics, and reports."""
import csv
import re
import subprocess

import pytest

import harness
import serve_front

PERF = harness.REPO / ".deps" / "perf"
CUDA = PERF / "lib" / "python3.11" / "site-packages" / "nvidia" / "cuda_runtime" / "lib"
RATE = 60
WAYS = {"poisson": ["--request-rate-range", RATE, "--request-distribution", "poisson"],
        "constant": ["--request-rate-range", RATE, "--request-distribution", "constant"],
        "intervals": ["--request-intervals", "intervals"],
        "batches": ["--request-rate-range", RATE, "--request-distribution", "poisson", "-b", 4]}
CONFIG = """max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""

pytestmark = pytest.mark.skipif(not PERF.exists(), reason="perf_analyzer is not there: scripts/setup --with-perf-analyzer")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    repo = serve_front.repository(tmp_path_factory.mktemp("repo"), echo="type=FP32 rank=2")
    (repo / "echo" / "config.pbtxt").write_text(CONFIG, encoding="ascii")
    with serve_front.front(repo) as f:
        yield f.ready()


@pytest.mark.parametrize("way", WAYS)
def test_perf_analyzer_drives_the_server_in_open_loop(server, tmp_path, way):
    (tmp_path / "intervals").write_text(f"{1500000 // RATE}\n{500000 // RATE}\n", encoding="ascii")
    success = 'nv_inference_request_success{model="echo",version="1"}'
    before = server.metric(success)
    # However slow the machine: one window after another until three are there, which differ as they like.
    command = [PERF / "bin" / "perf_analyzer", "-m", "echo", "-u", f"127.0.0.1:{server.port}", *WAYS[way],
               "--measurement-mode", "count_windows",
               "--measurement-request-count", 40, "-s", 100000, "-f", "report.csv"]
    done = subprocess.run([str(word) for word in command], cwd=tmp_path, capture_output=True, text=True, timeout=harness.HANG_S,
                          env=harness.clean_env({"LD_LIBRARY_PATH": str(CUDA)}))
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "report.csv", encoding="ascii", newline="") as file:
        report = next(csv.DictReader(file))
    # What it has counted, and what it read from the server's statistics.
    sent, = re.findall(r"^    Request count: (\d+)$", done.stdout, re.MULTILINE)
    answered, = re.findall(r"Successful request count: (\d+)", done.stdout)
    assert int(answered) > 0 and int(sent) >= 100, done.stdout
    assert server.metric(success) - before >= int(sent)
    # A closed loop would send thousands a second here.
    batch = 4 if way == "batches" else 1
    assert 0 < float(report["Inferences/Second"]) < 1.5 * RATE * batch, report
