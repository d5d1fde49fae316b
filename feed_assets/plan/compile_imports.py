"""Compile the imports of feeds: each is a process of its feed's cluster without inputs, which writes the feed."""

from dataclasses import replace
from datetime import timedelta

from feed_assets.entities.bundle import Bundle
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
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.feed_work import choose_columns, feed_process, written_edge
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.transfers import ImportRecord, IncrementRecord
from feed_assets.timing.sequence import InstanceSequence

OUTPUT = "rows"
"""The name of the output of each import."""


def compile_import(bundle: Bundle, feed: Feed, cluster: str, declared: Import, facts: EntityFacts) -> ProcessRecord:
    """Compile the import of a feed on a cluster."""
    work = _record(declared)
    name, content = transfer_name(feed.name, Transfer.IMPORT), ("import", _content(declared))
    made = feed_process(bundle, feed, name, work, facts, clusters=[cluster], content=content)
    written, quarantine = written_edge(made, OUTPUT), bundle.find_quarantine(feed.name)
    is_whole = work.increment is None and not work.history
    return replace(
        made,
        delay=_delay(work, made.sequence),
        outputs=(written, *([written.to_quarantine(quarantine)] if quarantine is not None else ())),
        parallel=1,
        order=Order.LAST_ONLY if is_whole else Order.FIFO,
        catch_up=CatchUp.ALL,
        timeout=effective_timeout(None, feed.frequency),
    )


def _content(declared: Import) -> object:
    """Return which rows are meant: a change of how they are read takes effect at once."""
    source = declared.source.model_dump(mode="json", exclude_defaults=True, exclude={"version", "extract"})
    source["extract"] = declared.source.extract.model_dump(mode="json", exclude_defaults=True, exclude={"consistent"})
    source["null"] = find_argument(declared, NULL_STRING)
    return source


def _delay(work: ImportRecord, sequence: InstanceSequence) -> timedelta:
    """Return the time until an instance is created: when its period is over, if the increment is told by that. A day
    may have 25 hours.
    """
    if work.increment is None or work.increment.by is not IncrementBy.WINDOW:
        return timedelta(0)
    return sequence.frequency.as_duration() + timedelta(hours=0 if sequence.is_elapsed else 1)


def _record(declared: Import) -> ImportRecord:
    source, (columns, excluded) = declared.source, choose_columns(declared.source.fields)
    return ImportRecord(
        datasource=source.name,
        table=source.table,
        query=source.query,
        where=source.where,
        columns=columns,
        excluded=excluded,
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
