"""The expressions that our panels share. Names and labels are those of docs/metrics.md; `job` says whose a series is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: Grafana's own: long enough for a rate, whatever the scrape interval and the zoom.
WINDOW = "[$__rate_interval]"


def scheduler(name: str, *matchers: str, **values: str) -> str:
    """A series of the scheduler's: `values` are labels and what they equal, `matchers` other conditions."""
    return _series(name, "kerneldyno-scheduler", matchers, values)


def evaluator(name: str, *matchers: str, **values: str) -> str:
    """A series of all evaluators': `values` are labels and what they equal, `matchers` other conditions."""
    return _series(name, "kerneldyno-evaluator", matchers, values)


def gateway(name: str, *matchers: str, **values: str) -> str:
    """A series of all gateways', likewise."""
    return _series(name, "kerneldyno-gateway", matchers, values)


def rate(series: str, *by: str) -> str:
    """Growth a second, summed but for the labels `by`."""
    return f"{_sum(by)}(rate({series}{WINDOW}))"


def per_minute(series: str, *by: str) -> str:
    """Growth a minute, summed but for the labels `by`."""
    return f"60 * {rate(series, *by)}"


def over(part: str, whole: str) -> str:
    """One expression over another that has the same labels; no data where `whole` is 0, which would be NaN in a panel."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str, *by: str) -> str:
    """Growth of `part`, for each value of the labels `by`, over the growth of `whole`; no data while that does not grow."""
    matching = " on () group_left ()" if by else ""
    return f"{rate(part, *by)} /{matching} ({rate(whole)} > 0)"


def mean(histogram: str, *by: str) -> str:
    """Mean of what a histogram saw; no data while it sees nothing. `histogram` has its matchers: name{...}."""
    return over(rate(_part(histogram, "sum"), *by), rate(_part(histogram, "count"), *by))


def quantile(rank: float, histogram: str, *by: str) -> str:
    """A quantile of what a histogram of values from 0 on saw; no data (NaN is not at least 0) while it sees nothing."""
    return f"histogram_quantile({rank:g}, {rate(_part(histogram, 'bucket'), 'le', *by)}) >= 0"


def growth(histogram: str) -> str:
    """How much each bucket grew: a heat map."""
    return f"sum by (le) (increase({_part(histogram, 'bucket')}{WINDOW}))"


def time_on_a_node() -> str:
    """Mean seconds from a job's last placing to its result."""
    return mean(scheduler("kerneldyno_evaluation_seconds"))


def _series(name: str, job: str, matchers: Sequence[str], values: Mapping[str, str]) -> str:
    conditions = [f'{label}="{value}"' for label, value in {"job": job, **values}.items()]
    return name + "{" + ", ".join([*conditions, *matchers]) + "}"


def _part(histogram: str, part: str) -> str:
    name, brace, rest = histogram.partition("{")
    return f"{name}_{part}{brace}{rest}"


def _sum(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)}) " if by else "sum"
