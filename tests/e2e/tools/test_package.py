"""The wheel that scripts/package makes of a build: pip installs it, its programs find each other, and its bytes are the same each time."""
import importlib.machinery
import importlib.util
import re
import subprocess
import zipfile

import pytest

import harness

PACKAGE = harness.REPO / "scripts" / "package"


def make(out):
    done = subprocess.run(["/usr/bin/python3", PACKAGE, "--build", harness.BUILD, "--out", out, "wheel"], capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split("/")[-1].strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if subprocess.run(["/usr/bin/python3", "-c", "import wheel"], capture_output=True, check=False).returncode:
        pytest.skip("no wheel (Debian: python3-wheel)")
    return make(tmp_path_factory.mktemp("dist"))


def test_same_bytes_again(wheel, tmp_path):
    assert make(tmp_path).read_bytes() == wheel.read_bytes()


def test_no_package_without_an_expected_backend(tmp_path, monkeypatch):
    """The headers of 2.9 are there beside what scripts/setup provides; then one backend of the six was not built."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("package", str(PACKAGE))
    package = importlib.util.module_from_spec(importlib.util.spec_from_loader("package", loader))
    loader.exec_module(package)
    (tmp_path / ".deps" / "torch" / "x86_64" / "2.9-precxx11").mkdir(parents=True)
    monkeypatch.setattr(package, "ROOT", tmp_path)
    names = [f"{kind}-{name}.so" for kind in ("aten", "serve") for name in ("1.13", "2.13", "2.9-precxx11")]
    package.check_backends("x86_64", package.expected("x86_64"), names, ["aten", "serve"])
    for name in names:
        with pytest.raises(SystemExit, match=re.escape(f"package: {name} was not built")):
            package.check_backends("x86_64", package.expected("x86_64"), set(names) - {name}, ["aten", "serve"])
    with pytest.raises(SystemExit, match="no PyTorch to build backends for"):
        package.check_backends("aarch64", package.expected("aarch64"), [], ["aten"])


def test_names_what_it_needs(wheel):
    """Its tag is of the glibc that its programs ask for, and nothing in it says where it was built."""
    tag = re.fullmatch(r"swapnet-[0-9.]+-py3-none-manylinux_2_([0-9]+)_(x86_64|aarch64)\.whl", wheel.name)
    assert tag and wheel.stat().st_size < 25 << 20
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        assert not [name for name in names if "serve" in name.rsplit("/", 1)[-1] and "/source/" not in name]
        for name in names:
            data = files.read(name)
            assert str(harness.REPO).encode() not in data, name
            assert "/man/" not in name or not re.search(rb"^\.TH .*20[0-9][0-9]-", data, re.M), "the day of the build"
            for minor in re.findall(rb"\0GLIBC_2\.([0-9]+)", data):
                assert "aten-" in name or int(minor) <= int(tag[1]), name


def test_pip_installs_it(wheel, tmp_path):
    """`swapnetctl run -- python` of one environment, in which no other program is found."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", tmp_path], check=True)
    python = tmp_path / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True, capture_output=True)
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    program = "import os; print(os.environ['LD_PRELOAD']); print('libswapnet.so' in open('/proc/self/maps').read())"
    done = subprocess.run([tmp_path / "bin" / "swapnetctl", "run", "--budget", "64M", "--", "python", "-c", program], env=env,
                          capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{(tmp_path / 'lib' / 'libswapnet.so').resolve()}\nTrue\n" and not done.stderr, done

