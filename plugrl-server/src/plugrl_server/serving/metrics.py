"""`/metrics`: the run's counters as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from plugrl_server.serving.scheduler import Scheduler
from plugrl_server.training.accounting import Accounting, Discard


def prometheus_text(scheduler: Scheduler, accounting: Accounting) -> bytes:
    """Return the counters of this moment."""
    registry = CollectorRegistry()
    registry.register(_Run(scheduler, accounting))
    return generate_latest(registry)


class _Run:
    """Reads the counters when it is asked."""

    def __init__(self, scheduler: Scheduler, accounting: Accounting) -> None:
        self._scheduler = scheduler
        self._accounting = accounting

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        trainer, rows = self._scheduler.trainer, self._accounting.total
        yield GaugeMetricFamily("plugrl_connections", "Connected clients.", len(self._scheduler.sessions))
        yield CounterMetricFamily("plugrl_exchanges", "Requests answered.", self._scheduler.exchanges)
        yield CounterMetricFamily("plugrl_feedback_received_rows", "Feedback rows received.", rows.received)
        yield CounterMetricFamily("plugrl_feedback_stored_rows", "Feedback rows stored.", rows.stored)
        discarded = CounterMetricFamily("plugrl_feedback_discarded_rows", "Feedback rows discarded.", labels=["reason"])
        for reason in Discard:
            discarded.add_metric([reason], rows.discarded[reason])
        yield discarded
        if trainer is not None:
            yield GaugeMetricFamily("plugrl_global_step", "Decisions counted.", trainer.global_step)
            yield GaugeMetricFamily("plugrl_policy_version", "Learn steps of this process.", trainer.version)
