"""`/metrics` shows the counters of this moment."""

from plugrl_server.serving.metrics import prometheus_text


def lines(run):
    return prometheus_text(run.scheduler, run.accounting).decode().splitlines()


def test_before_the_trainer_is_built(simulate, fakes):
    text = lines(simulate(fakes.source(make=None)))
    assert "plugrl_connections 0.0" in text
    assert not [line for line in text if line.startswith("plugrl_global_step")]


def test_counters_of_a_run(simulate, fakes):
    run = simulate(fakes.algorithm(fill=2))
    client = run.client()
    run.exchange(client, (0, 1, 2))
    text = lines(run)
    assert "plugrl_connections 1.0" in text
    assert "plugrl_exchanges_total 1.0" in text
    assert "plugrl_feedback_received_rows_total 3.0" in text
    assert "plugrl_feedback_stored_rows_total 2.0" in text
    assert 'plugrl_feedback_discarded_rows_total{reason="learning"} 1.0' in text
    assert 'plugrl_feedback_discarded_rows_total{reason="stale"} 0.0' in text
    assert "plugrl_global_step 2.0" in text
    assert "plugrl_policy_version 1.0" in text
