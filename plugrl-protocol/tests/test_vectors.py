"""Our codec, messages and connection agree with the vectors, which were put together by hand."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.conformance.clauses import BY_ID, CLAUSES, Check
from plugrl_protocol.connection import Connection, Role
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import message_from_wire

FOLDER = Path(__file__).parents[1] / "vectors"


def vectors(name):
    entries = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return [pytest.param(entry, id=entry["id"]) for entry in entries]


def expected(value):
    """What a vector says that it holds, as our decoder returns it."""
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "values"}:
        return np.array(value["values"], value["dtype"]).reshape(value["shape"])
    if isinstance(value, dict):
        return {key: expected(item) for key, item in value.items()}
    return value


def same(got, want):
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[key], want[key]) for key in want)
    if isinstance(want, np.ndarray):
        return (got.dtype.str, got.shape) == (want.dtype.str, want.shape) and np.array_equal(got, want)
    return got == want


def test_the_files_are_fresh():
    spec = importlib.util.spec_from_file_location("build_vectors", FOLDER / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)

    for name, content in build.files().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == content


@pytest.mark.parametrize("entry", vectors("codec"))
def test_codec(entry):
    frame = bytes.fromhex(entry["hex"])
    if entry["verdict"] == "reject":
        with pytest.raises(RemoteProtocolError) as refusal:
            decode(frame)
        assert refusal.value.clause == entry["clause"]
    else:
        value = decode(frame)
        assert same(value, expected(entry["value"])) if "value" in entry else True
        assert encode(value) == frame or entry["id"] == "codec/longer-int-than-needed"


@pytest.mark.parametrize("entry", vectors("messages"))
def test_messages(entry):
    frame = bytes.fromhex(entry["hex"])
    if entry["verdict"] == "reject":
        with pytest.raises(RemoteProtocolError) as refusal:
            message_from_wire(decode(frame))
        assert refusal.value.clause == entry["clause"]
    else:
        message = message_from_wire(decode(frame))
        assert type(message).__name__.lower() == entry["id"].partition("/")[0]


@pytest.mark.parametrize("entry", vectors("exchanges"))
def test_exchanges(entry):
    """Each frame is received by the end that it is meant for, after the other end's frames were taken as sent."""
    ends = {"client": Connection(Role.CLIENT, now=0.0), "server": Connection(Role.SERVER, now=0.0)}
    other = {"client": "server", "server": "client"}
    *before, last = entry["steps"]
    for step in before:
        frame = bytes.fromhex(step["hex"])
        ends[step["from"]].send(message_from_wire(decode(frame)), 0.0)
        ends[other[step["from"]]].receive(frame, 0.0)
    receiver, frame = ends[other[last["from"]]], bytes.fromhex(last["hex"])
    if entry["verdict"] == "reject":
        with pytest.raises(RemoteProtocolError) as refusal:
            receiver.receive(frame, 0.0)
        assert refusal.value.clause == entry["clause"]
    else:
        receiver.receive(frame, 0.0)


def test_every_vector_names_a_clause_and_every_clause_that_vectors_check_has_one():
    named = {entry.values[0]["clause"] for name in ("codec", "messages", "exchanges") for entry in vectors(name)}

    assert named <= BY_ID.keys()
    assert {clause.id for clause in CLAUSES if Check.VECTOR in clause.checks} - named == set()
