import multiprocessing
import threading

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.concurrent import channel


@pytest.fixture
def ends():
    reader, writer = multiprocessing.Pipe(duplex=False)
    yield reader, writer
    reader.close()
    writer.close()


def exchange(ends, message):
    """Send from another thread: a message may be larger than the pipe."""
    sizes = []
    thread = threading.Thread(target=lambda: sizes.append(channel.send(ends[1], message)))
    thread.start()
    received, size = channel.receive(ends[0])
    thread.join()
    assert sizes == [size]
    return received, size


@pytest.mark.parametrize("message", [None, ("update", 3), {"a": [1.5, "text"], "b": (True, b"bytes")}])
def test_values_arrive_as_they_were(ends, message):
    assert exchange(ends, message)[0] == message


@pytest.mark.parametrize("rows", [0, 3, channel.LARGE // 8, channel.LARGE])
def test_arrays_arrive_as_they_were_and_can_be_written_to(ends, rows):
    sent = {
        "f8": np.arange(2.0 * rows).reshape(rows, 2),
        "u1": np.full(rows, 7, np.uint8),
        "tensor": torch.arange(rows),
    }
    received, size = exchange(ends, sent)
    for name in ("f8", "u1"):
        np.testing.assert_array_equal(received[name], sent[name])
        assert received[name].dtype == sent[name].dtype
    assert received["tensor"].equal(sent["tensor"])
    received["f8"][:] = 1
    assert size >= sent["f8"].nbytes


def test_a_large_array_is_not_copied_into_the_pickle(ends, monkeypatch):
    pickled = []
    dumps = channel.pickle.dumps
    monkeypatch.setattr(channel.pickle, "dumps", lambda *a, **k: pickled.append(dumps(*a, **k)) or pickled[-1])
    large, small = np.zeros(channel.LARGE, np.uint8), np.zeros(channel.LARGE - 1, np.uint8)
    exchange(ends, [large, small])
    assert len(small) < len(pickled[0]) < len(small) + 1000


def test_parts_of_arrays_are_sent_as_what_they_show(ends):
    matrix = np.arange(4.0 * channel.LARGE).reshape(-1, 4)
    received, _ = exchange(ends, [matrix[:, 1], matrix[::2], matrix.T])
    for mine, theirs in zip([matrix[:, 1], matrix[::2], matrix.T], received, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_end_of_the_other_side_is_an_error(ends):
    ends[1].close()
    with pytest.raises(EOFError):
        channel.receive(ends[0])
