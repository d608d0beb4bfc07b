"""Peak memory by sampling: the kernel's own peak counter cannot tell anonymous from file pages."""
import threading

PERIOD_SECONDS = 0.02


class Sampler:
    """Samples one cgroup at a time and keeps the peaks of every one it has seen."""

    def __init__(self):
        self._group = None
        self._peaks = {}
        self._wake = threading.Condition()
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, group):
        """Sample this group from now on; None to rest."""
        with self._wake:
            if self._group is not None:
                self._take(self._group)
            self._group = group
            self._wake.notify()

    def peaks(self, group):
        """{'held': peak of anon + shmem + kernel, 'anon': ..., 'file': ...} so far."""
        with self._wake:
            return dict(self._peaks.get(group, {"held": 0, "anon": 0, "file": 0}))

    def forget(self, group):
        """Begin its peaks anew."""
        with self._wake:
            self._peaks.pop(group, None)

    def close(self):
        with self._wake:
            self._stop = True
            self._wake.notify()
        self._thread.join()

    def _take(self, group):
        now = group.sample()
        now["held"] = now["anon"] + now["shmem"] + now["kernel"]
        peaks = self._peaks.setdefault(group, {"held": 0, "anon": 0, "file": 0})
        for key in peaks:
            peaks[key] = max(peaks[key], now[key])

    def _run(self):
        with self._wake:
            while not self._stop:
                if self._group is None:
                    self._wake.wait()
                else:
                    self._take(self._group)
                    self._wake.wait(PERIOD_SECONDS)
