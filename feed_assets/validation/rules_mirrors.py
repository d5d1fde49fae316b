"""Rules about mirrors: their directories can be located, and their targets overlap no other location."""

from collections.abc import Iterable, Iterator

from feed_assets.entities.globs import find_glob_fault
from feed_assets.entities.mirror_places import MirrorLocation, iter_mirror_locations
from feed_assets.entities.overlaps import FixedPlace, describe_location
from feed_assets.entities.process import Process, WorkflowEngine
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
    reported = set()
    for place in iter_mirror_locations(scope.bundle.find_cluster, process):
        if place.fault is not None and (place.path, place.fault) not in reported:
            reported.add((place.path, place.fault))
            where = ".".join(map(str, place.path[1:]))
            message = f"{where} {place.text!r} cannot be mirrored: {place.fault.message}"
            yield Complaint(path=place.path, message=message, remedy=place.fault.remedy)


def check_overlaps(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A mirror's target must not overlap another target, a feed, a storage or its own source.

    Nor may another mirror copy what it writes back to its source.
    """
    own, reported = list(iter_mirror_locations(scope.bundle.find_cluster, process)), set()
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
        other = _find_mirror_back(scope, process, at)
        if other is not None and target.path not in reported:
            message = f"the mirror would write {target.url}, which mirror {other!r} copies back to the source"
            yield Complaint(path=target.path, message=message, remedy="Remove one of the two mirrors.")
            reported.add(target.path)


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
    for key, url in scope.locations:
        match key[2]:
            case FixedPlace.MIRROR if key[0] == target.process:
                continue
            case FixedPlace.STORAGE if find_nesting(url, at) not in (Nesting.AT, Nesting.INSIDE):
                continue
            case _:
                yield describe_location(key), url


def _named(place: MirrorLocation, target: MirrorLocation) -> str:
    if not place.is_target:
        return "its source"
    return f"its target on cluster {place.own!r}" if place.own != target.own else "another target of it"


def _find_mirror_back(scope: Scope, process: Process, target: str) -> str | None:
    """Return another mirror that reads what a mirror writes at `target`, and writes what that is copied from."""
    for name, source, written in scope.mirrored:
        if name != process.name or written != target:
            continue
        for other, read, back in scope.mirrored:
            if other != name and find_nesting(target, read) and find_nesting(back, source):
                return other
    return None
