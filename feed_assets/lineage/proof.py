"""Hold what lineage says of present data against storage: bytes against the manifest, and this against the event."""

from dataclasses import replace
from enum import StrEnum

from feed_assets.context.operation import OperationContext
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.late.lateness import prove_difference
from feed_assets.lineage.records import LineageGraph, Node, NodeKind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.manifests import Manifests
from feed_assets.log.records import FeedInstance, FeedInstanceStatus, FeedKey
from feed_assets.storage.records import Availability
from feed_assets.transfer.auditing import audit_publication
from feed_assets.transfer.plans import source_side


class Proof(StrEnum):
    """What storage says of an event: it has this content, other content, or none any more; or nobody can tell."""

    PROVEN = "proven"
    DIFFERS = "differs"
    GONE = "gone"
    UNKNOWN = "not known"


def prove_lineage(context: OperationContext, graph: LineageGraph) -> LineageGraph:
    """Return a graph in which each event that claims to be the present content of its instance says what storage has.
    Earlier events claim nothing.
    """
    events = {
        FeedKey(each.name, each.cluster, each.nominal_time): each
        for each in graph.nodes
        if each.kind is NodeKind.EVENT and each.cluster and each.nominal_time
    }
    with context.read() as connection:
        rows = FeedInstances(connection).get_many(events)
        scanned = {key: each.digest for key, each in Manifests(connection).get_many(list(events)).items()}
    present = {row.event_seq: row for row in rows.values()}
    nodes = tuple(
        _proven(context, each, present[each.number], scanned)
        if each.kind is NodeKind.EVENT and each.number in present
        else each
        for each in graph.nodes
    )
    differing = sum((each.proof or "").startswith(Proof.DIFFERS) for each in nodes)
    counts = {kind: sum((each.proof or "").startswith(kind) for each in nodes) for kind in Proof}
    told = "proof: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return replace(graph, nodes=nodes, remarks=(*graph.remarks, told), has_failed=differing > 0)


def _proven(context: OperationContext, node: Node, row: FeedInstance, scanned: dict[FeedKey, str]) -> Node:
    try:
        proof, reason = _prove(context, row, node.digest, scanned.get(row.key))
    except FeedAssetsError as exc:
        proof, reason = Proof.UNKNOWN, str(exc)
    return replace(node, proof=f"{proof}: {reason}" if reason else proof)


def _prove(context: OperationContext, row: FeedInstance, digest: str | None, scanned: str | None) -> tuple[Proof, str]:
    record = context.plan.feeds.get(row.key[:2])
    if row.status in (FeedInstanceStatus.EVICTED, FeedInstanceStatus.MISSING):
        return Proof.GONE, ""
    if record is None or not record.has_data or row.status is not FeedInstanceStatus.AVAILABLE:
        return Proof.UNKNOWN, "nothing says what storage should have"
    there = find_records(context.database, context.stores, record, [row.nominal_time])[row.nominal_time]
    side = source_side(there, row.nominal_time)
    audit = audit_publication(context.stores, side, context.real_clock)
    wrong = (*audit.lost, *audit.rotten, *audit.extra)
    if not audit.is_there:
        return Proof.DIFFERS, "storage does not have it"
    if wrong:
        return Proof.DIFFERS, f"other files than in the manifest: {render_some(wrong, 3)}"
    found = audit.digest
    if found is None:
        scan = context.stores.get(side.store).scan(side.path, side.flag, None, context.real_now)
        if scan.availability is not Availability.AVAILABLE:
            return Proof.DIFFERS, f"in storage it is {scan.availability}"
        found = scan.digest
    recorded = digest if digest is not None and digest.startswith("sha256:") else scanned
    if prove_difference(recorded, found):
        return Proof.DIFFERS, f"storage has {found}"
    return (Proof.PROVEN, "") if recorded == found else (Proof.UNKNOWN, "no digest of the content was recorded")
