"""A rule against rings of copies, by replication and by mirrors: no copy may come back to where it was made from."""

from collections.abc import Iterator

from feed_assets.entities.common import label_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.validation.copies import Copy
from feed_assets.validation.scope import Complaint, Scope, render_ring


def check_rings(scope: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """No feed or mirror may copy what comes back to its source through other copies."""

    def render(copy: Copy) -> str:
        return label_of(copy.entity) + scope.where(copy.entity, copy.path)

    for ring, first in scope.rings_of.get(entity.key, ()):
        own, others = ring[first], (*ring[first + 1 :], *ring[:first])
        yield Complaint(
            path=own.path,
            message=f"what it copies from {own.source} to {own.target} comes back there through "
            f"{render_ring(others, 0, render)}",
            remedy="Remove one of these copies, or let it write elsewhere.",
        )
