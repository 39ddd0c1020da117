"""The page as a browser shows it: headless Chromium, driven over its DevTools protocol."""

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.request

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation, Step
from plugrl_env_client.viewer.page_server import PageServer
from plugrl_env_client.viewer.scene import Scene
from websockets.sync.client import connect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
]
WAIT = 60.0


class Tab:
    """One page of a running browser."""

    def __init__(self, socket):
        self.socket = socket
        self.count = 0

    def ask(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv(timeout=WAIT))
            if answer.get("id") == self.count:
                return answer["result"]

    def value(self, expression):
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression, expected):
        """Wait for the page to show something, as a person would."""
        until = time.monotonic() + WAIT
        while (value := self.value(expression)) != expected:
            assert time.monotonic() < until, f"{expression}: expected {expected!r}, got {value!r}"
            time.sleep(0.02)


@contextlib.contextmanager
def browsing(url, profile):
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        listening = next(filter(None, (re.search(r"listening on ws://([\d.:]+)/", line) for line in process.stderr)))
        new = urllib.request.Request(f"http://{listening[1]}/json/new?{url}", method="PUT")
        with urllib.request.urlopen(new, timeout=WAIT) as answer:
            address = json.load(answer)["webSocketDebuggerUrl"]
        with connect(address, max_size=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        process.wait(WAIT)
        process.stderr.close()


def look(n, value):
    return Observation(
        images={
            "cam/front <b>": np.full((n, 6, 8, 3), value, np.uint8),
            "grey": np.full((n, 6, 6, 1), value, np.uint8),
        },
        states={"pose": np.full((n, 40), value / 4)},
        text=["<i>pick it</i>"] * n,
    )


def step(group, n, value, *, done=False):
    ended = np.full(n, done)
    group.stepped(
        np.zeros((n, 1)), Step(look(n, value), np.full(n, 1.5), ended, np.zeros(n, bool), {}), np.zeros(0, int)
    )


@pytest.mark.slow
def test_the_page_shows_a_run_while_it_goes_on(tmp_path):
    n = 14
    now = [0.0]
    scene = Scene("dummy-v1: envs 0 to 13", now=lambda: now[0])
    server = PageServer(scene, 0)
    server.start()
    group = scene.observer()
    pixel = (
        "(() => { const c = document.createElement('canvas'); const i = document.images[0]; c.width = 8; c.height = 6;"
    )
    pixel += " c.getContext('2d').drawImage(i, 0, 0); return c.getContext('2d').getImageData(4, 3, 1, 1).data[1]; })()"
    with contextlib.closing(server), browsing(server.url, tmp_path) as tab:
        tab.until("document.getElementById('status').textContent", "Waiting for the first observation…")
        group.started(0, n)
        group.reset(np.arange(n), look(n, 40))
        tab.until("document.querySelectorAll('article').length", 12)
        tab.until("document.title", "dummy-v1: envs 0 to 13")
        tab.until("[...document.images].every((image) => image.naturalWidth > 0)", True)
        assert tab.value("document.images[0].naturalWidth + 'x' + document.images[0].naturalHeight") == "8x6"
        tab.until(pixel, 40)
        now[0] += 10.0
        step(group, n, 200)
        tab.until(pixel, 200)
        tab.until("document.querySelector('.counts').textContent.split(' · ')[0]", "return 1.5")
        shown = tab.value("document.querySelector('.state').textContent")
        assert shown.startswith("pose: 50  50")
        assert shown.endswith("(40)")
        assert tab.value("document.querySelector('.text').textContent") == "<i>pick it</i>", "as text, not as markup"
        assert tab.value("document.querySelectorAll('i, b').length") == 0
        assert tab.value("document.querySelector('figcaption').textContent") == "cam/front <b>"
        now[0] += 10.0
        step(group, n, 200, done=True)
        tab.until("document.getElementById('mean').textContent", "3")
        tab.value("document.getElementById('on').click()")
        tab.until("[...document.querySelectorAll('h2')].map((head) => head.textContent).join()", "env 12,env 13")
        group.closed()
        tab.until("document.getElementById('status').textContent", "The run is over.")
        server.close()
        tab.until("document.getElementById('status').textContent", "The client does not answer: the run may be over.")
