import multiprocessing
import threading

import pytest
import torch
from plugrl_server.algorithm.concurrent import board as board_module
from plugrl_server.algorithm.concurrent.board import UPDATES, VERSION, Board, BoardError
from toy_learner import ToyPolicy

CONTEXT = multiprocessing.get_context("spawn")


def full_of(value, size=3):
    policy = ToyPolicy(size)
    policy.weights.fill_(value)
    policy.count.fill_(value)
    return policy


def test_it_begins_with_the_weights_as_version_0():
    board, policy = Board(CONTEXT, full_of(5).state_dict()), full_of(0)
    assert board.read_into(policy) == 0
    assert (policy.weights == 5).all()
    assert policy.count == 5


def test_what_is_published_is_read_with_its_version():
    board, policy = Board(CONTEXT, full_of(0).state_dict()), full_of(0)
    for version in (1, 2, 3):
        board.publish(full_of(10 * version).state_dict())
        assert board.version == version
    assert board.read_into(policy) == 3
    assert (policy.weights == 30).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.bool])
def test_every_kind_of_tensor_is_kept(dtype):
    weights = {
        "a": torch.ones(3, 5, dtype=dtype),
        "b": torch.zeros((), dtype=dtype),
        "c": torch.ones(2, 0, dtype=dtype),
    }
    board = Board(CONTEXT, weights)
    for name, tensor in weights.items():
        assert board.weights[name].equal(tensor)
        assert board.weights[name].dtype == dtype


def test_weights_do_not_overlap():
    weights = {str(size): torch.full((size,), float(size)) for size in range(1, 40)}
    board = Board(CONTEXT, weights)
    assert all(board.weights[name].equal(tensor) for name, tensor in weights.items())


def test_reading_while_another_writes_gives_one_version_or_the_other():
    size = 200_000
    board, policy = Board(CONTEXT, full_of(0, size).state_dict()), full_of(0, size)

    def write():
        for value in range(1, 101):
            board.publish(full_of(value, size).state_dict())

    writer = threading.Thread(target=write)
    writer.start()
    versions = []
    while not versions or versions[-1] < 100:
        versions.append(board.read_into(policy))
        assert (policy.weights == versions[-1]).all()
    writer.join()
    assert versions == sorted(versions)


def test_reading_waits_for_the_writer_and_gives_up_when_it_died(monkeypatch):
    monkeypatch.setattr(board_module, "PATIENCE", 0.01)
    board, policy = Board(CONTEXT, full_of(1).state_dict()), full_of(0)
    board._lock.acquire()
    with pytest.raises(BoardError, match="the learner ended while it wrote weights"):
        board.read_into(policy)
    assert (policy.weights == 0).all()


def test_its_copy_in_another_process_lies_over_the_same_memory():
    board = Board(CONTEXT, full_of(1).state_dict())
    copy = Board.__new__(Board)
    copy.__setstate__(board.__getstate__())  # what pickle does, while a process is being started
    copy.publish(full_of(8).state_dict())
    copy.counters[UPDATES] = 17
    assert board.counters[VERSION] == 1
    assert board.counters[UPDATES] == 17
    assert (board.weights["weights"] == 8).all()
