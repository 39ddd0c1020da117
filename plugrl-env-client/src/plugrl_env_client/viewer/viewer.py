"""`--viewer`: the page of one process."""

from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.viewer.page_server import PageServer
from plugrl_env_client.viewer.scene import Scene


class Viewer:
    """What there is to see, and the server that shows it.

    Args:
        title: what is being run.
        port: to listen on; 0: any that is free.

    Raises:
        ViewerError: the port cannot be had.
    """

    def __init__(self, title: str, port: int) -> None:
        self._scene = Scene(title)
        self._server = PageServer(self._scene, port)

    @property
    def url(self) -> str:
        """Where the page is."""
        return self._server.url

    def observer(self) -> RolloutObserver:
        """The observer of one more group, whose envs are made: from here on the page is there."""
        self._server.start()
        return self._scene.observer()

    def close(self) -> None:
        """Serve no more."""
        self._server.close()
