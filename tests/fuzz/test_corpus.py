import corpus
import frame_target
import pytest
from conversation_target import Options, read_script


def test_the_files_are_fresh():
    for name, data in corpus.build().items():
        assert (corpus.FOLDER / name).read_bytes() == data, f"{name}: run python fuzz/corpus.py"


@pytest.mark.parametrize("target", ["frame", "conversation"])
def test_files_and_vectors_are_loaded_and_small(target):
    inputs = corpus.load(target)
    assert len(inputs) > 20
    assert any("/" in name for name in inputs)  # a vector
    files = list((corpus.FOLDER / target).iterdir())
    assert {path.suffix for path in files} == {".bin"}
    assert {path.stem for path in files} < inputs.keys()
    assert sum(path.stat().st_size for path in files) < 50_000


def test_the_files_of_frames_hold_a_valid_one_of_each_type():
    ends = {frame_target.run(data) for name, data in corpus.build().items() if name.parent.name == "frame"}
    assert ends == {"metadata", "infer", "action", "feedback"}


def test_vectors_of_exchanges_are_heard_by_the_end_that_their_last_frame_is_for():
    options, frames = read_script(corpus.load("conversation")["exchange/one-turn"])
    assert not options & Options.CLIENT
    assert [first for first, _ in frames] == [True, True]  # our metadata, and our action, come before
