"""Phase auth: a server with a key serves nobody without it (SPEC 1.2)."""

from plugrl_protocol.conformance.calling.caller import Caller
from plugrl_protocol.conformance.peer.dialing import DialError
from plugrl_protocol.conformance.report import ViolationError

_CLAUSE = "1.2 auth/api-key"


def auth(caller: Caller) -> None:
    """Try to connect without a key, with another one, with one in another scheme, and with the right one."""
    key = caller.options.api_key
    for what, authorization in (
        ("no key", None),
        ("another key", f"Api-Key {key}x"),
        ("an empty key", "Api-Key "),
        ("another scheme", f"Bearer {key}"),
    ):
        try:
            endpoint = caller.dial(what, authorization=authorization)
        except DialError as error:
            if error.status != 401:
                raise ViolationError(_CLAUSE, f"{what}: expected HTTP 401, got: {error}") from None
        else:
            endpoint.drop()
            raise ViolationError(_CLAUSE, f"{what}: expected HTTP 401, the server has upgraded")
        caller.report.passed(_CLAUSE)
    caller.call("with the key").hang_up()
