"""Rules about mirrors: their directories can be located, and their targets overlap no other location."""

from collections.abc import Iterable, Iterator

from feed_assets.entities.globs import find_glob_fault
from feed_assets.entities.mirror_places import MirrorLocation, iter_mirror_locations
from feed_assets.entities.overlaps import describe_location
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
    for place in iter_mirror_locations(scope.bundle, process):
        if place.fault is not None and (place.path, place.fault) not in reported:
            reported.add((place.path, place.fault))
            where = ".".join(map(str, place.path[1:]))
            message = f"{where} {place.text!r} cannot be mirrored: {place.fault.message}"
            yield Complaint(path=place.path, message=message, remedy=place.fault.remedy)


def check_overlaps(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A mirror's target must not overlap another target, a feed, a storage, or its own source."""
    own, reported = list(iter_mirror_locations(scope.bundle, process)), set()
    for target in own:
        if not target.is_target or target.url is None or target.path in reported:
            continue
        for what, url in _others(scope, own, target):
            nesting = find_nesting(target.url, url)
            if nesting is not None:
                message = f"the mirror would write {target.url}, which is {nesting} {what}, {url}"
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
    """Yield the locations that must not overlap a target, each as name and address."""
    for place in own:
        if not place.is_target and place.own == target.own and place.url is not None:
            yield "its source", place.url
    for place in scope.mirror_targets:
        if place != target and place.url is not None:
            yield _named(place, target), place.url
    for cluster in scope.bundle.clusters:
        if find_nesting(cluster.storage, str(target.url)) in (Nesting.AT, Nesting.INSIDE):
            yield f"the storage of cluster {cluster.name!r}", cluster.storage
    for feed_place, url in scope.feed_locations:
        yield describe_location(feed_place), url


def _named(place: MirrorLocation, target: MirrorLocation) -> str:
    if place.process != target.process:
        return f"the target of mirror {place.process!r}"
    return f"its target on cluster {place.own!r}" if place.own != target.own else "another target of it"
