"""The scenarios of --probe, against clients in a thread."""

import pytest
from plugrl_protocol.closing import Close, Reaction
from plugrl_protocol.conformance.client_scenarios.probe import basic, refusal, resync, text

ALL = frozenset({"reuse-feedback-obs", "declare-spaces"})


def first(report) -> str:
    return report.violations[0].clause


@pytest.mark.parametrize("features", [frozenset(), ALL])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_basic_and_resync_pass(play, probe_client, features, num_envs):
    for scenario in (basic, resync):
        report, reaction = play(scenario, lambda port: probe_client(port, num_envs=num_envs), features=features)
        assert report.violations == []
        assert report.notes == []
        assert reaction is Reaction.END

    assert report.has_passed("5.1 metadata/wait")
    assert report.has_passed("1.1 framing/size")
    assert report.has_passed("5.1 metadata/version")
    assert report.has_passed("7.6 reconnect/all-envs")
    assert report.has_passed("10.1 reuse/held") == (features == ALL)


def test_text_is_fatal(play):
    report, reaction = play(text)

    assert report.clean
    assert reaction is Reaction.FATAL
    assert report.has_passed("7.4 closing/silence")


def test_a_refusal_is_final(play):
    report, reaction = play(refusal, features=ALL)

    assert report.clean
    assert reaction is Reaction.FATAL
    assert report.has_passed("7.7 closing/final")


def test_an_offer_of_compression(play, probe_client):
    class Compressing(probe_client):
        def run(self):
            self.compression = True
            return super().run()

    report, _ = play(basic, Compressing)

    assert first(report) == "1.1 framing/compression"


def test_a_client_that_speaks_first(play, probe_client):
    class Early(probe_client):
        def converse(self):
            self.features = []
            self.send("infer", self.infer([0]))
            return super().converse()

    report, _ = play(basic, Early)

    assert first(report) == "5.1 metadata/wait"


@pytest.mark.parametrize(
    ("close", "clause"), [(Close(1009, "too big"), "1.1 framing/size"), (Close(1002, "?"), "3.1 codec/unknown-keys")]
)
def test_a_client_that_cannot_bear_the_metadata(play, probe_client, close, clause):
    class Choosy(probe_client):
        def exchange(self):
            return close

    report, _ = play(basic, Choosy)

    assert first(report) == clause


def test_a_client_that_leaves_before_it_is_greeted(play, probe_client):
    class Hasty(probe_client):
        def converse(self):
            return Close(1000)

    report, _ = play(basic, Hasty)

    assert first(report) == "4.2 exchange/progress"


@pytest.mark.parametrize("scenario", [basic, resync, text])
def test_a_client_that_leaves_before_it_is_stopped(play, probe_client, scenario):
    report, _ = play(scenario, lambda port: probe_client(port, steps=0 if scenario is text else 2))

    assert first(report) == "4.2 exchange/progress"
    assert "the probe runs until it is stopped" in report.violations[0].detail


def test_a_client_that_comes_back_after_a_stop(play, probe_client):
    class Faithful(probe_client):
        def run(self):
            super().run()
            return super().run()

    report, _ = play(basic, Faithful)

    assert first(report) == "7.1 closing/stop"
    assert "connected again" in report.violations[0].detail


def test_a_client_that_does_not_come_back_after_a_resync(play, probe_client):
    class Gone(probe_client):
        def converse(self):
            super().converse()
            return Close(1008, "which it takes for final")

    report, _ = play(resync, Gone, timeout=0.5)

    assert first(report) == "7.2 closing/reconnect"


def test_a_client_that_minds_a_newer_version(play, probe_client):
    class Strict(probe_client):
        def exchange(self):
            return Close(1008, "version 2?") if self.closes else super().exchange()

    report, _ = play(resync, Strict)

    assert first(report) == "5.1 metadata/version"


def test_a_client_that_keeps_the_old_connections_feedback(play, probe_client):
    class Keeping(probe_client):
        kept = None

        def send(self, kind, wire):
            self.kept = wire if kind == "feedback" else self.kept
            super().send(kind, wire)

        def exchange(self):
            if self.closes and self.kept is not None:
                super().send("feedback", self.kept)
            return super().exchange()

    report, _ = play(resync, Keeping)

    assert first(report) == "7.6 reconnect/drop-feedback"


def test_a_client_that_goes_on_after_text(play, probe_client):
    class Deaf(probe_client):
        def receive(self):
            message = super().receive()
            if isinstance(message, Close) and message.code == 1003:
                self.send("infer", self.infer([0]))
            return message

    report, _ = play(text, Deaf)

    assert first(report) == "7.4 closing/silence"


def test_a_client_that_stays_after_text(play, probe_client):
    class Stubborn(probe_client):
        def receive(self):
            message = super().receive()
            while isinstance(message, Close) and message.code == 1003:
                message = super().receive()
            return message

    report, _ = play(text, Stubborn, timeout=0.3)

    assert first(report) == "7.4 closing/text-frame"


def test_a_client_that_tries_again_after_text_or_a_refusal(play, probe_client):
    class Again(probe_client):
        def run(self):
            super().run()
            return super().run()

    report, _ = play(text, Again)
    assert first(report) == "7.4 closing/text-frame"
    report, _ = play(refusal, Again)
    assert report.violations[1].clause == "7.7 closing/final"
