"""Rules about notifications, imports, exports and queues of retention: nothing acts on them yet."""

import re
from collections.abc import Iterator, Mapping

from feed_assets.entities.feed import Feed, Lifecycle
from feed_assets.entities.process import Process, ProcessSla
from feed_assets.entities.triggers import OnUpdate
from feed_assets.issues import FieldPath, Severity
from feed_assets.validation.scope import Complaint, Scope

_PROPERTIES: Mapping[str, str] = {
    "userJMSNotificationEnabled": "no message is sent to a topic",
    "catalog.table": "no data are imported into a table of the catalog",
}
_ADDRESS = re.compile(r"[^@\s,]+@[^@\s,]+")  # ops@example.com


def check_effect(_: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """What is declared should have an effect."""
    for path, effect in iter_without_effect(entity):
        yield Complaint(
            path=path,
            message=f"{'.'.join(map(str, path))} has no effect yet: {effect}",
            remedy="Keep it for a later release, or remove it.",
            severity=Severity.WARNING,
        )


def check_recipients(_: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """The recipients of a notification must be addresses of electronic mail."""
    for position, text in enumerate(entity.notification.to if entity.notification else ()):
        if "${" not in text and any(not _ADDRESS.fullmatch(part.strip()) for part in text.split(",")):
            yield Complaint(
                path=("notification", "to", position),
                message=f"notification.to {text!r} is not an address of electronic mail",
                remedy="Write it like ops@example.com.",
            )


def iter_without_effect(entity: Feed | Process) -> Iterator[tuple[FieldPath, str]]:
    """Yield the path of each part that is declared and not acted on, and what does not happen."""
    for name, effect in _PROPERTIES.items():
        if name in entity.properties:
            yield ("properties", name), effect
    if entity.notification is not None:
        yield ("notification",), "no message is sent"
    if not isinstance(entity, Feed):
        yield from _iter_of_process(entity)
        return
    lifecycles: list[tuple[FieldPath, Lifecycle | None]] = [((), entity.lifecycle)]
    lifecycles += [(("clusters", name), on.lifecycle) for name, on in entity.clusters.items()]
    for path, lifecycle in lifecycles:
        if lifecycle is not None and lifecycle.retention_stage is not None and lifecycle.retention_stage.queue:
            yield (*path, "lifecycle", "retention_stage", "queue"), "the retention of a cluster's feeds is one run"
    for name, on in entity.clusters.items():
        if on.import_ is not None:
            yield ("clusters", name, "import"), "no data are imported from the datasource"
        if on.export is not None:
            yield ("clusters", name, "export"), "no data are exported to the datasource"


def _iter_of_process(process: Process) -> Iterator[tuple[FieldPath, str]]:
    if process.makes_batches:
        places: list[tuple[FieldPath, ProcessSla | None]] = [(("sla",), process.sla)]
        places += [(("clusters", name, "sla"), entry.sla) for name, entry in process.clusters.items()]
        for path, sla in places:
            if sla is not None:
                yield path, "batches are made of what has come, and none is expected at a time"
    on_update = OnUpdate.IGNORE if process.trigger is None else process.trigger.on_update
    if on_update is not OnUpdate.IGNORE and all(item.start.startswith("latest") for item in process.inputs.values()):
        yield ("trigger", "on_update"), "which instances have read what follows from no window"
