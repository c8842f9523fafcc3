"""Evaluates the part of PromQL that the chart's alerts use, as Prometheus does, over samples that a test gives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import promql_parser as promql

# For how long the newest sample of a series counts.
LOOKBACK_SECONDS = 300.0

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "-": operator.sub,
    "*": operator.mul,
}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
_AGGREGATIONS: Mapping[str, Callable[[Iterable[float]], float]] = {"max": max, "min": min, "sum": sum}


@dataclass(frozen=True, slots=True)
class Series:
    """Samples by second. ``ended`` is when its target was found gone, so that it has no value from then on."""

    name: str
    labels: Mapping[str, str]
    samples: Mapping[float, float]
    ended: float = float("inf")

    def between(self, after: float, until: float) -> list[tuple[float, float]]:
        return [(at, value) for at, value in sorted(self.samples.items()) if after < at <= until]


def firing(expression: str, series: Iterable[Series], times: Iterable[float], seconds: float = 0.0) -> list[float]:
    """Those times at which an alert with this expression fires that must hold ``for`` seconds."""
    parsed, known, since, found = promql.parse(expression), list(series), None, []
    for at in times:
        holds = bool(_Evaluation(known, at).vector(parsed))
        since = (at if since is None else since) if holds else None
        if since is not None and at - since >= seconds:
            found.append(at)
    return found


class _Evaluation:
    def __init__(self, series: list[Series], at: float) -> None:
        self._series = series
        self._at = at

    def vector(self, expression: Any) -> Vector:
        match expression:
            case promql.ParenExpr():
                return self.vector(expression.expr)
            case promql.VectorSelector():
                return self._instant(expression)
            case promql.AggregateExpr():
                return self._aggregate(expression)
            case promql.Call():
                return self._call(expression)
            case promql.BinaryExpr():
                return self._binary(expression)
        raise NotImplementedError(f"not needed so far: {type(expression).__name__}")

    def _selected(self, selector: Any) -> list[Series]:
        wanted = {(matcher.name, matcher.value) for matcher in selector.matchers.matchers}
        assert all(matcher.op == promql.MatchOp.Equal for matcher in selector.matchers.matchers)
        return [it for it in self._series if it.name == selector.name and wanted <= set(it.labels.items())]

    def _instant(self, selector: Any) -> Vector:
        at, found = self._at - _seconds(selector.offset), {}
        for series in self._selected(selector):
            samples = series.between(at - LOOKBACK_SECONDS, at)
            if samples and at < series.ended:
                found[frozenset(series.labels.items())] = samples[-1][1]
        return found

    def _call(self, call: Any) -> Vector:
        (argument,) = call.args
        if call.func.name == "absent":
            return {} if self.vector(argument) else {frozenset(): 1.0}
        selector, found = argument.vector_selector, {}
        at = self._at - _seconds(selector.offset)
        for series in self._selected(selector):
            values = [value for _, value in series.between(at - _seconds(argument.range), at)]
            labels = frozenset(series.labels.items())
            if call.func.name == "last_over_time" and values:
                found[labels] = values[-1]
            elif call.func.name == "rate" and len(values) > 1:
                found[labels] = (values[-1] - values[0]) / _seconds(argument.range)  # without its extrapolation
        assert call.func.name in ("last_over_time", "rate"), f"not needed so far: {call.func.name}"
        return found

    def _aggregate(self, expression: Any) -> Vector:
        by = set(expression.modifier.labels) if expression.modifier is not None else set()
        groups: dict[Labels, list[float]] = {}
        for labels, value in self.vector(expression.expr).items():
            groups.setdefault(frozenset(it for it in labels if it[0] in by), []).append(value)
        return {labels: _AGGREGATIONS[str(expression.op)](values) for labels, values in groups.items()}

    def _binary(self, expression: Any) -> Vector:
        sign, left = str(expression.op), self.vector(expression.lhs)
        if isinstance(expression.rhs, promql.NumberLiteral):
            right = dict.fromkeys(left, expression.rhs.val)
        elif isinstance(expression.rhs, promql.Call) and expression.rhs.func.name == "time":
            right = dict.fromkeys(left, self._at)
        else:
            right = self.vector(expression.rhs)
        if sign == "or":
            return right | left
        both = {labels: (value, right[labels]) for labels, value in left.items() if labels in right}
        if sign in _COMPARISONS:
            return {labels: a for labels, (a, b) in both.items() if _COMPARISONS[sign](a, b)}
        return {labels: _ARITHMETIC[sign](a, b) for labels, (a, b) in both.items()}


def _seconds(duration: timedelta | None) -> float:
    return duration.total_seconds() if duration is not None else 0.0
