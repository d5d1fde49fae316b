"""Entities that seem to have come back under another name."""

from feed_assets.definitions.recording import find_renamed
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.feed import Feed
from tests.instances.harness import START, feed, process, validity


def names(gone: list[AnyEntity], come: list[AnyEntity]) -> list[tuple[str, str]]:
    return [(old.name, new.name) for old, new in find_renamed(gone, come)]


def at(name: str, place: str, *clusters: str) -> Feed:
    on = {each: validity(START, None) for each in clusters or ("primary",)}
    return Feed.model_validate(
        feed(name).model_dump(by_alias=True, exclude_defaults=True) | {"locations": {"data": place}, "clusters": on}
    )


PLACE, OTHER = "/a/${YEAR}-${MONTH}-${DAY}/${HOUR}", "/b/${YEAR}-${MONTH}-${DAY}/${HOUR}"


def test_a_feed_is_known_by_its_place_on_a_cluster_that_both_are_on() -> None:
    assert names([at("old", PLACE)], [at("new", PLACE), at("else", OTHER)]) == [("old", "new")]
    assert names([at("old", PLACE, "primary", "backup")], [at("new", PLACE, "backup")]) == [("old", "new")]
    assert names([at("old", PLACE)], [at("new", PLACE, "backup")]) == []
    assert names([at("old", PLACE, "primary", "backup")], [at("new", PLACE, "primary", "backup")]) == [("old", "new")]


def test_a_process_is_known_by_its_definition_and_no_other_kind_by_anything() -> None:
    old, new = process("old", parallel=3), process("new", parallel=3)
    assert names([old], [new, process("other")]) == [("old", "new")]
    assert names([old], [at("new", PLACE)]) == []
