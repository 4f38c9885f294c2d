"""The table for people."""

import json

import numpy as np
import pytest

from dietcode.dispatcher.table import dispatch_table


def test_one_variable_becomes_runs():
    table = dispatch_table(["T"], [[3], [1], [2], [7]], [1, 0, 0, 1], names=["small", "large"])
    assert table == {
        "variables": ["T"],
        "num_rows": 2,
        "truncated": False,
        "rows": [
            {"T": [1, 2], "category": 0, "name": "small"},
            {"T": [3, 7], "category": 1, "name": "large"},
        ],
    }
    assert json.loads(json.dumps(table)) == table


def test_several_variables_become_rows_in_lexicographic_order():
    table = dispatch_table(["I", "T"], [[2, 1], [1, 9], [1, 2]], [0, 1, 2])
    assert table["rows"] == [
        {"I": 1, "T": 2, "category": 2},
        {"I": 1, "T": 9, "category": 1},
        {"I": 2, "T": 1, "category": 0},
    ]
    assert json.loads(json.dumps(table)) == table


def test_a_long_table_says_that_it_is_cut():
    points = np.stack([np.arange(5000)] * 2, axis=1)
    table = dispatch_table(["I", "T"], points, np.zeros(5000, int))
    assert len(table["rows"]) == 4096 and table["truncated"] and table["num_rows"] == 5000
    runs = dispatch_table(["T"], points[:, :1], np.arange(5000) % 2, max_rows=10)
    assert len(runs["rows"]) == 10 and runs["truncated"] and runs["num_rows"] == 5000


def test_arrays_that_do_not_fit():
    with pytest.raises(ValueError, match="do not fit 2 variables"):
        dispatch_table(["I", "T"], [[1], [2]], [0, 0])
