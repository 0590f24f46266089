"""The generator of covering arrays covers."""

import pytest
from support.pairwise import covering, pairs, rows

PARAMETERS = {
    "free": ({"a": range(3), "b": range(4), "c": range(5), "d": "xy"}, lambda **row: True),
    "constrained": (
        {"a": range(4), "b": range(4), "c": range(6), "d": (False, True)},
        lambda a, b, c, d: (a != b or c == 0) and not (d and c > 3),
    ),
    "one row": ({"a": [1], "b": [2]}, lambda **row: True),
    "nothing": ({"a": [1, 2], "b": [2]}, lambda **row: False),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_covers_all_pairs(name):
    parameters, allowed = PARAMETERS[name]
    full, few = rows(parameters, allowed), covering(parameters, allowed)
    assert all(row in full for row in few)
    assert {p for row in few for p in pairs(row)} == {p for row in full for p in pairs(row)}
    assert few == covering(parameters, allowed)


def test_is_small():
    """At most 1.5 times the minimum, the product of the two largest domains."""
    parameters = {"a": range(10), "b": range(11), "c": range(6), "d": range(5), "e": range(2), "f": range(2)}
    assert 110 <= len(covering(parameters, lambda **row: True)) <= 165
