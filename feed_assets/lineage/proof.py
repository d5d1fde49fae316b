"""Hold what lineage says of present data against storage: bytes against the manifest, and this against the event."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext
from feed_assets.entities.flow_names import is_flow
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.late.lateness import prove_difference
from feed_assets.lineage.recorded import RecordedLineage
from feed_assets.lineage.records import LineageGraph, Node, NodeKind
from feed_assets.lineage.walk import find_version
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.manifests import Manifests
from feed_assets.log.records import CONTENT, FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.manifests import hidden_entries
from feed_assets.storage.paths import MANIFEST_NAME
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability
from feed_assets.transfer.auditing import Audit, audit_publication
from feed_assets.transfer.plans import Side, source_side

_CONTENT = "sha256:"
_KEEPING = frozenset({FeedEventKind.EVICTED, FeedEventKind.RESTORED, FeedEventKind.VANISHED})


class Proof(StrEnum):
    """What storage says of an event: it has this content, other content, or none any more; or nobody can tell."""

    PROVEN = "proven"
    DIFFERS = "differs"
    GONE = "gone"
    UNKNOWN = "not known"


def prove_lineage(context: OperationContext, graph: LineageGraph) -> LineageGraph:
    """Return a graph in which each event that claims to be the present content of its instance says what storage has,
    if the tree shows it. Earlier events claim nothing, but for that of content that was evicted or restored since.
    """
    histories: dict[FeedKey, list[Node]] = defaultdict(list)
    for each in sorted(graph.nodes, key=lambda node: node.number or 0):
        if each.kind is NodeKind.EVENT and each.cluster and each.nominal_time:
            histories[FeedKey(each.name, each.cluster, each.nominal_time)].append(each)
    with context.read() as connection:
        rows = FeedInstances(connection).get_many(histories)
        digests = _find_digests(context, connection, rows)
    shown, proofs, counts = graph.find_shown(), dict[str, str](), Counter[Proof]()
    for key, row in rows.items():
        if claiming := [each for each in _iter_claiming(histories[key], row) if each in shown]:
            try:
                proof, reason = _prove(context, row, digests.get(key))
            except FeedAssetsError as exc:
                proof, reason = Proof.UNKNOWN, str(exc)
            counts[proof] += 1
            proofs |= dict.fromkeys(claiming, f"{proof}: {reason}" if reason else proof)
    nodes = tuple(replace(each, proof=proofs.get(each.id)) for each in graph.nodes)
    told = "proof: " + ", ".join(f"{counts[kind]} {kind}" for kind in Proof)
    return replace(graph, nodes=nodes, remarks=(*graph.remarks, told), has_failed=counts[Proof.DIFFERS] > 0)


def _find_digests(
    context: OperationContext, connection: Connection, rows: Mapping[FeedKey, FeedInstance]
) -> dict[FeedKey, str]:
    """Return the digests of content on record: of the event, of a scan, or else of an attempt that has read it."""
    digests = {key: each.digest for key, each in Manifests(connection).get_many(list(rows)).items()}
    owned = {key: row.manifest_digest or "" for key, row in rows.items()}
    digests |= {key: digest for key, digest in owned.items() if digest.startswith(_CONTENT)}
    lacking = [key for key, row in rows.items() if key not in digests and row.status is FeedInstanceStatus.AVAILABLE]
    port = RecordedLineage(context.timeline, connection)
    events = port.find_events(lacking)
    for each in sorted(port.find_readers(lacking), key=lambda read: read.attempt.started_at):
        attempt, key, read = each.attempt, each.instance, each.digest or ""
        version = find_version(events.get(key, ()), read, attempt.started_at, attempt.ended_at)
        is_told = read.startswith(_CONTENT) and not is_flow(attempt.process)
        if is_told and version and version.manifest_digest == owned[key]:
            digests[key] = read
    return digests


def _iter_claiming(history: Sequence[Node], row: FeedInstance) -> Iterator[str]:
    """Yield the ids of the events whose content is the present one, or was the last."""
    until = [each for each in reversed(history) if each.number is not None and each.number <= (row.event_seq or 0)]
    if until and until[0].number == row.event_seq:
        yield until[0].id
        for other, one in pairwise(until):
            if other.state not in _KEEPING:
                return
            if one.state in CONTENT:
                yield one.id


def _prove(context: OperationContext, row: FeedInstance, recorded: str | None) -> tuple[Proof, str]:
    record = context.plan.feeds.get(row.key[:2])
    if row.status in (FeedInstanceStatus.EVICTED, FeedInstanceStatus.MISSING):
        return Proof.GONE, ""
    if record is None or not record.has_data or row.status is not FeedInstanceStatus.AVAILABLE:
        return Proof.UNKNOWN, "nothing says what storage should have"
    there = find_records(context, record, [row.nominal_time])[row.nominal_time]
    side = source_side(there, row.nominal_time)
    audit = audit_publication(context.stores, side, context.real_clock)
    place, found = f"{side.store.url}/{side.path}", audit.digest
    if not audit.is_there:
        return Proof.DIFFERS, f"storage does not have it at {place}"
    if audit.lost or audit.rotten or audit.extra:
        return Proof.DIFFERS, f"at {place}: {_describe(context.stores, side, audit)}"
    if found is None:
        scan = context.stores.get(side.store).scan(side.path, side.flag, None, context.real_now)
        if scan.availability is not Availability.AVAILABLE:
            return Proof.DIFFERS, f"at {place} it is {scan.availability}"
        found = scan.digest
    if prove_difference(recorded, found):
        return Proof.DIFFERS, f"{place} has {found}, the record has {recorded}"
    if recorded != found:
        return Proof.UNKNOWN, "no digest of the content was recorded"
    return Proof.PROVEN, "" if side == source_side(record, row.nominal_time) else f"at {place}"


def _describe(stores: StorePool, side: Side, audit: Audit) -> str:
    """Return which files the manifest has otherwise."""
    if MANIFEST_NAME in audit.rotten:
        return f"{MANIFEST_NAME} cannot be read"
    store = stores.get(side.store)
    manifest = store.published_manifest(side.path)
    entries = [*manifest.entries, *hidden_entries(manifest)] if manifest else []
    with store.reading(side.path) as reading:
        changed = tuple(
            f"{each.path} (it has {checksum_of(reading.chunks(each.path), each.checksum)}, not {each.checksum})"
            for each in entries
            if each.path in audit.rotten
        )
    found = {"changed": changed, "missing": audit.lost, "additional": audit.extra}
    return ", ".join(f"{what} {render_some(names, 3)}" for what, names in found.items() if names)
