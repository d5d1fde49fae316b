"""Archive instances: an exact, verified copy in another store first, and only then the move to the trash; and back."""

from contextlib import suppress
from dataclasses import replace

from feed_assets.clock import Clock
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    PathRefusedError,
    PlaceOccupiedError,
    StorageError,
)
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import StorePath
from feed_assets.storage.records import Guard, Moved, Outcome, moved_nothing
from feed_assets.transfer.copying import copy_many
from feed_assets.transfer.errors import SourceChangingError, SourceNotAvailableError
from feed_assets.transfer.plans import Side
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus

_EXACT = CopyOptions(exact=True, tries=1)


def archive_instance(
    place: StorePath, archive: StorePath, sweep: str, clock: Clock, *, flag: str | None = None
) -> Moved:
    """Copy an instance to an archive (see `copy_exactly`), and then move it to the trash (see `Trash.put`).

    The result names the path of the instance. It is that of the move if the copy exists, else that of the copy; ALREADY
    if this sweep has archived and removed the instance before.
    """
    trash = place.store.trash()
    if not trash.holds(sweep, place.path):
        copied = copy_exactly(place, archive, clock, flag=flag)
        if copied.outcome not in (Outcome.MOVED, Outcome.ALREADY):
            return replace(copied, path=place.path)
    return trash.put(sweep, [place.path], flag=flag)[0]


def copy_exactly(place: StorePath, to: StorePath, clock: Clock, *, flag: str | None = None) -> Moved:
    """Copy all files of an instance to another place, where nothing is. `clock` is the real clock.

    The copy is staged, read back and compared by checksum before it becomes visible. MOVED; ALREADY if an equal copy
    exists; OCCUPIED if something else exists; VANISHED if there is nothing to copy; CHANGED if the instance changed
    during the copy; REFUSED. Permissions, times and empty directories are not copied.

    Raises:
        FeedAssetsError: a storage refused, or returned other bytes than were written. Repeating the copy converges.
    """
    try:
        source = place.store.place(place.path)
    except InstanceNotFoundError:
        return Moved(path=to.path, outcome=Outcome.VANISHED, reason="it does not exist")
    except PathRefusedError as exc:
        return Moved(path=to.path, outcome=Outcome.REFUSED, reason=exc.reason)

    def guard() -> None:
        if place.store.place(place.path) != source:
            raise InstanceChangingError(store=source.store.root_url, path=source.path, reason="it was replaced")

    received = to.store.trash().receive(to.path, lambda target: _copy(source, target, flag, guard, clock))
    return replace(received, path=to.path)


def _copy(source: StorePath, target: StorePath, flag: str | None, guard: Guard, clock: Clock) -> Moved:
    opened = {place.store.root_url: place.store for place in (source, target)}
    sides = [Side(store=StoreAddress(url=each.store.root_url), path=each.path, flag=flag) for each in (source, target)]
    request = CopyRequest(source=sides[0], target=sides[1], guard=guard)
    with suppress(StorageError):  # what cannot be finished there is in the way of this copy
        target.store.recover(target.path)
    (outcome,) = copy_many(StorePool(lambda url, _: opened[url]), [request], _EXACT, clock)
    match outcome:
        case Copied(status=CopyStatus.UNCHANGED):
            return moved_nothing(Outcome.ALREADY, "an equal copy already exists")
        case Copied():
            return Moved(path=target.path, outcome=Outcome.MOVED, bytes=outcome.bytes, files=outcome.files)
        case SourceNotAvailableError():
            return moved_nothing(Outcome.VANISHED, "it does not exist")
        case SourceChangingError() | InstanceChangingError():
            return moved_nothing(Outcome.CHANGED, "it changed while it was copied")
        case PlaceOccupiedError() | PathRefusedError():
            occupied = isinstance(outcome, PlaceOccupiedError)
            return moved_nothing(Outcome.OCCUPIED if occupied else Outcome.REFUSED, outcome.reason)
        case _:
            raise outcome
