"""Compile the imports and exports of feeds: each is a process of its feed's cluster. An import has no inputs and writes
the feed; an export reads it and has no outputs.
"""

from dataclasses import replace
from datetime import timedelta

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.datasource import (
    FETCH_SIZE,
    INPUT_NULL_OTHER,
    INPUT_NULL_STRING,
    MAPPERS,
    NULL_STRING,
    ROW_ARGUMENTS,
    SPLIT_BY,
    UPDATE_KEY,
    Export,
    Extract,
    Import,
    IncrementBy,
    find_argument,
)
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.entities.process import CatchUp, Order, effective_timeout
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.feed_work import feed_process, read_edge, written_edge
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.transfers import ExportRecord, ImportRecord
from feed_assets.timing.sequence import InstanceSequence

ROWS = "rows"
"""The name of the output of each import, and of the input of each export."""


def compile_import(bundle: Bundle, feed: Feed, cluster: str, declared: Import, facts: EntityFacts) -> ProcessRecord:
    """Compile the import of a feed on a cluster."""
    extract, content = declared.source.extract, ("import", _meant(declared))
    name = transfer_name(feed.name, Transfer.IMPORT)
    made = feed_process(bundle, feed, name, _source(declared), facts, clusters=[cluster], content=content)
    written, quarantine = written_edge(made, ROWS), bundle.find_quarantine(feed.name)
    return replace(
        made,
        delay=_delay(extract, made.sequence),
        outputs=(written, *([written.to_quarantine(quarantine)] if quarantine is not None else ())),
        parallel=1,
        order=Order.LAST_ONLY if extract.is_whole else Order.FIFO,
        catch_up=CatchUp.ALL,
        timeout=effective_timeout(None, feed.frequency),
    )


def _meant(declared: Import) -> object:
    """Return which rows are meant: a change of how they are read takes effect at once."""
    source = declared.source.model_dump(mode="json", exclude_defaults=True, exclude={"version", "extract"})
    source["extract"] = declared.source.extract.model_dump(mode="json", exclude_defaults=True, exclude={"consistent"})
    source["null"] = find_argument(declared, NULL_STRING)
    return source


def _delay(extract: Extract, sequence: InstanceSequence) -> timedelta:
    """Return the time until an instance is created: when its period is over, if the increment is told by that. A day
    may have 25 hours.
    """
    if extract.increment is not IncrementBy.WINDOW:
        return timedelta(0)
    return sequence.frequency.as_duration() + timedelta(hours=0 if sequence.is_elapsed else 1)


def _source(declared: Import) -> ImportRecord:
    return ImportRecord(
        source=declared.source,
        parts=int(find_argument(declared, MAPPERS) or 1),
        split_by=find_argument(declared, SPLIT_BY),
        fetch_size=int(find_argument(declared, FETCH_SIZE) or 10_000),
        null_text=find_argument(declared, NULL_STRING),
    )


def compile_export(bundle: Bundle, feed: Feed, cluster: str, declared: Export, facts: EntityFacts) -> ProcessRecord:
    """Compile the export of a feed from a cluster. It is retried and follows late data and updates as a flow does."""
    name, content = transfer_name(feed.name, Transfer.EXPORT), ("export", _written(declared))
    made = feed_process(bundle, feed, name, compile_target(feed, declared), facts, clusters=[cluster], content=content)
    return replace(made, inputs=(read_edge(made, ROWS, cluster),))


def _written(declared: Export) -> object:
    """Return what is written, and how."""
    target = declared.target.model_dump(mode="json", exclude_defaults=True, exclude={"version"})
    target["arguments"] = [find_argument(declared, name) for name in ROW_ARGUMENTS]
    return target


def compile_target(feed: Feed, declared: Export) -> ExportRecord:
    """Compile what an export writes, and how."""
    key, connections = find_argument(declared, UPDATE_KEY) or "", find_argument(declared, MAPPERS)
    pace = None if feed.frequency.is_calendar else feed.frequency.as_duration()
    return ExportRecord(
        target=declared.target,
        key=tuple(each.strip() for each in key.split(",") if each.strip()),
        null_string=find_argument(declared, INPUT_NULL_STRING),
        null_other=find_argument(declared, INPUT_NULL_OTHER),
        pace=pace if feed.is_expected else timedelta(0),
        **({} if connections is None else {"connections": int(connections)}),
    )
