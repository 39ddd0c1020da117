"""What the server checker is asked to do."""

from dataclasses import dataclass

from plugrl_protocol.spaces import ActionSpace

LEAST_EXCHANGES = 3  # until the sets of envs repeat themselves


@dataclass(frozen=True)
class ServerOptions:
    """How to grade a server.

    Attributes:
        host: Where the server listens.
        port: Where the server listens.
        state_key: Name of the state to send.
        state_dim: Its width.
        image_key: Name of the image to send; None: no images.
        image_size: Its height and width.
        exchanges: Exchanges of the first phase.
        timeout: Seconds to wait for whatever is due from the server.
        until_stop: Whether to go on until the server ends its run.
        max_exchanges: Exchanges after which it should have.
        api_key: The server's key; None: it has none.
        space: The action space to declare; None: a box of the action_dim in the metadata.
        command: The server's command line; None: it runs already.

    Raises:
        ValueError: There are too few exchanges for all ragged sets, or no port.
    """

    host: str
    port: int
    state_key: str
    state_dim: int
    image_key: str | None
    image_size: int
    exchanges: int
    timeout: float
    until_stop: bool
    max_exchanges: int
    api_key: str | None
    space: ActionSpace | None
    command: str | None

    def __post_init__(self) -> None:
        if self.exchanges < LEAST_EXCHANGES:
            raise ValueError(f"--exchanges {self.exchanges}: expected {LEAST_EXCHANGES} or more")
        if not 1 <= self.port <= 65_535:
            raise ValueError(f"--port {self.port}: expected 1 to 65535, where the server listens")
