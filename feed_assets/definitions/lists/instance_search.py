"""`search`: instances across all feeds and processes, by name, tags, state and time."""

from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy import Connection

from feed_assets.context.consolidation import PAGE, Result
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.definitions.lists.listing import SaidTags, has_words, is_subsequence
from feed_assets.definitions.lists.query_fields import SearchQuery
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.queries import InstancePage, count_listed, find_rows
from feed_assets.instances.lists.ranges import (
    ClusterQuery,
    InstanceFilter,
    InstanceQuery,
    clip_range,
    require_statuses,
    statuses_of,
)
from feed_assets.instances.lists.rows import InstanceRow
from feed_assets.parameters import SCHEDULABLE
from feed_assets.plan.records import FeedRecord, ProcessRecord


def search_instances(context: OperationContext, query: SearchQuery) -> InstancePage:
    """Return the matching instances, newest first. No more rows of each entity are read than the page needs.

    Raises:
        InstanceQueryError: no instance of the kinds ever has one of the statuses.
    """
    kinds = sorted(set(query.kinds or SCHEDULABLE))
    require_statuses(query.statuses, frozenset().union(*map(statuses_of, kinds)), " or ".join(kinds))
    found: list[InstanceRow] = []
    total = 0
    with context.read() as connection:
        said = SaidTags(connection)
        for kind, record in _candidates(context, query):
            tags = said.of_record(kind, record)
            one = _query_of(context, connection, kind, record, query) if has_words(tags, query.tag_keys) else None
            if one is not None:
                rows = find_rows(one)
                total += len(rows) if len(rows) < one.query.results else count_listed(one)
                found.extend(replace(row, tags=tags) for row in rows)
    found.sort(key=lambda each: (each.nominal_time, each.name, each.cluster), reverse=True)
    if query.order_by is not None:
        found.sort(key=lambda each: each.status, reverse=True)
    end = query.offset + query.results
    shown = tuple(found[query.offset : end])
    return InstancePage(
        result=Result.SUCCEEDED,
        message="",
        start=query.start,
        end=query.end,
        instances=shown,
        listed=len(shown),
        total=total,
        offset=query.offset,
    )


def _candidates(context: OperationContext, query: SearchQuery) -> Iterator[tuple[Kind, FeedRecord | ProcessRecord]]:
    for kind in sorted(set(query.kinds or SCHEDULABLE)):
        for (name, _), record in sorted(context.records(kind).items()):
            if is_subsequence(query.name_sequence, name):
                yield kind, record


def _query_of(
    context: OperationContext,
    connection: Connection,
    kind: Kind,
    record: FeedRecord | ProcessRecord,
    query: SearchQuery,
) -> ClusterQuery | None:
    """Return the query for the instances of one entity; None if they never have one of the statuses."""
    statuses = None
    if query.statuses:
        statuses = frozenset(status.upper() for status in query.statuses) & statuses_of(kind)
        if not statuses:
            return None
    start, stop = clip_range([record.sequence], start=query.start, end=query.end, results=PAGE, now=context.as_of)
    subject = Subject(kind=kind, name=record.key[0], records=(record,))
    one = InstanceQuery(subject=subject, filter=InstanceFilter(statuses=statuses), results=query.offset + query.results)
    return ClusterQuery(
        context=context, connection=connection, query=one, cluster=record.cluster, start=start, stop=stop
    )
