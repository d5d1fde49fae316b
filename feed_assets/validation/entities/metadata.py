"""Rules about what files say of entities and columns: names, values, sizes, priorities, and which columns there are;
about notifications, and what is declared without effect: imports, exports, queues.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from feed_assets.entities.common import PRIORITY_PROPERTY, Entity, JobPriority, find_priority, iter_metadata
from feed_assets.entities.content.columns import iter_columns
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.metadata import MOST_BYTES, MetadataKey, find_fault
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import OnUpdate
from feed_assets.errors import find_similar
from feed_assets.issues import FieldPath, Severity
from feed_assets.receivers import NAME, Channel, find_chat_fault, split_addresses
from feed_assets.receivers import find_fault as find_address_fault
from feed_assets.validation.scope import Complaint, Scope


def check_names(_: Scope, entity: Entity) -> Iterator[Complaint]:
    """Names and values are those that metadata can have."""
    for entry in iter_metadata(entity):
        fault = find_fault(entry.key, entry.value)
        if fault is not None and entry.place[0] != "tags":
            yield Complaint(path=entry.place, message=fault[0], remedy=fault[1])


def check_acl(scope: Scope, entity: Entity) -> Iterator[Complaint]:
    """A group has not the name of the owner of another entity: Dagster knows both as teams."""
    group = entity.acl.group if entity.acl else None
    found = [] if group is None else [each for each in scope.owned.get(group, ()) if each != entity.label]
    if found:
        message, remedy = f"acl.group {group!r} is the owner of {found[0]}", "Give the group another name."
        yield Complaint(path=("acl", "group"), message=message, remedy=remedy)


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
    if not described or not isinstance(entity, Feed) or entity.ddl is None:
        return
    try:
        known = [column.path for column in iter_columns(entity.ddl)]
    except ColumnsError:
        return
    for name in described:
        if name not in known:
            close = find_similar(name, known, n=1)
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


_REMEDIES: Mapping[Channel, str] = {
    Channel.EMAIL: "Write it like ops@example.com.",
    Channel.WEBHOOK: "Write it like https://example.com/hook.",
    Channel.CHAT: "Write a URL of apprise: https://github.com/caronc/apprise/wiki lists them.",
}


def check_effect(scope: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """What is declared should have an effect."""
    found = [] if isinstance(entity, Feed) else _iter_update_without_effect(scope, entity)
    for path, effect in (*iter_without_effect(entity), *found):
        yield Complaint(
            path=path,
            message=f"{'.'.join(map(str, path))} has no effect yet: {effect}",
            remedy="Keep it for a later release, or remove it.",
            severity=Severity.WARNING,
        )


def check_recipients(scope: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """The recipients of a notification must be addresses, URLs, or receivers that the settings declare."""
    found = entity.notification
    if found is None:
        return
    for position, text in enumerate(found.to):
        for part in split_addresses(text) if found.type is Channel.EMAIL else (text,):
            refusal = None if "${" in part else _refuse_recipient(scope, found.type, part)
            if refusal is not None:
                reason, remedy = refusal
                message = f"notification.to {text!r}: {reason}"
                yield Complaint(path=("notification", "to", position), message=message, remedy=remedy)


def _refuse_recipient(scope: Scope, channel: Channel, text: str) -> tuple[str, str] | None:
    """Return what is wrong with a recipient, and a remedy; None if nothing is, or if the settings are not known."""
    is_name = channel is not Channel.EMAIL and NAME.fullmatch(text) is not None
    if is_name:
        if scope.listeners is None or text in scope.listeners:
            return None
        similar = find_similar(text, scope.listeners)
        remedy = f"Write {similar[0]!r}, or declare it." if similar else "Declare it there, or write a URL."
        return "the settings declare no receiver of this name in notify", remedy
    fault = find_address_fault(channel, text) or find_chat_fault(channel, text)
    return None if fault is None else (fault, _REMEDIES[channel])


def iter_without_effect(entity: Feed | Process) -> Iterator[tuple[FieldPath, str]]:
    """Yield the path of each part that is declared and not acted on, and what does not happen."""
    if not isinstance(entity, Feed):
        for path, _ in entity.slas() if entity.makes_batches else ():
            yield path, "batches are made of what has come, and none is expected at a time"
        return
    for path, part in entity.parts():
        stage = part.lifecycle.retention_stage if part.lifecycle is not None else None
        if stage is not None and stage.queue:
            yield (*path, "lifecycle", "retention_stage", "queue"), "the retention of a cluster's feeds is one run"


def _iter_update_without_effect(scope: Scope, process: Process) -> Iterator[tuple[FieldPath, str]]:
    """Yield `on_update` if all that is read is `latest` of other than current feeds, whose newest reader runs again."""
    on_update = OnUpdate.IGNORE if process.trigger is None else process.trigger.on_update
    found = [(item, scope.bundle.find_feed(item.feed)) for item in process.inputs.values()]
    if on_update is not OnUpdate.IGNORE and all(
        item.start.startswith("latest") and not (feed is not None and feed.is_current) for item, feed in found
    ):
        yield ("trigger", "on_update"), "which instances have read what follows from no window"
