"""Compile the exports of feeds: each is a process of its feed's cluster without outputs, which reads the feed."""

from dataclasses import replace

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.datasource import (
    INPUT_NULL_OTHER,
    INPUT_NULL_STRING,
    MAPPERS,
    ROW_ARGUMENTS,
    UPDATE_KEY,
    Export,
    find_argument,
)
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.feed_work import choose_columns, feed_process, read_edge
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.transfers import ExportRecord

INPUT = "rows"
"""The name of the input of each export."""


def compile_export(bundle: Bundle, feed: Feed, cluster: str, declared: Export, facts: EntityFacts) -> ProcessRecord:
    """Compile the export of a feed from a cluster. It is retried and follows late data and updates as a flow does."""
    name, content = transfer_name(feed.name, Transfer.EXPORT), ("export", _content(declared))
    made = feed_process(bundle, feed, name, compile_target(feed, declared), facts, clusters=[cluster], content=content)
    return replace(made, inputs=(read_edge(made, INPUT, cluster),))


def _content(declared: Export) -> object:
    """Return what is written, and how."""
    target = declared.target.model_dump(mode="json", exclude_defaults=True, exclude={"version"})
    target["arguments"] = [find_argument(declared, name) for name in ROW_ARGUMENTS]
    return target


def compile_target(feed: Feed, declared: Export) -> ExportRecord:
    """Compile what an export writes, and how."""
    target, (columns, excluded) = declared.target, choose_columns(declared.target.fields)
    key, connections = find_argument(declared, UPDATE_KEY) or "", find_argument(declared, MAPPERS)
    return ExportRecord(
        datasource=target.name,
        table=target.table,
        load=target.load.type,
        key=tuple(each.strip() for each in key.split(",") if each.strip()),
        instance_column=target.load.instance_column,
        columns=columns,
        excluded=excluded,
        null_string=find_argument(declared, INPUT_NULL_STRING),
        null_other=find_argument(declared, INPUT_NULL_OTHER),
        is_daily=feed.frequency.is_calendar and feed.is_expected,
        **({} if connections is None else {"connections": int(connections)}),
    )
