"""Rules about what files say of entities and columns: names, values, sizes, priorities, and which columns
there are.
"""

from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches

from feed_assets.entities.common import PRIORITY_PROPERTY, Entity, JobPriority, find_priority, iter_metadata
from feed_assets.entities.content.columns import iter_columns
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.metadata import MOST_BYTES, MetadataKey, find_fault
from feed_assets.entities.process import Process
from feed_assets.issues import Severity
from feed_assets.validation.scope import Complaint, Scope


def check_names(_: Scope, entity: Entity) -> Iterator[Complaint]:
    """Names and values are those that metadata can have."""
    for entry in iter_metadata(entity):
        fault = find_fault(entry.key, entry.value)
        if fault is not None and entry.place[0] != "tags":
            yield Complaint(path=entry.place, message=fault[0], remedy=fault[1])


def check_tags(_: Scope, entity: Entity) -> Iterator[Complaint]:
    """Falcon's tags are properties, as far as metadata can have them; Dagster shows the others."""
    for entry in iter_metadata(entity):
        fault = find_fault(entry.key, entry.value)
        if fault is not None and entry.place[0] == "tags":
            message = f"its tag is no metadata, and search does not find it: {fault[0]}"
            yield Complaint(path=entry.place, message=message, remedy=fault[1], severity=Severity.WARNING)


def check_once(_: Scope, entity: Entity) -> Iterator[Complaint]:
    """A property is written once, in `tags` or in `metadata`, and a tag is listed once."""
    seen: set[tuple[str | None, MetadataKey]] = set()
    for entry in iter_metadata(entity):
        if (entry.column, entry.key) in seen:
            message = f"{entry.key.kind.value} {entry.key.name!r} is written twice"
            yield Complaint(path=entry.place, message=message, remedy="Write it once.")
        seen.add((entry.column, entry.key))


def check_columns(_: Scope, entity: Entity) -> Iterator[Complaint]:
    """Only a feed has columns, and those of its schema, if it has one."""
    described = entity.metadata.columns
    if described and not isinstance(entity, Feed):
        message = f"a {entity.kind.value} has no columns"
        yield Complaint(path=("metadata", "columns"), message=message, remedy="Write them at the feed.")
    if not described or not isinstance(entity, Feed) or entity.columns is None:
        return
    try:
        known = [column.path for column in iter_columns(entity.columns)]
    except ColumnsError:
        return
    for name in described:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            yield Complaint(
                path=("metadata", "columns", name),
                message=f"its schema has no column {name!r}",
                remedy=f"Did you mean {close[0]!r}?" if close else f"Its columns are {', '.join(known)}.",
            )


def check_size(_: Scope, entity: Entity) -> Iterator[Complaint]:
    """What is said of an entity or a column has at most 64 KiB."""
    sizes: dict[str | None, int] = defaultdict(int)
    for entry in iter_metadata(entity):
        sizes[entry.column] += len(entry.key.name.encode()) + len(entry.value.encode())
    for column, size in sizes.items():
        if size > MOST_BYTES:
            what = "it" if column is None else f"column {column!r}"
            path = ("metadata",) if column is None else ("metadata", "columns", column)
            message = f"what is said of {what} has {size:,} bytes, more than {MOST_BYTES:,}"
            yield Complaint(path=path, message=message, remedy="Remove what nobody needs.")


def check_priority(_: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """The property jobPriority must be one of Falcon's priorities; another value counts as NORMAL."""
    if find_priority(entity.properties) is None:
        written = entity.properties[PRIORITY_PROPERTY]
        yield Complaint(
            path=("properties", PRIORITY_PROPERTY),
            message=f"{PRIORITY_PROPERTY} {written!r} is not a priority; NORMAL is used",
            remedy=f"Write one of {', '.join(JobPriority)}.",
            severity=Severity.WARNING,
        )
