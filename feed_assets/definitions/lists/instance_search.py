"""`search`: instances across all feeds and processes, by name, tags, state and time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import heappush, heappushpop
from operator import itemgetter
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.access.rights import reads
from feed_assets.context.consolidation import PAGE, Result
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.definitions.lists.listing import SaidTags, has_words, is_subsequence
from feed_assets.definitions.lists.query_fields import SearchQuery
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.queries import InstancePage, count_by_status, count_newest, find_rows
from feed_assets.instances.lists.ranges import (
    ClusterQuery,
    InstanceFilter,
    InstanceQuery,
    clip_range,
    parse_statuses,
    statuses_of,
)
from feed_assets.instances.lists.rows import InstanceRow
from feed_assets.log.instances.instance_pages import Counted
from feed_assets.pages import up_to
from feed_assets.parameters import SCHEDULABLE
from feed_assets.plan.records import FeedRecord, ProcessRecord

_Place: TypeAlias = tuple[str, datetime, str, str, int]
"""The status if it orders, the nominal time, the name, the cluster, and the rank of the entity, the greatest first."""


def search_instances(context: OperationContext, query: SearchQuery) -> InstancePage:
    """Return the matching instances, newest first. Those of all entities are counted at once, ordered by status all of
    them; rows are read of those entities alone that may have one on the page.

    Raises:
        InstanceQueryError: no instance of the kinds ever has one of the statuses.
    """
    kinds = sorted(set(query.kinds or SCHEDULABLE))
    known = frozenset().union(*map(statuses_of, kinds))
    parse_statuses(query.statuses, known, f"an instance of a {' or '.join(kinds)}")
    with context.read() as connection:
        said = SaidTags(connection)
        found = [
            (one, tags)
            for kind, record in _candidates(context, query)
            if has_words(tags := said.of_record(kind, record), query.tag_keys)
            and (one := _query_of(context, connection, kind, record, query)) is not None
        ]
        queries = [one for one, _ in found]
        queries, counts = count_newest(queries) if query.order_by is None else (queries, count_by_status(queries))
        shown = _first_rows(list(zip(queries, counts, (tags for _, tags in found), strict=True)), query)[query.offset :]
    page = InstancePage(
        result=Result.SUCCEEDED,
        message="",
        start=query.start,
        end=query.end,
        instances=tuple(shown),
        listed=len(shown),
        total=up_to(
            sum(each.number for by_status in counts for each in by_status.values()),
            query.offset + query.results,
        ),
        offset=query.offset,
    )
    return page.or_why(context, context.plan.clusters, "no instance is as asked for")


def _first_rows(
    found: Sequence[tuple[ClusterQuery, Mapping[str, Counted], tuple[str, ...]]], query: SearchQuery
) -> list[InstanceRow]:
    """Return the first rows up to the end of the page, in order.

    The entities, or with an order by status the instances of each of their statuses, are read from the one with the
    newest instance on, until none that is left can have a row before those that were found.
    """
    end = query.offset + query.results
    streams: list[tuple[_Place, ClusterQuery, tuple[str, ...]]] = []
    for number, (one, by_status, tags) in enumerate(found):
        if query.order_by is None and by_status:
            newest = max(each.newest for each in by_status.values())
            streams.append((("", newest, *one.key, -number), one, tags))
        elif by_status:
            for status, each in by_status.items():
                only = replace(one.query, filter=InstanceFilter(statuses=frozenset({status})))
                streams.append(((status, each.newest, *one.key, -number), replace(one, query=only), tags))
    best: list[tuple[_Place, InstanceRow]] = []
    for newest_of, one, tags in sorted(streams, key=itemgetter(0), reverse=True):
        if len(best) == end and best[0][0] > newest_of:
            break
        status, _, name, cluster, rank = newest_of
        for row in find_rows(one):
            entry = ((status, row.nominal_time, name, cluster, rank), replace(row, tags=tags))
            (heappushpop if len(best) == end else heappush)(best, entry)
    return [row for _, row in sorted(best, key=itemgetter(0), reverse=True)]


def _candidates(context: OperationContext, query: SearchQuery) -> Iterator[tuple[Kind, FeedRecord | ProcessRecord]]:
    for kind in sorted(set(query.kinds or SCHEDULABLE)):
        for (name, _), record in sorted(context.records(kind).items()):
            if is_subsequence(query.name_sequence, name) and reads(kind, name):
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
