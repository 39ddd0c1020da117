import json
import socket
import struct

import floors
import pytest


def test_script_measures_both_floors_for_every_shape(tmp_path, capsys):
    assert floors.main(["--quick", "--json", str(tmp_path / "floors.json")]) == 0
    content = json.loads((tmp_path / "floors.json").read_text())
    assert content["shapes"].keys() == {"n1", "n8", "n64", "image"}
    assert all(found["codec"]["p50_us"] > 0 and found["bytes"]["p50_us"] > 0 for found in content["shapes"].values())
    assert capsys.readouterr().out.count("mean") == 8


@pytest.mark.parametrize("sizes", [(3, 0, 5), (100_000, 1, 70_000), (65_532, 65_532, 4)])
def test_frames_survive_any_split(sizes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sent = [bytes([i]) * size for i, size in enumerate(sizes)]
        ours.sendall(b"".join(struct.pack("!I", len(body)) + body for body in sent))
        ours.shutdown(socket.SHUT_WR)
        reader = floors.Reader(theirs)
        received = [bytes(reader.take(*struct.unpack("!I", reader.take(4)))) for _ in sent]
        assert received == sent
        with pytest.raises(ConnectionError):
            reader.take(1)
