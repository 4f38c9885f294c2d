"""A model's graph on its pages: steps in order, and equal runs of them put together."""

from __future__ import annotations

from typing import Any

from dietcode_server.dashboard.graphs import GraphStep, RunOfSteps, graph_steps, runs_of


def _kernel(part: str) -> dict[str, Any]:
    return {"kernel": part, "arguments": {}, "results": []}


def _host(word: str, *, view: bool = False) -> dict[str, Any]:
    return {"host": word, "operands": [], "results": [], **({"view": True} if view else {})}


LAYER = [_kernel("qkv"), _kernel("attention"), _host("add"), _host("add"), _kernel("ffn")]


def test_layers_that_repeat_are_one_run() -> None:
    steps = list(graph_steps([_host("take"), _host("take"), _kernel("norm"), *LAYER * 12, _kernel("head")]))
    runs = runs_of(steps)
    assert [(run.count, len(run.shown)) for run in runs] == [(1, 2), (12, 4), (1, 1)]
    assert runs[0].shown[0] == GraphStep("", "2 take")
    assert [step.part or step.words for step in runs[1].shown] == ["qkv", "attention", "2 add", "ffn"]
    assert sum(run.count * len(run.shown) for run in runs) == len(steps)


def test_a_graph_without_repetition_is_one_run() -> None:
    steps = [GraphStep(name, "") for name in "abcabd"]
    assert runs_of(steps) == [RunOfSteps(1, tuple(steps))]
    assert runs_of([]) == []


def test_views_cost_nothing_and_are_left_out() -> None:
    assert list(graph_steps([_host("reshape", view=True), _kernel("a"), _host("slice", view=True)])) == [
        GraphStep("a", "")
    ]


def test_branches_and_loops_say_where_their_steps_are() -> None:
    loop = {"condition": {"steps": [_host("less")], "value": "v"}, "body": [_kernel("cell"), _host("add")]}
    steps = [{"branch": "p", "then": [_kernel("a")], "else": [_kernel("b")]}, {"loop": loop}]
    assert list(graph_steps(steps)) == [
        GraphStep("a", "branch, then"),
        GraphStep("b", "branch, else"),
        GraphStep("", "loop, condition: less"),
        GraphStep("cell", "loop"),
        GraphStep("", "loop: add"),
    ]
