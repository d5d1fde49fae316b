"""The dependencies and dependents of an entity, one step away."""

from dataclasses import dataclass

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.feed import Feed
from feed_assets.entities.graph import iter_references
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey

INPUT = "Input"
OUTPUT = "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An entity one step away. Between feed and process, `tags` give the feed's roles in the process."""

    kind: str
    name: str
    tags: tuple[str, ...] = ()


def find_neighbours(bundle: Bundle, entity: AnyEntity) -> tuple[Neighbour, ...]:
    """Return the neighbours of an entity, by kind and name."""
    found: dict[EntityKey, tuple[str, ...]] = {}
    for reference in iter_references(entity):
        tags = _tags(entity, reference.target) if isinstance(entity, Process) else ()
        found[reference.target] = tags
    for other in bundle.entities:
        if any(reference.target == entity.key for reference in iter_references(other)):
            is_tagged = isinstance(entity, Feed) and isinstance(other, Process)
            found[other.key] = _tags(other, entity.key) if is_tagged and isinstance(other, Process) else ()
    return tuple(Neighbour(kind=kind, name=name, tags=tags) for (kind, name), tags in sorted(found.items()))


def _tags(process: Process, feed: EntityKey) -> tuple[str, ...]:
    if feed[0] != Feed.kind:
        return ()
    reads = any(item.feed == feed[1] for item in process.inputs.values())
    writes = any(item.feed == feed[1] for item in process.outputs.values())
    return ((INPUT,) if reads else ()) + ((OUTPUT,) if writes else ())
