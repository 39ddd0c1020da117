"""`metadata`: what a server says about itself (SPEC 5.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plugrl_protocol.codec.fields import mismatch, read_count, read_key, read_map
from plugrl_protocol.errors import blame_peer

_CLAUSE = "5.1 metadata/data"


@dataclass(frozen=True, slots=True, eq=False)
class Metadata:
    """The server's first message.

    Attributes:
        data: Any map; no key is required, unknown keys mean nothing, an absent key means "unknown".

    Raises:
        LocalProtocolError: `data` is not a map, or a key that the properties read has another type.
    """

    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        read_map(self.data, "metadata.data", _CLAUSE)
        features = self.data.get("features", [])
        if not isinstance(features, (list, tuple)) or not all(isinstance(name, str) for name in features):
            raise mismatch(_CLAUSE, "metadata.data.features", "list of str", features)
        for key in ("action_horizon", "protocol_version"):
            if key in self.data:
                read_count(self.data[key], f"metadata.data.{key}", _CLAUSE)

    @property
    def features(self) -> frozenset[str]:
        """The features the server offers (SPEC 10)."""
        return frozenset(self.data.get("features", ()))

    @property
    def action_horizon(self) -> int | None:
        """Steps in a chunk; None: unknown."""
        return self._count("action_horizon")

    @property
    def protocol_version(self) -> int | None:
        """The version the server speaks; None: unknown."""
        return self._count("protocol_version")

    def _count(self, key: str) -> int | None:
        return int(self.data[key]) if key in self.data else None

    def to_wire(self) -> dict[str, Any]:
        """The message as it travels."""
        return {"message_type": "metadata", "data": dict(self.data)}

    @classmethod
    @blame_peer
    def from_wire(cls, value: Mapping[str, Any]) -> "Metadata":
        """Read the envelope a peer sent.

        Raises:
            RemoteProtocolError: It is no metadata.
        """
        return cls(read_key(value, "data", "metadata", _CLAUSE))
