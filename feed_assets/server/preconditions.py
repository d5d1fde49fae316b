"""`If-Match`: a change of a definition or of metadata is made only if the entity still is as whoever asks has seen it.

It is looked at before the call, and again under the lock under which the change is made.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from feed_assets.cli.door import Door, Outcome, Screen, at
from feed_assets.cli.options import open_entity_context_for
from feed_assets.context.preconditions import demanding
from feed_assets.errors import FeedAssetsError, WrongUsageError
from feed_assets.operation import Operation
from feed_assets.operation_list import find_operation
from feed_assets.server.calls import call, list_parameters, read_given
from feed_assets.server.errors import RequestRefusedError

_OF_FILES = ("entity update", "apply")
_OF_NAMES = ("entity delete",)
_OF_METADATA = ("metadata put", "metadata tag", "metadata untag", "metadata remove", "metadata drop")
CONDITIONED = (*_OF_FILES, *_OF_NAMES, *_OF_METADATA)


def tag_of(content: bytes) -> str:
    """Return the ETag of an answer."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def has_tag(told: str, *tags: str) -> bool:
    """Return whether what `If-Match` or `If-None-Match` says, a list of tags or `*` for any, has one of some tags.

    >>> [has_tag(told, '"a"') for told in ('"b", "a"', "*", 'W/"a"', 'x"a"')]
    [True, True, False, False]
    """
    return told.strip() == "*" or not {each.strip() for each in told.split(",")}.isdisjoint(tags)


def call_if_match(door: Door, operation: Operation, given: Mapping[str, Any], tags: str | None) -> Outcome:
    """Call an operation if the entity that it changes has one of the tags; `*` stands for any, None for no demand."""
    if tags is None:
        return call(door, operation, given)

    def check() -> None:
        known = list_parameters(reads)
        form = "format" if "format" in known else "output"  # an answer has a tag of its own in each form
        forms = [read_given(reads, {form: each}) for each in getattr(known[form].type, "choices", ())]
        found = (call(replace(door, screen=Screen()), reads, {**asked, **each}) for each in forms)
        if not any(not each.error and has_tag(tags, tag_of(each.out.encode())) for each in found):
            reason = f"It is not as If-Match says: {reads.name} has another ETag, or no such entity."
            raise RequestRefusedError(HTTPStatus.PRECONDITION_FAILED, f"{reason} Read it again. Nothing was changed.")

    try:
        if tags.strip() != "*" and '"' not in tags:
            raise WrongUsageError("If-Match is * or ETags as they were answered, with their quotes.")
        reads, asked = _seen_of(door, operation, given)
        check()
        with demanding(check):
            return call(door, operation, given)
    except FeedAssetsError as exc:
        return Outcome("", "", 1, exc)


def _seen_of(door: Door, operation: Operation, given: Mapping[str, Any]) -> tuple[Operation, Mapping[str, Any]]:
    """Return the question whose answer has the tag, with its parameters."""
    if operation.name in _OF_METADATA and "entity" in given:
        return find_operation("metadata get"), {"entity": given["entity"], "output": "json"}
    names = given.get("names", ()) if operation.name in _OF_NAMES else ()
    if operation.name in _OF_FILES and given.get("files"):
        from feed_assets.definitions.edits import read_documents

        with at(door):
            names = [*read_documents(given["files"], open_entity_context_for(dry_run=True).store.values)]
            names = names[0] if len(names) == 1 else ()
    if not names:
        raise WrongUsageError(f"If-Match is for the change of one entity: {', '.join(CONDITIONED)}. Leave it out.")
    asked = find_operation("entity definition")
    return asked, read_given(asked, dict(zip(("name", "kind"), reversed(names), strict=False)))
