import pytest
from pydantic import ValidationError

from feed_assets.entities.content.quality import Quality

RULES = {"warm": "temp > 0"}


@pytest.mark.parametrize(
    ("demand", "rows", "good", "has_passed"),
    [
        ({"threshold": 99.9}, 1000, 999, True),
        ({"threshold": 99.9}, 1000, 998, False),
        ({"threshold": 33.3}, 3, 1, True),
        ({}, 1_000_000, 999_999, False),
        ({}, 0, 0, True),
        ({"min_rows": 1}, 0, 0, False),
        ({"min_rows": 10, "threshold": 50}, 12, 9, False),
        ({"min_rows": 10, "threshold": 50}, 12, 10, True),
        ({"threshold": 0}, 5, 0, True),
    ],
)
def test_a_share_is_compared_exactly(demand: dict[str, object], rows: int, good: int, has_passed: bool) -> None:
    quality = Quality.model_validate({"rules": RULES, **demand})
    assert quality.has_passed(rows=rows, good=good) is has_passed


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ({"threshold": 90}, "it demands nothing"),
        ({"compare": {"rows": {"at_least": 5, "at_most": 2}}}, "at_least 5 is more than at_most 2, so it never holds"),
        ({"rules": {"unique": "temp > 0"}}, "a rule is called 'unique'"),
        ({"rules": {"no name": "temp > 0"}}, "no name"),
        ({"rules": RULES, "threshold": 101}, "less than or equal to 100"),
        ({"rules": RULES, "on_fail": "stop"}, "'block' or 'warn'"),
    ],
)
def test_what_demands_nothing_or_cannot_be_counted_is_refused(demand: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Quality.model_validate(demand)
