"""fork_server.py: runs test programs, one at a time, each in a child forked after `import torch`.

The import takes most of a small program's processor time, and every run needs the same one. A child is the program
in every other way: its own session, arguments, working directory and files, and a `__main__` of its own; it ends as an
interpreter ends, but does not search PyTorch's own objects for cycles: that took longer than most programs. Without swapnet
PyTorch's objects are not destroyed either (`end_plainly`).

Standard input has one JSON object a line: argv, cwd, out, err, and env, which is added to the environment. Standard
output answers each with two lines: the process, as soon as it is there, and its wait status.
"""
import atexit
import ctypes
import gc
import json
import os
import sys
import threading
import types

import torch  # noqa: F401


def child(job):
    """What a program finds when it is started: nothing of this server is left but PyTorch."""
    os.setsid()
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    for fd, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        new = os.open(path, os.O_RDWR)
        os.dup2(new, fd)
        os.close(new)
    sys.argv = job["argv"]
    sys.path[0] = os.path.dirname(job["argv"][0])
    main = types.ModuleType("__main__")
    main.__file__ = job["argv"][0]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    with open(main.__file__, encoding="utf-8") as source:
        return compile(source.read(), main.__file__, "exec"), main.__dict__


def serve():
    """Returns in children only."""
    gc.freeze()
    requests, answers = os.fdopen(os.dup(0)), os.dup(1)
    os.dup2(2, 1)  # the interpreter's own streams are the program's
    for line in requests:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.close(requests.fileno())
            os.close(answers)
            return child(job)
        os.write(answers, b"%d\n" % pid)
        os.write(answers, b"%d\n" % os.waitpid(pid, 0)[1])
    os._exit(0)


def end_plainly():
    """Of a reference run that has come to its end: what the program itself left to be done then is done. PyTorch's own
    destructors, in Python and in C++, are left out: they write to a hundred MB of pages that the server shares with its
    children, so that all are copied, which took half of a small program's processor time."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(0)


exec(*serve())
# Under swapnet the end is looked at, too; and an exception, SystemExit among them, is the interpreter's.
if "LD_PRELOAD" not in os.environ:
    end_plainly()
