"""Two templates meet where a path of one can stand at, or inside of, a path of the other."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.overlaps import iter_overlaps
from feed_assets.timing.templates import parse_path_template

ZONE = parse_timezone("UTC")
TIMES = [datetime(2013, 1, 1, tzinfo=UTC) + n * timedelta(hours=7) for n in range(0, 1500, 11)]
_PARTS = ["${YEAR}", "${MONTH}", "${DAY}", "2013", "01", "x", "${YEAR}${MONTH}", "201301", "${MONTH}-${DAY}", "a${DAY}"]


def overlaps(*texts: str) -> list[tuple[int, int, bool]]:
    found = iter_overlaps(texts)
    return sorted((each.outer, each.inner, each.is_same_place) for each in found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/d/${YEAR}", "/d/archive"),
        ("/d/${YEAR}", "/d/${MONTH}"),
        ("/d/${YEAR}/x", "/d/${YEAR}/y"),
        ("/d/${YEAR}/x", "/d/${YEAR}"[:-1] + "}x"),
        ("/d/${YEAR}", "/e/${YEAR}"),
        ("/d/${YEAR}", "/d/20a5"),
        ("/d/${YEAR}", "/d"),
        ("/d", "/d/${YEAR}"),
        ("/d", "/d"),
        ("s3://a/${YEAR}", "s3://b/${YEAR}"),
        ("s3://a/${YEAR}", "gs://a/${YEAR}"),
        ("s3://d/${YEAR}", "/d/${YEAR}"),
        ("/d/x${YEAR}", "/d/y${YEAR}"),
    ],
)
def test_what_differs_in_any_letter_does_not_meet(one: str, other: str) -> None:
    assert overlaps(one, other) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/d/${YEAR}", "file:///d/${YEAR}"),
        ("/d//${YEAR}/", "/d/${MONTH}${DAY}"),
        ("s3a://a/${YEAR}", "s3://a/${YEAR}"),
        ("gcs://a/${YEAR}", "gs://a/${YEAR}"),
        ("abfss://a/${YEAR}", "az://a/${YEAR}"),
        ("/d/${YEAR}-${MONTH}", "/d/${YEAR}-${DAY}"),
    ],
)
def test_places_under_several_names_are_one(one: str, other: str) -> None:
    assert overlaps(one, other) == [(0, 1, True), (1, 0, True)]


def test_a_fixed_path_can_lie_inside_and_contains_nothing() -> None:
    assert overlaps("/d/${YEAR}", "/d/2013", "/d/2013/x", "/d/2013/x/y") == [(0, 1, True), (0, 2, False), (0, 3, False)]


def test_many_feeds_side_by_side_do_not_meet() -> None:
    texts = [f"/feeds/f{n}/${{YEAR}}/${{MONTH}}" for n in range(3000)]
    assert overlaps(*texts, "/feeds/f7/${YEAR}") == [(3000, 7, False)]


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=3), min_size=2, max_size=4))
def test_paths_that_meet_are_of_templates_that_do(places: list[list[str]]) -> None:
    templates = [parse_path_template("/" + "/".join(parts)) for parts in places]
    found = {(each.outer, each.inner) for each in iter_overlaps([template.text for template in templates])}
    paths = [{template.in_zone(ZONE).render(time) + "/" for time in TIMES} for template in templates]
    for outer, template in enumerate(templates):
        for inner in range(len(templates)):
            if outer == inner or template.is_static:
                continue
            roots = paths[outer]
            starts = {"/".join(path.split("/")[: len(places[outer]) + 1]) + "/" for path in paths[inner]}
            if roots & starts:
                assert (outer, inner) in found
