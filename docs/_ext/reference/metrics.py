"""Every metric of ``/metrics``."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from dietcode_server.api.metrics import Metrics
from reference.markdown import code, prose, table


def text() -> str:
    """A table: metric with its labels, kind, what."""
    metrics = Metrics()
    found = [*vars(metrics.work).values(), *vars(metrics).values()]
    rows = [_row(one) for one in found if isinstance(one, MetricWrapperBase)]
    return table(("metric", "kind", "meaning"), sorted(rows))


def _row(metric: MetricWrapperBase) -> tuple[str, str, str]:
    (family,) = metric.describe()
    name = family.name + ("_total" if family.type == "counter" else "")
    labels = ",".join(metric._labelnames)  # it has no public name
    return code(name + (f"{{{labels}}}" if labels else "")), family.type, prose(family.documentation)
