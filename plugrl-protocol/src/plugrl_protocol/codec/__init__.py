"""msgpack with the ndarray convention of openpi, for peers that are not trusted (SPEC 3)."""

from plugrl_protocol.codec.decoder import decode
from plugrl_protocol.codec.encoder import encode

__all__ = ["decode", "encode"]
