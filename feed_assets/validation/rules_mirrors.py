"""Rules about mirrors: their directories can be located, and nothing else lies where they write."""

from collections.abc import Iterable, Iterator

from feed_assets.entities.globs import find_glob_fault
from feed_assets.entities.mirror_places import MirrorPlace, iter_mirror_places
from feed_assets.entities.overlaps import name_place
from feed_assets.entities.process import Process, WorkflowEngine
from feed_assets.timing.overlaps import Nesting, find_nesting
from feed_assets.validation.scope import Complaint, Scope


def check_work(_: Scope, process: Process) -> Iterator[Complaint]:
    """A mirror copies directories that have no dates: it has no inputs and outputs, and one instance runs at a time."""
    if process.workflow.engine is not WorkflowEngine.DIRECTORY_MIRROR:
        return
    for name in ("inputs", "outputs", "late_process"):
        if getattr(process, name):
            yield Complaint(
                path=(name,),
                message=f"a mirror has no {name}: its directories are no feeds",
                remedy=f"Remove {name}; what has dates is copied by the replication of its feed.",
            )
    if process.parallel > 1:
        yield Complaint(
            path=("parallel",),
            message=f"{process.parallel} instances would write the same directory together",
            remedy="Remove parallel.",
        )


def check_places(scope: Scope, process: Process) -> Iterator[Complaint]:
    """The directories of a mirror lie below a storage that can be opened, and have no dates in their paths."""
    told = set()
    for place in iter_mirror_places(scope.bundle, process):
        if place.fault is not None and (place.path, place.fault) not in told:
            told.add((place.path, place.fault))
            where = ".".join(map(str, place.path[1:]))
            message = f"{where} {place.text!r} cannot be mirrored: {place.fault.message}"
            yield Complaint(path=place.path, message=message, remedy=place.fault.remedy)


def check_overlaps(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Where a mirror writes lies nothing else: no other target, no feed, no storage, and not its own source."""
    own, told = list(iter_mirror_places(scope.bundle, process)), set()
    for target in own:
        if not target.is_target or target.url is None or target.path in told:
            continue
        for what, url in _others(scope, own, target):
            nesting = find_nesting(target.url, url)
            if nesting is not None:
                message = f"the mirror would write {target.url}, which lies {nesting} {what}, {url}"
                yield Complaint(path=target.path, message=message, remedy="Give the mirror a directory of its own.")
                told.add(target.path)
                break


def check_patterns(_: Scope, process: Process) -> Iterator[Complaint]:
    """Patterns of files are globs that can be read."""
    mirror = process.workflow.mirror
    for name in ("include", "exclude"):
        for position, glob in enumerate(getattr(mirror, name) if mirror is not None else ()):
            fault = find_glob_fault(glob)
            if fault is not None:
                message = f"mirror.{name} {glob!r} is no glob: {fault}"
                path = ("workflow", "mirror", name, position)
                yield Complaint(path=path, message=message, remedy="Write globs such as **.csv, {a,b} or [a-z].")


def _others(scope: Scope, own: Iterable[MirrorPlace], target: MirrorPlace) -> Iterator[tuple[str, str]]:
    """What must not be met, each with its name and address."""
    for place in own:
        if not place.is_target and place.own == target.own and place.url is not None:
            yield "its source", place.url
    for place in scope.mirror_targets:
        if place != target and place.url is not None:
            yield _named(place, target), place.url
    for cluster in scope.bundle.clusters:
        if find_nesting(cluster.storage, str(target.url)) in (Nesting.AT, Nesting.INSIDE):
            yield f"the storage of cluster {cluster.name!r}", cluster.storage
    for feed_place, url in scope.feed_places:
        yield name_place(feed_place), url


def _named(place: MirrorPlace, target: MirrorPlace) -> str:
    if place.process != target.process:
        return f"the target of mirror {place.process!r}"
    return f"its target on cluster {place.own!r}" if place.own != target.own else "another target of it"
