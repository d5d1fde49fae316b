"""docs/dagster.md: keys, names and limits are those of the code."""

import re

import pytest

from feed_assets.orchestration import names
from feed_assets.orchestration.runs import instance_runs
from feed_assets.orchestration.runs.feed_checks import COLUMNS_CHECK
from tests.documents.markdown import ROOT

PAGE = (ROOT / "docs" / "dagster.md").read_text()


def test_keys_of_metadata_and_tags_exist() -> None:
    known = {value for name, value in vars(names).items() if name.startswith(("META_", "TAG_"))}
    assert set(re.findall(r"`(feed_assets/\w+)`", PAGE)) <= known


@pytest.mark.parametrize(
    "text",
    [
        f"`{COLUMNS_CHECK}`",
        f"first {instance_runs.ROWS} rows",
        f"at most {instance_runs.COLUMNS} columns, and at most {instance_runs.CELL} characters",
        "From the eleventh instance",
    ],
)
def test_limits_are_those_of_the_code(text: str) -> None:
    assert text in " ".join(PAGE.split())
    assert instance_runs.DETAILED == 10
