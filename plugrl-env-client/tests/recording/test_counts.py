"""What the summary says of a recording."""

from plugrl_env_client.recording.counts import RecordingCounts, all_recorded

COUNTS = RecordingCounts("there", episodes=2, frames=1500, size=3_400_000)


def test_in_words_and_in_json():
    assert str(COUNTS) == "2 episodes (1,500 frames, 3.4 MB) in there"
    assert str(RecordingCounts("x", dropped_episodes=3, failure="full")) == (
        "0 episodes (0 frames, 0.0 MB) in x, 3 dropped; ended early: full"
    )
    assert COUNTS.as_json() == {
        "folder": "there",
        "episodes": 2,
        "frames": 1500,
        "bytes": 3_400_000,
        "dropped_episodes": 0,
        "dropped_frames": 0,
        "failure": None,
    }


def test_several_processes_together():
    other = RecordingCounts("there", 1, 10, 100, 4, 40, "full")
    assert all_recorded([None, COUNTS, other]) == RecordingCounts("there", 3, 1510, 3_400_100, 4, 40, "full")
    assert all_recorded([None]) is None
