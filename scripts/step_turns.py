#!/usr/bin/env python3
"""Runs a PyTorch program whose steps end with torch.cuda.synchronize() in turns with others of its kind.

    step_turns.py SOCKET STEPS PROGRAM [ARGUMENTS]

Processes that are measured one after the other differ by what else the machine does meanwhile, by more than a tool that
does nothing costs. In turns of a few steps they share that. After each STEPS-th synchronisation the program says so to
the socket and waits for a word; the step that waits is one in STEPS, which a median does not see. Nothing else of the
program changes, but that all of them work on the same few processors, since those differ, too. `Turns` is the other end.
"""
import os
import runpy
import socket
import sys
import threading


class Turns:
    """Gives one process at a time the word, in order of arrival, once `expected` of them, or those of 5 minutes, are there.

    A process that ends or closes its connection leaves the round. Use as a context manager; `path` is the socket.
    """

    def __init__(self, path: str, expected: int):
        self.path, self._expected = path, expected
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(expected)
        self._server.settimeout(300)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.close()

    def _serve(self) -> None:
        round_ = []
        try:
            while len(round_) < self._expected:
                connection = self._server.accept()[0]
                if connection.recv(1):  # it waits
                    round_.append(connection)
        except OSError:  # waited too long, or closed
            pass
        while round_:
            connection = round_.pop(0)
            try:
                connection.sendall(b"g")
                if connection.recv(1):
                    round_.append(connection)
            except OSError:
                pass  # it ended during its turn


PROCESSORS = 4


def take_turns(path: str, steps: int) -> None:
    """Makes torch.cuda.synchronize() of this process wait for its turn once in `steps` calls."""
    import torch

    synchronize = torch.cuda.synchronize
    connection = None
    calls = 0

    def synchronize_in_turn(*arguments, **keywords):
        nonlocal connection, calls
        synchronize(*arguments, **keywords)
        if calls % steps == 0:
            if connection is None:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(path)
            processors = sorted(os.sched_getaffinity(0))[:PROCESSORS]
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), processors)
            connection.sendall(b"w")
            connection.recv(1)
        calls += 1

    torch.cuda.synchronize = synchronize_in_turn


def main() -> None:
    path, steps, program = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    take_turns(path, steps)
    sys.argv = sys.argv[3:]
    sys.path[0] = program.rpartition("/")[0] or "."
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":  # Inductor's workers may import this file
    main()
