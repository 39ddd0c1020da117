import dataclasses
import math

import pytest
from plugrl_server.run_config import RunConfig, TrackConfig, UsageError, redacted


def test_the_defaults_are_sound(monkeypatch):
    monkeypatch.delenv("PLUGRL_API_KEY", raising=False)
    config = RunConfig().checked()
    assert (config.host, config.port, config.api_key) == ("127.0.0.1", 8000, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": " "}, "--host: expected an address"),
        ({"port": -1}, "--port: expected 0 to 65535, got -1"),
        ({"port": 65_536}, "--port: expected 0 to 65535"),
        ({"exp_name": ""}, "--exp-name: expected a name, got an empty text"),
        ({"exp_name": "a/b"}, "--exp-name: expected a plain folder name without / or"),
        ({"prefix": ".."}, "--prefix: expected a plain folder name"),
        ({"suffix": "a\\b"}, "--suffix: expected a plain folder name"),
        ({"overwrite": True, "resume": True, "exp_name": "x"}, "--overwrite and --resume exclude each other"),
        ({"seed": -1}, "--seed: expected 0 to 4294967295, got -1"),
        ({"keep_checkpoints": 0}, "--keep-checkpoints: expected at least 1, got 0"),
        ({"mini_infer_batch_size": 0}, "--mini-infer-batch-size: expected at least 1"),
        ({"torch_threads": -2}, "--torch-threads: expected at least 1"),
        ({"learners": 0}, "--learners: expected at least 1, got 0"),
        ({"deterministic": 0}, "--deterministic: expected at least 1"),
        ({"infer_wait_ms": -1.0}, "--infer-wait-ms: expected a finite number, 0 or more, got -1.0"),
        ({"spin_us": math.inf}, "--spin-us: expected a finite number"),
        ({"feedback_wait_timeout": math.nan}, "--feedback-wait-timeout: expected a finite number above 0, got nan"),
        ({"feedback_wait_timeout": 0.0}, "--feedback-wait-timeout: expected a finite number above 0"),
        ({"max_frame_mib": -1.0}, "--max-frame-mib: expected a finite number above 0"),
        ({"metadata": ("a",)}, "--metadata: expected KEY=VALUE, got 'a'"),
        ({"metadata": ("=a",)}, "--metadata: expected KEY=VALUE, got '=a'"),
        ({"client": (" ",)}, "--client: expected a command, got an empty text"),
        ({"api_key": ""}, "--api-key: expected a key"),
        ({"api_key": "schlüssel"}, "--api-key: expected printable ASCII"),
        ({"track": TrackConfig(project="")}, "--track.project: expected a name"),
    ],
)
def test_a_value_out_of_range_names_its_flag_and_what_was_expected(changes, words):
    """Lessons 6 and 28."""
    with pytest.raises(UsageError) as caught:
        RunConfig(**changes).checked()
    assert str(caught.value).startswith(words)


def test_the_key_comes_from_the_environment_unless_a_flag_gives_it(monkeypatch):
    monkeypatch.setenv("PLUGRL_API_KEY", "from-env")
    assert RunConfig().checked().api_key == "from-env"
    assert RunConfig(api_key="flag").checked().api_key == "flag"
    monkeypatch.setenv("PLUGRL_API_KEY", "")
    assert RunConfig().checked().api_key is None


def test_metadata_is_split_at_the_first_equals_sign():
    assert RunConfig(metadata=("a=1=2", "b=", "a=3")).metadata_items == {"a": "3", "b": ""}


def test_what_is_written_down_never_holds_the_key():
    config = RunConfig(api_key="s3cret", import_=("m",), client=("c --api-key s3cret",))
    public = config.public()
    assert public["api_key"] == "***"
    assert public["import"] == ["m"]
    assert public["checkpoint_base_dir"] == "checkpoints"
    assert "s3cret" not in str(public)
    assert set(public) == {field.name.rstrip("_") for field in dataclasses.fields(RunConfig)}
    assert redacted(["--api-key=s3cret", "x"], "s3cret") == ["--api-key=***", "x"]
    assert redacted(["x"], None) == ["x"]


def test_a_resumed_run_keeps_how_it_serves_and_is_told_anew_where_and_with_whom():
    config = RunConfig(port=1, host="::", learners=2, client=("c --key s3cret",), import_=("m",), api_key="s3cret")
    again = {"import": ["m"], "client": ["c --key ***"], "host": ["::"], "port": ["1"], "learners": ["2"]}
    assert config.said_anew() == again
    assert not any(RunConfig().said_anew().values())
    assert set(config.kept()) | set(again) | {"exp_name", "prefix", "suffix", "checkpoint_base_dir"} == set(
        config.public()
    ) - {"seed", "api_key", "overwrite", "resume"}
