"""The page over HTTP."""

import http.client
import json
import re
import socket
import urllib.error
import urllib.request
from contextlib import contextmanager
from html.parser import HTMLParser

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation
from plugrl_env_client.viewer.page_server import PageServer, ViewerError
from plugrl_env_client.viewer.scene import Scene


@contextmanager
def serving(scene=None, *, started=True):
    server = PageServer(scene or Scene("dummy-v1"), 0)
    if started:
        server.start()
    try:
        yield server
    finally:
        server.close()


def lively(name="cam/front é"):
    scene = Scene("dummy-v1: env 0")
    group = scene.observer()
    group.started(0, 1)
    seen = Observation(
        images={name: np.zeros((1, 4, 4, 3), np.uint8)}, states={"s": np.ones((1, 2))}, text=["<b>go</b>"]
    )
    group.reset(np.arange(1), seen)
    return scene


def get(server, path, **headers):
    request = urllib.request.Request(server.url + path.lstrip("/"), headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers, answer.read()


def refused(server, path, **headers):
    with pytest.raises(urllib.error.HTTPError) as error:
        get(server, path, **headers)
    with error.value as answer:
        return answer.code, answer.read().decode().strip()


class Page(HTMLParser):
    """The ids of a page and the addresses it names."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.named = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        self.named += [found[key] for key in ("src", "href") if key in found]


def test_the_page_and_all_it_names_come_from_here():
    with serving() as server:
        headers, body = get(server, "/")
        page = Page(body.decode())
        assert headers.get_content_type() == "text/html"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert set(page.named) == {"/page.css", "/page.js", "/state.json"}
        kinds = {name: get(server, name)[0].get_content_type() for name in page.named}
    assert kinds == {"/page.css": "text/css", "/page.js": "text/javascript", "/state.json": "application/json"}


def test_the_script_finds_what_it_fills_in_and_asks_nobody_else():
    with serving(lively()) as server:
        page, script = Page(get(server, "/")[1].decode()), get(server, "/page.js")[1].decode()
        told = json.loads(get(server, "/state.json")[1])
    assert set(re.findall(r'\bat\("(\w+)"\)', script)) <= page.ids
    assert "://" not in script
    assert "innerHTML" not in script, "names and texts are somebody else's"
    assert set(re.findall(r"\bstate\.(\w+)", script)) - {"json", "size", "values"} <= set(told)
    assert set(re.findall(r"\benv\.(\w+)", script)) <= set(told["envs"][0])


def test_the_state_as_json():
    with serving(lively()) as server:
        headers, body = get(server, "/state.json?first=0&count=1")
        assert json.loads(body)["envs"][0]["text"] == "<b>go</b>"
        assert headers["Cache-Control"] == "no-store"
        assert json.loads(get(server, "/state.json?first=1")[1])["envs"] == []
        assert refused(server, "/state.json?first=x") == (400, "first 'x': expected a whole number")


def test_an_image_is_a_png_whatever_its_name():
    with serving(lively()) as server:
        headers, body = get(server, "/images/0/cam%2Ffront%20%C3%A9.png?17")
        assert headers.get_content_type() == "image/png"
        assert body.startswith(b"\x89PNG")
        assert refused(server, "/images/0/other.png") == (404, "no such image")
        assert refused(server, "/images/x/other.png") == (400, "env 'x': expected a whole number")
        assert refused(server, "/images/0/..%2f..%2fpage.js.png")[0] == 404


def test_nothing_else_is_served():
    with serving() as server:
        assert refused(server, "/scene.py") == (404, "no such page")
        assert refused(server, "/../page_server.py")[0] == 404


def test_other_sites_cannot_read_it_under_a_name_of_their_own():
    with serving() as server:
        assert refused(server, "/", Host="evil.example")[0] == 403
        assert refused(server, "/", Host="[::1")[0] == 400
        port = server.url.rstrip("/").rpartition(":")[2]
        assert get(server, "/", Host=f"localhost:{port}")[1]


def test_a_port_in_use_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            ViewerError, match=rf"--viewer: cannot listen on port {port}: another program listens there"
        ):
            PageServer(Scene("x"), port)


def test_a_port_that_is_not_ours_to_have_is_named(monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socketserver.TCPServer.server_bind", refuse)
    with pytest.raises(ViewerError, match="port 80: Permission denied"):
        PageServer(Scene("x"), 80)


def test_it_starts_once_and_a_port_is_free_again_after_it():
    with serving() as server:
        server.start()
        port = int(server.url.rstrip("/").rpartition(":")[2])
        assert get(server, "/")[1]
    with pytest.raises(urllib.error.URLError):
        get(server, "/")
    PageServer(Scene("x"), port).close()


def test_it_may_end_without_having_started():
    with serving(started=False):
        pass


def test_a_browser_that_goes_away_disturbs_nobody(capfd):
    with serving(lively()) as server:
        connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rstrip("/").rpartition(":")[2]))
        connection.request("GET", "/page.js")
        connection.sock.close()
        assert get(server, "/")[1]
    assert capfd.readouterr().err == ""
