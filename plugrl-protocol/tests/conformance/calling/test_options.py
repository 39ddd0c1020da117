"""Options of the server checker that cannot be."""

import pytest


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"exchanges": 2}, "--exchanges 2: expected 3 or more"),
        ({"port": 0}, "--port 0: expected 1 to 65535, where the server listens"),
        ({"port": 65_536}, "--port 65536: expected 1 to 65535"),
    ],
)
def test_what_cannot_be_is_named(server_options, changes, told):
    with pytest.raises(ValueError, match="--") as raised:
        server_options(**changes)
    assert told in str(raised.value)
