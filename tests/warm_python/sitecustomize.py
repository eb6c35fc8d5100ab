"""Python imports this on its way to the program: it loads torch, then it waits here and forks.

Each child goes on to the program as if nothing had been; ``warm.py`` beside this folder asks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
import traceback


def fork_for_each_request(channel: socket.socket) -> None:
    """Answer each request with the child's pid and, later, its status; return in the child."""
    while True:
        message, streams, _, _ = socket.recv_fds(channel, 1 << 18, 3)
        if not message:
            os._exit(0)  # whoever asked has ended
        child = os.fork()
        if child == 0:
            break
        for stream in streams:
            os.close(stream)
        channel.send(b"%d" % child)
        channel.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    channel.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    request = json.loads(message)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[1:] = request["words"]
    sys.path.remove(os.path.dirname(__file__))


def wait_for_requests(channel: socket.socket) -> None:
    """Load what the programs need, and fork. A fault ends this Python: it runs no program."""
    try:
        for name in os.environ["TRAINSCOPE_WARM_LOADED"].split():
            importlib.import_module(name)
        gc.freeze()  # the children's collections leave what is loaded alone, and its pages shared
        assert len(os.listdir("/proc/self/task")) == 1, "a fork would lack a thread"
        fork_for_each_request(channel)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if "TRAINSCOPE_WARM_CHANNEL" in os.environ:
    wait_for_requests(socket.socket(fileno=int(os.environ["TRAINSCOPE_WARM_CHANNEL"])))
