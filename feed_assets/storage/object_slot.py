"""One staging on an object store, and how its objects become an instance.

A slot is the prefix `staging/<token>/<name of the path>/` with `slot.json` (it exists while the staging may be
published, and says for which path), `data/…`, and, once everything is prepared, `intent.json`. A publication begins
when a marker that names the slot is created inside the instance, and ends when the marker is removed; in between the
instance counts as PARTIAL, and whoever reads marker and intent can finish the work.

Where nothing stands, a copy may be written in place instead of below `data/`. Then the marker is there from the
beginning, `places.json` says which files are written, so that they can be withdrawn, and the intent comes only once the
guard has decided.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from fsspec import AbstractFileSystem

from feed_assets.storage.errors import InstanceChangingError
from feed_assets.storage.manifests import parse_manifest, render_manifest
from feed_assets.storage.object_multipart import abort_uploads
from feed_assets.storage.object_requests import copy_object, put_object
from feed_assets.storage.object_tree import ObjectFile, each, list_below, list_objects, read_document, remove_objects
from feed_assets.storage.paths import MANIFEST_NAME, PUBLISHING_NAME, path_name
from feed_assets.storage.records import Manifest

_BATCH = 64
_SIGN, _PLACES, _INTENT = "slot.json", "places.json", "intent.json"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a prepared slot will make of an instance: `names` are all staged files but flag and manifest.

    `kept` are files of the instance that stay as they are, `flags` more flags, of parts of the instance.
    """

    manifest: Manifest
    flag: str | None
    names: tuple[str, ...]
    kept: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def all_flags(self) -> tuple[str, ...]:
        """The flags, that of the whole instance first."""
        return (self.flag, *self.flags) if self.flag else self.flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What `slot.json` says: the `number` of a copy's staging (see `Assembly.open`), and how that is written."""

    number: int = 0
    is_in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSlot:
    """The staging of a path and a token at the `prefix`, for the instance at `target`, below the root of a store."""

    fs: AbstractFileSystem
    store: str
    path: str
    token: str
    root: str

    @property
    def target(self) -> str:
        return f"{self.root}/{self.path}"

    @property
    def prefix(self) -> str:
        return f"{staging_prefix(self.root)}/{self.token}/{path_name(self.path)}"

    @property
    def data(self) -> str:
        return f"{self.prefix}/data"

    @property
    def uploads(self) -> str:
        return f"{self.prefix}/uploads"

    def make(
        self, sign: Sign | None = None, places: Collection[str] = (), names: Collection[str] | None = None
    ) -> None:
        """Make the slot anew and empty; in place, for files at these `places`, if its sign says so.

        `names` is what `list_names` told of it just now.
        """
        self.remove(names)
        sign = sign or Sign()
        if sign.is_in_place:
            self.write_places(places)
        self.write_sign(sign)

    def exists(self) -> bool:
        return self.read_sign() is not None

    def list_names(self) -> list[str]:
        """The objects of the slot, relative to its prefix."""
        return [name for name in list_below(self.fs, self.prefix).files if name]

    def write_sign(self, sign: Sign) -> None:
        self._write(_SIGN, {"path": self.path, "number": sign.number, "in_place": sign.is_in_place})

    def read_sign(self, names: Collection[str] = (_SIGN,)) -> Sign | None:
        """What `write_sign` wrote; None if there is no staging. `names` is what may be there of it."""
        if _SIGN not in names:
            return None
        document = read_document(self.fs, f"{self.prefix}/{_SIGN}")
        if document is None:
            return None
        return Sign(number=int(document.get("number", 0)), is_in_place=bool(document.get("in_place")))

    def write_places(self, places: Collection[str]) -> None:
        self._write(_PLACES, {"names": sorted(places)})

    def read_places(self) -> frozenset[str]:
        """What `write_places` wrote; nothing if the slot is not in place."""
        document = read_document(self.fs, f"{self.prefix}/{_PLACES}")
        return frozenset() if document is None else frozenset(document["names"])

    def remove(self, names: Collection[str] | None = None) -> None:
        """Remove the slot, and what was written in place unless the guard has let it be published."""
        names = self.list_names() if names is None else names
        is_withdrawn = _PLACES in names and _INTENT not in names
        if is_withdrawn and read_marker(self.fs, self.target) == self.token:
            remove_objects(self.fs, [f"{self.target}/{name}" for name in self.read_places()])
            remove_objects(self.fs, [f"{self.target}/{PUBLISHING_NAME}"])
        self._clear(names)

    def clear(self) -> None:
        """Remove the slot of what is published."""
        self._clear(self.list_names())

    def leave_place(self) -> None:
        """Forget what was written in place: it is not ours any more."""
        abort_uploads(self.fs, self.target, self.uploads)
        remove_objects(self.fs, [f"{self.prefix}/{_PLACES}"])

    def _write(self, name: str, document: Mapping[str, object]) -> None:
        put_object(self.fs, f"{self.prefix}/{name}", json.dumps({"version": 1, **document}).encode())

    def _clear(self, names: Collection[str]) -> None:
        """The sign goes first, so that nothing half removed is ever taken for a staging."""
        if _SIGN in names:
            remove_objects(self.fs, [f"{self.prefix}/{_SIGN}"])
        if any(name.startswith("uploads/") for name in names):
            abort_uploads(self.fs, self.target if _PLACES in names else self.data, self.uploads)
        remove_objects(self.fs, [f"{self.prefix}/{name}" for name in names if name != _SIGN])

    def write_intent(self, intent: Intent) -> None:
        document = {
            "flag": intent.flag,
            "names": intent.names,
            "kept": intent.kept,
            "flags": intent.flags,
            "manifest": render_manifest(intent.manifest).decode(),
        }
        self._write(_INTENT, document)

    def read_intent(self) -> Intent | None:
        """What `write_intent` wrote; None if the slot was never prepared, or is gone."""
        document = read_document(self.fs, f"{self.prefix}/{_INTENT}")
        if document is None:
            return None
        return Intent(
            manifest=parse_manifest(document["manifest"], store=self.store, path=self.path),
            flag=document["flag"],
            names=tuple(document["names"]),
            kept=tuple(document.get("kept", ())),
            flags=tuple(document.get("flags", ())),
        )

    def remove_intent(self) -> None:
        remove_objects(self.fs, [f"{self.prefix}/{_INTENT}"])

    def list_standing(self) -> dict[str, ObjectFile]:
        """What stands at the path, with its manifest and a marker, but nothing that a copy is writing there."""
        files = list_below(self.fs, self.target).files
        unfinished = {""}
        if PUBLISHING_NAME in files and (token := read_marker(self.fs, self.target)) is not None:
            unfinished |= replace(self, token=token).read_places()
        return {name: file for name, file in files.items() if name not in unfinished}

    def begin(self, *, take_over: bool = False) -> bool:
        """Put our marker into the instance; False if another's is there that is not to be taken over."""
        return put_marker(self.fs, self.target, self.token, take_over=take_over)

    def occupy(self) -> bool:
        """Put our marker where nothing stands; False, and no trace of it, if something does."""
        if not self.begin():
            return False
        is_vacant = list_below(self.fs, self.target).files.keys() == {PUBLISHING_NAME}
        if not is_vacant:
            remove_objects(self.fs, [f"{self.target}/{PUBLISHING_NAME}"])
        return is_vacant

    def roll_forward(self, intent: Intent, there: Collection[str] | None = None) -> None:
        """Make the instance what the intent says, from any state between; then remove marker and slot.

        `there` are the objects of the instance if they were listed just now.
        Before every step the marker is read again: whoever finds another's there, or none, stops. A request that is
        on its way at that moment is the only thing that cannot be called back.
        """
        before = list_objects(self.fs, self.target).files if there is None else there
        closing = [*intent.all_flags, MANIFEST_NAME]
        keep = {*intent.names, *intent.kept, *closing, PUBLISHING_NAME}
        for name in (*closing, ""):
            if name in before:
                self._in_turns(self._remove, [name])
        sizes = {entry.path: entry.size for entry in intent.manifest.entries}
        self._in_turns(partial(self._copy, sizes), intent.names)
        self._in_turns(self._remove, [name for name in before if name and name not in keep])
        self._in_turns(self._close, [intent])
        self._in_turns(self._remove, [PUBLISHING_NAME])
        self.clear()

    def _in_turns(self, work: Callable[[Item], None], items: Sequence[Item]) -> None:
        """Do the same with many objects, some at a time, while the publication is ours."""
        for start in range(0, len(items), _BATCH):
            if read_marker(self.fs, self.target) != self.token:
                reason = "another publication has overtaken it"
                raise InstanceChangingError(store=self.store, path=self.path, reason=reason)
            each(work, items[start : start + _BATCH])

    def _remove(self, name: str) -> None:
        remove_objects(self.fs, [f"{self.target}/{name}".rstrip("/")])

    def _copy(self, sizes: Mapping[str, int], name: str) -> None:
        copy_object(self.fs, f"{self.data}/{name}", f"{self.target}/{name}", sizes.get(name))

    def _close(self, intent: Intent) -> None:
        """Write the manifest and then the flags, that of the whole instance last."""
        put_object(self.fs, f"{self.target}/{MANIFEST_NAME}", render_manifest(intent.manifest))
        for flag in intent.all_flags[::-1]:
            put_object(self.fs, f"{self.target}/{flag}", b"")


def staging_prefix(root: str) -> str:
    return f"{root}/.feed-assets/staging"


def read_marker(fs: AbstractFileSystem, target: str) -> str | None:
    """The token of the publication that is under way in an instance; None if there is none."""
    marker = read_document(fs, f"{target}/{PUBLISHING_NAME}")
    return None if marker is None else str(marker["token"])


def put_marker(fs: AbstractFileSystem, target: str, token: str, *, take_over: bool = False) -> bool:
    """Put a marker into an instance; False if another's is there that is not to be taken over.

    One of the same token is taken for this one: the request may have been answered too late and been repeated.
    """
    marker = json.dumps({"version": 1, "token": token}).encode()
    try:
        put_object(fs, f"{target}/{PUBLISHING_NAME}", marker, is_new=not take_over)
    except FileExistsError:
        return read_marker(fs, target) == token
    return True
