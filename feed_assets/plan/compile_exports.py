"""Compile the exports of feeds: each is a process of its feed's cluster without outputs, which reads the feed."""

import hashlib
from datetime import timedelta

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import JobPriority, Kind, find_priority, find_queue
from feed_assets.entities.datasource import (
    INPUT_NULL_OTHER,
    INPUT_NULL_STRING,
    MAPPERS,
    UPDATE_KEY,
    Export,
    find_argument,
)
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.entities.process import Order, effective_timeout
from feed_assets.entities.replication import LATE_DELAY, LATE_POLICY, RETRY, complete_replication
from feed_assets.entities.triggers import OnUpdate
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import LateRecord, ProcessRecord
from feed_assets.plan.release_fingerprint import export_fingerprint
from feed_assets.plan.transfers import ExportRecord
from feed_assets.timing.windows import parse_window

INPUT = "rows"
"""The name of the input of each export."""


def compile_export(bundle: Bundle, feed: Feed, cluster: str, declared: Export, facts: EntityFacts) -> ProcessRecord:
    """Compile the export of a feed from a cluster. It is retried and follows late data and updates as a flow does."""
    name, sequence = transfer_name(feed.name, Transfer.EXPORT), feed.sequence_on(cluster)
    policy, is_late = complete_replication(feed.replication, feed.properties), feed.late_arrival is not None
    read = InputEdge(
        name=INPUT,
        feed=feed.name,
        feed_cluster=cluster,
        process=name,
        cluster=cluster,
        takes=parse_window("now(0,0)", "now(0,0)", sequence.timezone),
        shifts=(0, 0),
        optional=False,
        partition=None,
        is_late=is_late,
    )
    return ProcessRecord(
        process=name,
        entity=feed.key,
        cluster=cluster,
        sequence=sequence,
        delay=timedelta(0),
        inputs=(read,),
        outputs=(),
        work=compile_target(feed, declared),
        properties=tuple(feed.properties.items()),
        parallel=policy.parallel or 1,
        order=policy.order or Order.FIFO,
        catch_up=policy.catch_up,
        priority=(find_priority(feed.properties) or JobPriority.NORMAL).level,
        queue=find_queue(feed.properties),
        timeout=None if feed.is_current else effective_timeout(policy.timeout, feed.frequency),
        retry=policy.retry or RETRY,
        late=LateRecord(policy=LATE_POLICY, delay=LATE_DELAY, workflows=()) if is_late else None,
        digest=hashlib.sha256(f"{bundle.entity_digest(feed)}\n{name}\n{cluster}".encode()).hexdigest(),
        fingerprint=export_fingerprint(bundle, feed, cluster, declared),
        members=(feed.key, (Kind.CLUSTER.value, cluster)),
        facts=facts,
        is_enumerated=feed.is_expected,
        on_update=OnUpdate.RERUN,
    )


def compile_target(feed: Feed, declared: Export) -> ExportRecord:
    """Compile what an export writes, and how."""
    target = declared.target
    key, connections = find_argument(declared, UPDATE_KEY) or "", find_argument(declared, MAPPERS)
    return ExportRecord(
        datasource=target.name,
        table=target.table,
        load=target.load.type,
        key=tuple(each.strip() for each in key.split(",") if each.strip()),
        instance_column=target.load.instance_column,
        columns=(target.fields.includes or target.fields.excludes) if target.fields is not None else (),
        excluded=target.fields is not None and bool(target.fields.excludes),
        null_string=find_argument(declared, INPUT_NULL_STRING),
        null_other=find_argument(declared, INPUT_NULL_OTHER),
        is_daily=feed.frequency.is_calendar and feed.is_expected,
        **({} if connections is None else {"connections": int(connections)}),
    )
