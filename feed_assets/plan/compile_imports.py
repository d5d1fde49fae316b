"""Compile the imports of feeds: each is a process of its feed's cluster without inputs, which writes the feed."""

import hashlib
from datetime import timedelta

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import JobPriority, Kind, find_priority, find_queue
from feed_assets.entities.datasource import (
    FETCH_SIZE,
    MAPPERS,
    NULL_STRING,
    SPLIT_BY,
    Extract,
    Import,
    IncrementBy,
    find_argument,
)
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.entities.process import CatchUp, Order, effective_timeout
from feed_assets.entities.replication import RETRY, complete_replication
from feed_assets.plan.edges import OutputEdge
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.release_fingerprint import import_fingerprint
from feed_assets.plan.transfers import ImportRecord, IncrementRecord
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import parse_window

OUTPUT = "rows"
"""The name of the output of each import."""


def compile_import(bundle: Bundle, feed: Feed, cluster: str, declared: Import, facts: EntityFacts) -> ProcessRecord:
    """Compile the import of a feed on a cluster."""
    name, sequence = transfer_name(feed.name, Transfer.IMPORT), feed.sequence_on(cluster)
    policy, work = complete_replication(feed.replication, feed.properties), _record(declared)
    now = parse_window("now(0,0)", "now(0,0)", sequence.timezone)
    written = OutputEdge(name=OUTPUT, feed=feed.name, process=name, cluster=cluster, window=now, shift=0)
    quarantine = bundle.find_quarantine(feed.name)
    is_whole = work.increment is None and not work.history
    return ProcessRecord(
        process=name,
        entity=feed.key,
        cluster=cluster,
        sequence=sequence,
        delay=_delay(work, sequence),
        inputs=(),
        outputs=(written, *([written.to_quarantine(quarantine)] if quarantine is not None else ())),
        work=work,
        properties=tuple(feed.properties.items()),
        parallel=1,
        order=Order.LAST_ONLY if is_whole else Order.FIFO,
        catch_up=CatchUp.ALL,
        priority=(find_priority(feed.properties) or JobPriority.NORMAL).level,
        queue=find_queue(feed.properties),
        timeout=effective_timeout(None, feed.frequency),
        retry=policy.retry or RETRY,
        late=None,
        digest=hashlib.sha256(f"{bundle.entity_digest(feed)}\n{name}".encode()).hexdigest(),
        fingerprint=import_fingerprint(bundle, feed, cluster, declared),
        members=(feed.key, (Kind.CLUSTER.value, cluster)),
        facts=facts,
    )


def _delay(work: ImportRecord, sequence: InstanceSequence) -> timedelta:
    """Return the time until an instance is created: when its period is over, if the increment is told by that. A day
    may have 25 hours.
    """
    if work.increment is None or work.increment.by is not IncrementBy.WINDOW:
        return timedelta(0)
    return sequence.frequency.as_duration() + timedelta(hours=0 if sequence.is_elapsed else 1)


def _record(declared: Import) -> ImportRecord:
    source, fields = declared.source, declared.source.fields
    return ImportRecord(
        datasource=source.name,
        table=source.table,
        query=source.query,
        where=source.where,
        columns=(fields.includes or fields.excludes) if fields is not None else (),
        excluded=fields is not None and bool(fields.excludes),
        parts=int(find_argument(declared, MAPPERS) or 1),
        split_by=find_argument(declared, SPLIT_BY),
        fetch_size=int(find_argument(declared, FETCH_SIZE) or 10_000),
        null_text=find_argument(declared, NULL_STRING),
        consistent=source.extract.consistent,
        history=source.extract.history,
        increment=_increment(source.extract),
    )


def _increment(extract: Extract) -> IncrementRecord | None:
    if extract.increment is None:
        return None
    return IncrementRecord(
        column=extract.delta_column or "", by=extract.increment, overlap=extract.overlap, key=extract.key
    )
