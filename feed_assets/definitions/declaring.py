"""Whether who changes definitions may do so, by what these say of their owners."""

from collections.abc import Mapping

from feed_assets.access.records import AclRecord, acl_of
from feed_assets.access.rights import Needs, find_rights
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.graph import iter_references
from feed_assets.issues import EntityKey
from feed_assets.loading.bundles import LoadedBundle


def require_declares(before: LoadedBundle | None, after: Mapping[EntityKey, AnyEntity | None]) -> None:
    """Refuse changes of what is not of who makes them: by what it says before, or has said last, and after them. What
    it is to read then must be read by who makes them, and what it is to write must be theirs, if it is not so already.

    Raises:
        AccessRefusedError: one is of others.
    """
    if (rights := find_rights()) is None:
        return

    def said(entity: AnyEntity | None) -> AclRecord | None:
        return None if entity is None else acl_of(entity)

    changed = list[tuple[EntityKey, AclRecord | None, AclRecord | None]]()
    needed = list[tuple[EntityKey, Needs]]()
    for key in sorted(after):
        new = after[key]
        if before is None or key in before.broken:
            changed.append((key, rights.find_recorded(key), said(new)))
        elif (old := before.bundle.find(key)) != new:
            changed.append((key, said(old), said(new)))
        needed += sorted(_find_needed(new) - _find_needed(before.bundle.find(key) if before else None))
    rights.require_declared(changed)
    rights.require(needed)


def _find_needed(entity: AnyEntity | None) -> set[tuple[EntityKey, Needs]]:
    """Return the entities to which one refers, with what is needed of whoever lets it do so."""
    found = iter_references(entity) if entity is not None else ()
    is_written = {each: each.path[0] == "outputs" or each.path[-1] == "quarantine" for each in found}
    return {(each.target, Needs.OWNER if writes else Needs.KNOWN) for each, writes in is_written.items()}
