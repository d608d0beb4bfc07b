"""Sequential O_DIRECT read bandwidth of one file: what a perfect fetcher could get right now."""
import subprocess
from pathlib import Path

TOTAL_BYTES = 512 << 20


def measure(path, library, total_bytes=TOTAL_BYTES):
    """Bytes per second, by the program (bandwidth.c) that was built with the library."""
    program = Path(library).resolve().parent.parent / "bin" / "bench-bandwidth"
    done = subprocess.run([program, path, str(total_bytes)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bandwidth of {path}: {done.stderr.strip()}")
    return float(done.stdout)
