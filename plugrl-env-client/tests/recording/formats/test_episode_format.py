"""Names of files: a run in the same folder goes on counting, and nothing is written over."""

from types import SimpleNamespace

import numpy as np
from plugrl_env_client.recording.formats.episode_format import EpisodeNames, Sink


def name(names, env, number, suffix=""):
    return names.path(SimpleNamespace(env=env, number=number), suffix).name


def test_names_say_env_and_episode(tmp_path):
    names = EpisodeNames(tmp_path / "missing")
    assert name(names, 3, 12) == "env-0003_episode-000012"
    assert name(names, 3, 12, ".npz") == "env-0003_episode-000012.npz"


def test_counting_goes_on_after_what_is_there(tmp_path):
    for there in ("env-0000_episode-000004.npz", "env-0000_episode-000002.npz", "env-0001_episode-000000.npz"):
        (tmp_path / there).touch()
    for other in ("env-x_episode-000009", "env-0000_episode-", "readme.txt"):
        (tmp_path / other).touch()
    names = EpisodeNames(tmp_path)
    assert name(names, 0, 0) == "env-0000_episode-000005"
    assert name(names, 1, 3) == "env-0001_episode-000004"
    assert name(names, 2, 0) == "env-0002_episode-000000"


def test_nothing_is_written_over(tmp_path):
    names = EpisodeNames(tmp_path)
    (tmp_path / "env-0000_episode-000000").touch()  # by another run, meanwhile
    assert name(names, 0, 0) == "env-0000_episode-000001"


def test_a_sink_need_not_do_anything():
    sink = Sink()
    sink.frame({"front": np.zeros((2, 2, 3), np.uint8)})
    sink.discard()
