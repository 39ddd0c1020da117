"""A matrix product in any thread starts no other thread, once one thread is chosen."""

import subprocess
import sys

import pytest
from plugrl_server.common import torch_threads

PROGRAM = """
import os, threading
import torch
from plugrl_server.common.torch_threads import settle, use_threads

def product():
    settle()
    before = len(os.listdir("/proc/self/task"))
    torch.randn(64, 512) @ torch.randn(512, 512)
    started.append(len(os.listdir("/proc/self/task")) - before)

started = []
torch.set_num_threads(2)
assert use_threads(CHOSEN) == 2
thread = threading.Thread(target=product)
thread.start()
thread.join()
print(*started)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize(("chosen", "started"), [(1, "0"), (2, "1")])
def test_a_thread_that_settles_uses_as_many_as_were_chosen(chosen, started):
    program = PROGRAM.replace("CHOSEN", str(chosen))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == started


def test_nothing_is_set_before_a_number_is_chosen(monkeypatch):
    monkeypatch.setattr(torch_threads, "_wanted", None)
    monkeypatch.setattr("torch.set_num_threads", pytest.fail)
    torch_threads.settle()


def test_a_thread_sets_it_once(monkeypatch):
    calls = []
    monkeypatch.setattr("torch.set_num_threads", calls.append)
    monkeypatch.setattr(torch_threads, "_of_this_thread", type("Empty", (), {})())
    monkeypatch.setattr(torch_threads, "_wanted", None)
    torch_threads.use_threads(3)
    torch_threads.settle()
    torch_threads.use_threads(2)
    assert calls == [3, 2]
