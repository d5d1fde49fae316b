import pytest
from pydantic import ValidationError

from feed_assets.entities.content.made_up import MadeUpColumn
from feed_assets.entities.workflow import Workflow


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({}, "it does not say how values are made"),
        ({"range": [1, 2], "choice": ["a"]}, "range and choice are written"),
        ({"range": [2, 1]}, "2 is above 1"),
        ({"range": [0, 2**63]}, "more than a bigint counts"),
        ({"range": [1]}, "the lowest and the highest value are expected, not a list"),
        ({"decimal": {"range": [0, 1.25], "scale": 1}}, "1.25 has more digits behind the point than scale: 1"),
        ({"decimal": {"range": [0, "x"]}}, "'x' is not a decimal number"),
        ({"decimal": {"range": [0, 10**17]}}, "has more than 18 digits"),
        ({"dates": ["2013-02-29", "2013-03-01"]}, "'2013-02-29' is no date"),
        ({"dates": ["latest(0)", "today(0,0)"]}, "it depends on what there is"),
        ({"dates": ["to day", "today(0,0)"]}, "character"),
        ({"regex": "a+"}, "regex 'a+', character 2: '+' has no end"),
        ({"choice": ["a", "a"]}, "a value is listed twice"),
        ({"choice": {"a": 0}}, "greater than or equal to 1"),
        ({"range": [1, 2], "nulls": 101}, "less than or equal to 100"),
    ],
)
def test_a_column_that_cannot_be_made_up_is_refused(column: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MadeUpColumn.model_validate(column)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("workflow", "reason"),
    [
        ({"engine": "generate", "rows": 1}, "'columns' is missing for engine generate"),
        ({"engine": "generate", "columns": {"a": {"range": [1, 2]}}}, "'rows' is missing for engine generate"),
        ({"path": "jobs:run", "seed": 0}, "'seed' has no meaning for engine python"),
        ({"path": "jobs:run", "columns": {"a": {"range": [1, 2]}}}, "'columns' has no meaning for engine python"),
    ],
)
def test_what_is_made_up_belongs_to_the_engine_generate(workflow: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Workflow.model_validate(workflow)
    assert reason in str(caught.value)
