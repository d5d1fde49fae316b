"""docs/made-up-data.md against the code: ways, types, patterns and numbers."""

import re

import pytest

from feed_assets.engines import generate_engine
from feed_assets.entities.content.made_up import MadeUpColumn, Making
from feed_assets.entities.content.patterns import parse_pattern
from feed_assets.entities.errors import PatternError
from feed_assets.validation.processes.process import _MADE, _NUMBERS
from feed_assets.validation.rules import RULES
from tests.documents.markdown import ROOT, codes, plain, tables_of

DOCUMENT = "docs/made-up-data.md"
PAGE = " ".join((ROOT / DOCUMENT).read_text("utf-8").split())


def test_every_way_and_the_types_of_each_are_named() -> None:
    (table,) = tables_of(DOCUMENT)
    said = {plain(row[0]): row[2].replace("numbers", ", ".join(_NUMBERS)).split(", ") for row in table.rows}
    others = {"dec", "numeric", "timestamp_ltz"}  # other names of the same types
    assert {way: set(types) - others for way, types in said.items()} == {
        way.value: set(made.types) - others for way, made in _MADE.items()
    }
    assert set(said) == set(Making)
    assert "nulls" in MadeUpColumn.model_fields


def test_patterns_that_are_named_are_known_and_others_are_refused() -> None:
    section = PAGE.partition("## Patterns")[2].partition("## The same bytes")[0]
    known, _, refused = section.partition("Anything else is refused")
    for text in codes(known.replace("`regex`", "").replace("`_`", "")):
        parse_pattern(text)
    for text in codes(refused):
        with pytest.raises(PatternError, match=re.escape(repr(text)[1:-1])):
            parse_pattern(text)


def test_the_numbers_and_codes_are_those_of_the_code() -> None:
    assert f"A file has at most {generate_engine._ROWS_OF_A_FILE:,} rows" in PAGE
    assert {"made-up-columns"} <= {rule.code for rule in RULES}
