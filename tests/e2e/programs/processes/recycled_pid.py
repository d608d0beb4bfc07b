"""A connection to swapnetd outlives the process that made it, and says hello when the process's number is another one's.

recycled_pid.py RECORD SOCKET SWAPNETD: runs as the first process of a PID namespace, whose next number it may choose.
"""
import json
import os
import socket
import subprocess
import sys
import time

record, path, daemon = sys.argv[1:]


def hello(s):
    """What the daemon answers."""
    s.sendall(b'{"op":"hello","version":1,"name":"x","minimum":1048576,"demand":536870912}\n')
    return json.loads(s.makefile().readline())


def recycled():
    ready, told = os.pipe()
    go, tell = os.pipe()
    answer, answered = os.pipe()
    first = os.fork()
    if not first:
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        if not os.fork():
            os.write(told, b"x")
            os.read(go, 1)
            os.write(answered, json.dumps(hello(s)).encode())
        os._exit(0)
    os.waitpid(first, 0)
    os.read(ready, 1)
    ticks = os.sysconf("SC_CLK_TCK")
    time.sleep(0.1)  # the other one starts in a later tick of the clock
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(first - 1))
    end, ended = os.pipe()
    second = os.fork()
    if not second:
        os.close(ended)
        os.read(end, 1)
        os._exit(0)
    os.write(tell, b"x")
    said = json.loads(os.read(answer, 65536))
    os.close(ended)
    os.waitpid(second, 0)
    return {"same_number": first == second, "answer": said}


def other_user():
    """Of one who connects, and becomes another user: the owner of the process is not who connected."""
    answer, answered = os.pipe()
    child = os.fork()
    if not child:
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        os.setresuid(65534, 65534, 65534)
        os.write(answered, json.dumps(hello(s)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(answer, 65536))


process = subprocess.Popen([daemon, "--total", "1G", "--socket", path])
while not os.path.exists(path) and process.poll() is None:
    time.sleep(0.01)
with socket.socket(socket.AF_UNIX) as s:
    while s.connect_ex(path):  # it is bound, and listens soon
        time.sleep(0.01)
    good = hello(s)
with open(record, "w") as f:
    json.dump({"own": good, "recycled": recycled(), "other_user": other_user()}, f)
