"""Golden texts: what `validate` says about each file in golden/, whole. FEED_ASSETS_REWRITE_GOLDEN=1 rewrites them."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.definitions.checks.declared_definitions import validate_location
from feed_assets.settings import Settings

GOLDEN = Path(__file__).parent / "golden"
AS_OF = datetime(2015, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("*.yaml")))
def test_each_mistake_is_named_in_one_clear_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    report = validate_location(Settings(), f"{name}.yaml", environ={})
    text = "".join(f"{issue.render()}\n" for issue in report.issues).replace(str(GOLDEN), "<folder>")
    expected = GOLDEN / f"{name}.txt"
    if os.environ.get("FEED_ASSETS_REWRITE_GOLDEN"):
        expected.write_text(text, "utf-8")
    assert text == expected.read_text("utf-8")


def test_every_file_has_its_text() -> None:
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == {file.stem for file in GOLDEN.glob("*.txt")}


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("*.txt")))
def test_no_sentence_is_in_the_words_of_pydantic(name: str) -> None:
    text = (GOLDEN / f"{name}.txt").read_text("utf-8")
    foreign = ("Input should", "Value error", "pydantic", "validation error", "dict", "str ")
    assert not any(word in text for word in foreign)
