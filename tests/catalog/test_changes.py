"""What a change says: what was there, what was added and what is gone make what is there now."""

from collections.abc import Mapping
from typing import Any

from feed_assets.catalog.store import compare, render_metadata
from feed_assets.entities.metadata import Metadata, decide_mutations
from tests.entities.test_metadata import iter_sequences

NOTHING: Mapping[str, Any] = {"properties": {}, "tags": []}


def follow(change: Mapping[str, Any]) -> dict[str, Any]:
    """The state behind a change, as somebody finds it who only reads messages."""
    found = {}
    for scope in {*change["previous"], *change["additions"]}:
        before, new, gone = (change[part].get(scope, NOTHING) for part in ("previous", "additions", "deletions"))
        kept = {name: value for name, value in before["properties"].items() if name not in gone["properties"]}
        tags = [tag for tag in before["tags"] if tag not in gone["tags"]]
        said = {"properties": {**kept, **new["properties"]}, "tags": sorted([*tags, *new["tags"]])}
        if said != NOTHING:
            found[scope] = said
    return found


def test_the_state_follows_from_the_message_about_any_change() -> None:
    before: Metadata = {}
    for mutations in iter_sequences(300):
        after = decide_mutations(before, mutations)
        change = compare(render_metadata(before), render_metadata(after))
        assert follow(change) == render_metadata(after)
        assert bool(change["additions"] or change["deletions"]) is (render_metadata(before) != render_metadata(after))
        before = after
