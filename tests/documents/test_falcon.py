"""docs/falcon.md: every element and attribute that is read stands in its tables, with the field that it becomes."""

from collections.abc import Iterator

import pytest

from feed_assets.entities.common import Kind
from feed_assets.loading.falcon.grammar import SCHEMAS, Element, Form
from feed_assets.loading.falcon.xml_nodes import MAX_ATTRIBUTES, MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS
from tests.documents.markdown import NONE, ROOT, plain, tables_of

DOCUMENT = "docs/falcon.md"
CONVERTED = {
    "spark-attributes/master": "workflow.master",
    "spark-attributes/mode": "workflow.deploy_mode",
    "spark-attributes/name": "workflow.submit",
    "spark-attributes/class": "workflow.main_class",
    "spark-attributes/jar": "workflow.path",
    "spark-attributes/spark-opts": "workflow.conf",
    "spark-attributes/arg": "workflow.args",
    "credential@type": NONE,
    "lifecycle/archival-stage/policy": NONE,
    "archival-stage/deleteFromSource": NONE,
    "archival-stage/queue": NONE,
    "archival-stage/location@type": NONE,
    "archival-stage/location@path": "clusters.*.retention.archive_to",
    "archival-stage/properties/property@name": NONE,
    "archival-stage/properties/property@value": NONE,
}
"""What does not go where the grammar says: it is converted afterwards."""


def _rows(kind: Kind) -> dict[str, str]:
    sections = {f"{kind.value.capitalize()} document", "Every document"}
    tables = [table for table in tables_of(DOCUMENT) if table.section in sections]
    assert {table.section for table in tables} == sections
    return {plain(row[0]): plain(row[1]) for table in tables for row in table.rows}


def _targets(element: Element, at: tuple[str, ...] = (), above: str = "") -> Iterator[tuple[str, str]]:
    """Every element and attribute, and the path of the field that it becomes."""
    path = f"{above}/{element.name}" if above else element.name
    match element.form:
        case Form.INLINE:
            here = at
        case Form.KEYED:
            here = (*at, element.to, "*")
        case _:
            here = (*at, element.to) if element.to else at
    yield path, ".".join(here)
    for attribute in element.attributes:
        is_own = attribute.name in (element.key, element.value) and element.form is not Form.MAP
        yield f"{path}@{attribute.name}", ".".join(here if is_own else (*here, attribute.key))
    for part in element.content:
        for child in part.elements:
            yield from _targets(child, here, path)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_element_and_attribute_stands_in_the_tables(kind: Kind) -> None:
    rows = _rows(kind)
    targets = dict(_targets(SCHEMAS[kind]))
    documented = {path for path in targets if _row_of(path, rows) is not None}
    around = {path for path in targets if any(other.startswith((f"{path}/", f"{path}@")) for other in documented)}
    assert targets.keys() - documented - around == set()


@pytest.mark.parametrize("kind", list(Kind))
def test_what_the_tables_say_is_where_it_goes(kind: Kind) -> None:
    rows = _rows(kind)
    for path, target in _targets(SCHEMAS[kind]):
        row = _row_of(path, rows)
        if row is not None:
            expected = CONVERTED.get(row, target)
            assert expected == rows[row] or expected.endswith(f".{rows[row]}"), path


def test_every_row_is_of_some_document() -> None:
    for kind in Kind:
        (table,) = [table for table in tables_of(DOCUMENT) if table.section == f"{kind.value.capitalize()} document"]
        found = {_row_of(path, _rows(kind)) for path, _ in _targets(SCHEMAS[kind])}
        assert {plain(row[0]) for row in table.rows} <= found


def _row_of(path: str, rows: dict[str, str]) -> str | None:
    """The row of an element or attribute: its path, or the longest end of it."""
    parts = path.split("/")
    ends = ["/".join(parts[start:]) for start in range(len(parts))]
    return next((end for end in ends if end in rows), None)


def test_the_bounds_are_those_of_the_code() -> None:
    text = (ROOT / DOCUMENT).read_text("utf-8").replace("\n", " ")
    bounds = (
        f"at most {MAX_BYTES // 1024**2} MiB, {MAX_ELEMENTS:,} elements, {MAX_DEPTH} levels and {MAX_ATTRIBUTES} attr"
    )
    assert bounds in text
