"""Rules about mirrors: their directories can be located, and their targets overlap no other location."""

from collections.abc import Iterable, Iterator

from feed_assets.entities.copies.globs import find_glob_fault
from feed_assets.entities.locations.overlaps import FixedPlace, MirrorLocation, iter_mirror_locations
from feed_assets.entities.process import Process
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.issues import Finding
from feed_assets.timing.overlaps import Nesting, find_nesting
from feed_assets.validation.scope import Complaint, Scope


def check_work(_: Scope, process: Process) -> Iterator[Complaint]:
    """A mirror copies directories without dates: it must have no inputs and outputs, and run one instance at a time."""
    if process.workflow.engine is not WorkflowEngine.DIRECTORY_MIRROR:
        return
    for name in ("inputs", "outputs", "late_process"):
        if getattr(process, name):
            yield Complaint(
                path=(name,),
                message=f"a mirror cannot have {name}: its directories are not feeds",
                remedy=f"Remove {name}; to copy data with dates, use the replication of a feed.",
            )
    if process.parallel > 1:
        yield Complaint(
            path=("parallel",),
            message=f"{process.parallel} concurrent instances would write the same directory",
            remedy="Remove parallel.",
        )


def check_places(scope: Scope, process: Process) -> Iterator[Complaint]:
    """The directories of a mirror must be below a supported storage, and have no dates in their paths."""
    for place in iter_mirror_locations(scope.bundle.find_cluster, process):
        fault = place.fault
        if place.url is not None and scope.is_hidden(place.cluster, place.text):
            fault = Finding(
                message="it leads by a link into the hidden folder of a store", remedy="Use a path outside it."
            )
        if fault is not None:
            where = ".".join(map(str, place.path[1:]))
            message = f"{where} {place.text!r} cannot be mirrored: {fault.message}"
            yield Complaint(path=place.path, message=message, remedy=fault.remedy)


def check_overlaps(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A mirror's target must not overlap another target, a feed, a storage or its own source.

    Targets in a ring of copies are left to the rule about rings.
    """
    own = list(iter_mirror_locations(scope.bundle.find_cluster, process))
    reported = {ring[first].path for ring, first in scope.rings_of.get(process.key, ())}
    for target in own:
        if not target.is_target or target.url is None or target.path in reported:
            continue
        at = scope.places.canonical(target.url)
        for what, place in _others(scope, own, target):
            nesting = find_nesting(at, place)
            if nesting is not None:
                message = f"the mirror would write {target.url}, which is {nesting} {what}, {place}"
                yield Complaint(path=target.path, message=message, remedy="Use a separate directory for the mirror.")
                reported.add(target.path)
                break


def check_patterns(_: Scope, process: Process) -> Iterator[Complaint]:
    """Patterns of files must be valid globs."""
    mirror = process.workflow.mirror
    for name in ("include", "exclude"):
        for position, glob in enumerate(getattr(mirror, name) if mirror is not None else ()):
            fault = find_glob_fault(glob)
            if fault is not None:
                message = f"mirror.{name} {glob!r} is not a glob: {fault}"
                path = ("workflow", "mirror", name, position)
                yield Complaint(path=path, message=message, remedy="Write globs such as **.csv, {a,b} or [a-z].")


def _others(scope: Scope, own: Iterable[MirrorLocation], target: MirrorLocation) -> Iterator[tuple[str, str]]:
    """Yield the locations that must not overlap a target, each as name and canonical URL."""
    for place in own:
        if place != target and place.url is not None and (place.is_target or place.own == target.own):
            yield _named(place, target), scope.places.canonical(place.url)
    at = scope.places.canonical(str(target.url))
    for key, url in scope.near_mirrors.get(at, ()):
        match key[2]:
            case FixedPlace.MIRROR if key[0] == target.process:
                continue
            case FixedPlace.STORAGE if find_nesting(url, at) not in (Nesting.AT, Nesting.INSIDE):
                continue
            case _:
                yield scope.describe(key), url


def _named(place: MirrorLocation, target: MirrorLocation) -> str:
    if not place.is_target:
        return "its source"
    return f"its target on cluster {place.own!r}" if place.own != target.own else "another target of it"
