"""The page's server: the standard library's, in a daemon thread, on the loopback interface."""

import errno
import http.server
import importlib.resources
import json
import logging
import threading
import urllib.parse
from http import HTTPStatus

from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.viewer.scene import Scene

HOST = "127.0.0.1"
_OWN_NAMES = frozenset({HOST, "localhost"})
_POLL_SECONDS = 0.1  # how soon `close` is noticed
_IDLE_SECONDS = 10.0  # a connection that asks for nothing
_PAGES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"

_logger = logging.getLogger(__name__)


class ViewerError(EnvError):
    """The page cannot be served: the text is for the user."""


class PageServer:
    """Serves a scene: `/` the page, `/state.json` what can be said of it, `/images/ENV/NAME.png` what envs see.

    Args:
        scene: what is shown.
        port: to listen on; 0: any that is free.

    Raises:
        ViewerError: the port cannot be had.
    """

    def __init__(self, scene: Scene, port: int) -> None:
        class Handler(_Handler):
            shown = scene

        try:
            self._server = _Server((HOST, port), Handler)
        except OSError as err:
            why = "another program listens there" if err.errno == errno.EADDRINUSE else str(err.strerror or err)
            raise ViewerError(f"--viewer: cannot listen on port {port}: {why}") from None
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._server.server_port}/"

    def start(self) -> None:
        """Begin to answer; what was asked before has waited. Not before envs are made: they may fork."""
        with self._starting:
            if self._thread is None:
                serve = self._server.serve_forever
                self._thread = threading.Thread(target=serve, args=(_POLL_SECONDS,), name="viewer", daemon=True)
                self._thread.start()
                _logger.info("viewer: %s", self.url)

    def close(self) -> None:
        """Answer no more."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: object) -> None:
        """A browser that goes away, mostly; whatever it is, it must not disturb the run."""
        del args
        _logger.debug("viewer: a request failed", exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    shown: Scene
    server_version = "plugrl-viewer"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Answer one request."""
        try:
            name = urllib.parse.urlsplit(f"//{self.headers.get('Host', '')}").hostname
            if name not in _OWN_NAMES:  # a page of somebody else's whose name was made to lead here
                self._say(HTTPStatus.FORBIDDEN, f"only as {HOST} or localhost")
                return
            self._answer(urllib.parse.urlsplit(self.path))
        except ValueError as err:
            self._say(HTTPStatus.BAD_REQUEST, str(err))

    def _answer(self, url: urllib.parse.SplitResult) -> None:
        if url.path in _PAGES:
            name, kind = _PAGES[url.path]
            self._send(_resource(name), f"{kind}; charset=utf-8")
        elif url.path == "/state.json":
            asked = urllib.parse.parse_qs(url.query)
            first, count = (
                max(_whole(key, asked.get(key, [default])[0]), 0) for key, default in (("first", "0"), ("count", "64"))
            )
            self._send(json.dumps(self.shown.describe(first, count), allow_nan=False).encode(), "application/json")
        elif url.path.startswith("/images/") and url.path.endswith(".png"):
            env, _, name = url.path.removeprefix("/images/").removesuffix(".png").partition("/")
            file = self.shown.picture(_whole("env", env), urllib.parse.unquote(name))
            if file is None:
                self._say(HTTPStatus.NOT_FOUND, "no such image")
            else:
                self._send(file, "image/png")
        else:
            self._say(HTTPStatus.NOT_FOUND, "no such page")

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(f"{text}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """A request is no news."""


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} {text[:40]!r}: expected a whole number") from None


def _resource(name: str) -> bytes:
    return importlib.resources.files(__package__).joinpath(name).read_bytes()
