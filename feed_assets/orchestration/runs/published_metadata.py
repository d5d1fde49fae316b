"""Tell what was published: the metadata of a materialization. Its numbers have the same keys in each, so Dagster plots
them over time. What people look for comes first.
"""

from collections.abc import Mapping
from datetime import datetime

import dagster as dg

from feed_assets.alerts.deadlines.due_times import describe_late
from feed_assets.engines.port import InputEvent
from feed_assets.engines.run_metadata import FactValue
from feed_assets.entities.common import Kind
from feed_assets.instances.attempts.attempts import Published
from feed_assets.masking import mask, mask_values
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.metadata import COLUMN_SCHEMA, column_schema
from feed_assets.orchestration.runs.feed_checks import quality_metadata
from feed_assets.page_addresses import instance_url
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.database import Database
from feed_assets.timing.dates import render_datetime

SHOWN_EVENTS = 100
_EVENT_COLUMNS = {
    "input": "string",
    "event": "int",
    "feed": "string",
    "instance": "string",
    "content": "string",
    "marking": "string",
}


def published_metadata(
    done: Published, preview: dg.TableMetadataValue | None = None
) -> dict[str, dg.MetadataValue | dg.TableSchema | str | int | float]:
    """Return the metadata of a published instance for its partition's page."""
    metadata: dict[str, dg.MetadataValue | dg.TableSchema | str | int | float] = {
        "dagster/uri": dg.MetadataValue.url(mask(done.url)),
        names.META_NOMINAL: render_datetime(done.nominal_time),
    }
    if done.rows is not None:
        metadata[names.META_ROWS] = done.rows
    metadata[names.META_BYTES] = done.content.bytes
    metadata[names.META_FILES] = done.content.files
    metadata[names.META_SECONDS] = round(done.seconds, 3)
    metadata[names.META_ATTEMPT] = done.attempt
    if done.verdict is not None:
        metadata |= quality_metadata(done.verdict.facts)
    if done.late:
        metadata[names.META_LATE_DATA] = f"repeated for late data of {', '.join(done.late)}"
    if done.missing:
        missing = {name: [render_datetime(time) for time in times] for name, times in done.missing.items()}
        metadata[names.META_MISSING] = dg.MetadataValue.json(missing)
    if preview is not None:
        metadata[names.META_PREVIEW] = preview
    if done.events:
        metadata[names.META_EVENT_COUNT] = sum(map(len, done.events.values()))
        metadata[names.META_EVENTS] = build_events(done.events)
    metadata |= message_metadata(done.message.payload, done.message.marking)
    metadata[names.META_INPUTS] = dg.MetadataValue.json(dict(done.inputs))
    metadata |= work_metadata(done.details, done.facts)
    if done.rows is not None:
        metadata[names.ROW_COUNT] = dg.MetadataValue.int(done.rows)
    if done.columns is not None:
        made_of = done.column_set.columns if done.column_set is not None else {}
        metadata[COLUMN_SCHEMA] = column_schema(done.columns, done.record.columns, made_of=made_of)
    return metadata


def work_metadata(
    details: Mapping[str, str | int | float], facts: Mapping[str, FactValue]
) -> dict[str, str | int | float]:
    """Return the details and facts of a work."""
    found = {names.META_FACT + name: value for name, value in mask_values(facts).items()}
    return found | {names.META_DETAIL + name: value for name, value in mask_values(details).items()}


def late_metadata(database: Database, record: FeedRecord, nominal_time: datetime, at: datetime) -> dict[str, str]:
    """Return by how much an instance that has come at a time is late, if it is."""
    if record.sla is None:
        return {}
    with database.read() as connection:
        late = describe_late(connection, record, nominal_time, at)
    return {names.META_SLA: late} if late is not None else {}


def page_metadata(server_url: str | None, kind: Kind, name: str, nominal_time: datetime) -> dict[str, dg.MetadataValue]:
    """Return the link to the page of an instance, if it is known where the server is."""
    if server_url is None:
        return {}
    return {names.META_PAGE: dg.MetadataValue.url(instance_url(server_url, kind, name, nominal_time))}


def message_metadata(payload: Mapping[str, object], marking: str | None) -> dict[str, dg.MetadataValue]:
    """Return what an event says to those who take it."""
    said: dict[str, dg.MetadataValue] = {}
    if payload:
        said[names.META_PAYLOAD] = dg.MetadataValue.json(mask_values(dict(payload)))
    if marking:
        said[names.META_MARKING] = dg.MetadataValue.text(mask(marking))
    return said


def build_events(events: Mapping[str, tuple[InputEvent, ...]]) -> dg.TableMetadataValue:
    """Return the newest `SHOWN_EVENTS` events of a batch as a table, in the order of the log."""
    found = [(event.number, name, event) for name, its in events.items() for event in its]
    records = [
        dg.TableRecord(
            {
                "input": name,
                "event": number,
                "feed": event.feed,
                "instance": render_datetime(event.nominal_time),
                "content": event.digest or "",
                "marking": mask(event.marking or ""),
            }
        )
        for number, name, event in sorted(found, key=lambda row: row[:2])[-SHOWN_EVENTS:]
    ]
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in _EVENT_COLUMNS.items()])
    return dg.MetadataValue.table(records, schema)
