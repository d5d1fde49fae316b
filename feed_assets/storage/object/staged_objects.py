"""Manage the objects of one staging on an object store, and publish them as an instance.

They have the prefix `staging/<token>/<name of the path>/`. The header `staging.json` names the path and exists while
the staging may be published. `data/<generation>/…` has the files. `intent.json` exists once everything is prepared. A
publication begins when a marker with the token of the staging is created inside the instance, and ends when the marker
is removed. In between the instance counts as PARTIAL, and any process can finish the work from marker and intent.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from feed_assets.storage.errors import InstanceChangingError, PlaceOccupiedError, StagingLostError, StorageError
from feed_assets.storage.manifests import parse_manifest, render_manifest
from feed_assets.storage.object.client import ObjectClient, each, is_content_of
from feed_assets.storage.object.tree import copy_exactly, key_of, list_objects, read_document, remove_below
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    MANIFEST_NAME,
    PUBLISHING_NAME,
    SINGLE_FILE,
    parse_token,
    path_name,
)
from feed_assets.storage.records import Guard, Manifest

STAGING_PREFIX = f"{CONTROL_FOLDER}/staging"
HEADER, INTENT = "staging.json", "intent.json"
MOVING = "trash-"
"""The prefix of the marker of a move to the trash; it has the same name as the marker of a publication."""
_BATCH = 64
_TRIES = 10

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The content that a prepared staging gives to an instance.

    `files` maps all staged files to the generation that wrote them; without a manifest they are an exact copy, which
    replaces nothing. `kept` are files of the instance that stay unchanged. `flags` are written last, the first of them
    at the very end.
    """

    manifest: Manifest | None
    flags: tuple[str, ...]
    files: Mapping[str, int]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedObjects:
    """The staging of a path and a token, for the instance at the key `path`; `store` is the URL of the root."""

    client: ObjectClient
    store: str
    path: str
    token: str

    @property
    def prefix(self) -> str:
        return f"{STAGING_PREFIX}/{self.token}/{path_name(self.path)}"

    def data(self, generation: int) -> str:
        """Return the prefix for the files of one generation of writers."""
        return f"{self.prefix}/data/{generation}"

    def make(self, names: Collection[str] | None = None) -> None:
        """Recreate the staging, empty and in its first generation. `names` are its current objects, if known."""
        self.remove(names)
        try:
            self.write_header(1, is_new=True)
        except FileExistsError:
            if self.read_generation() != 1:
                raise self._take_over_conflict() from None

    def list_names(self) -> dict[str, int]:
        """Return the objects of the staging, relative to its prefix, with their sizes."""
        return {name: file.size for name, file in self.client.list(self.prefix).files.items()}

    def keep(self, names: Mapping[str, str]) -> None:
        """Rename files of the first generation, by their present names, and remove the others."""
        data = self.data(1)
        written = self.client.list(data).files
        moved = [(name, file.size) for name, file in written.items() if name in names]
        each(lambda file: self.client.copy(f"{data}/{file[0]}", f"{data}/{names[file[0]]}", file[1]), moved)
        self.client.remove([f"{data}/{name}" for name in written.keys() - names.values()])

    def read_generation(self) -> int | None:
        """Return the generation of the writers; None if the staging does not exist."""
        document = read_document(self.client, f"{self.prefix}/{HEADER}")
        return None if document is None else int(document["generation"])

    def write_header(self, generation: int, *, is_new: bool = False, replaces: object = None) -> None:
        """Write the header with the generation that may write. The conditions are those of `ObjectClient.put`."""
        text = _render({"path": self.path, "generation": generation})
        self.client.put(f"{self.prefix}/{HEADER}", text, is_new=is_new, replaces=replaces)

    def take_over(self, generation: int | None = None) -> int | None:
        """Give the staging the next generation and return it; None if the staging does not exist.

        Raises `InstanceChangingError` if another process takes over the staging at the same time, and
        `StagingLostError` if it is no longer that of `generation`.
        """
        try:
            text, version = self.client.get_versioned(f"{self.prefix}/{HEADER}")
        except FileNotFoundError:
            return None
        former = int(json.loads(text)["generation"])
        if generation is not None and former != generation:
            raise self._lost()
        try:
            self.write_header(former + 1, replaces=version)
        except FileExistsError:
            if self.read_generation() != former + 1:
                raise self._take_over_conflict() from None
        except FileNotFoundError:
            raise self._take_over_conflict() from None
        if former > 1:  # the first generation of a copy has no intent
            self.client.remove([f"{self.prefix}/{INTENT}"])
        return former + 1

    def remove(self, names: Collection[str] | None = None) -> None:
        """Remove the staging, the header first, so that a half-removed staging never looks like a valid one."""
        names = self.list_names() if names is None else names
        if HEADER in names:
            self.client.remove([f"{self.prefix}/{HEADER}"])
        self.client.remove([f"{self.prefix}/{name}" for name in names if name != HEADER])

    def write_intent(self, intent: Intent) -> None:
        document = {
            "flags": intent.flags,
            "files": dict(intent.files),
            "kept": intent.kept,
            "manifest": render_manifest(intent.manifest).decode() if intent.manifest else None,
        }
        self.client.put(f"{self.prefix}/{INTENT}", _render(document))

    def read_intent(self) -> Intent | None:
        """Return the intent of the staging; None if it was never prepared or no longer exists."""
        document = read_document(self.client, f"{self.prefix}/{INTENT}")
        if document is None:
            return None
        text = document["manifest"]
        return Intent(
            manifest=None if text is None else parse_manifest(text, store=self.store, path=self.path),
            flags=tuple(document["flags"]),
            files=document["files"],
            kept=tuple(document["kept"]),
        )

    def begin(self, guard: Guard) -> None:
        """Finish an interrupted publication of another staging, call the guard, then put the marker of this staging."""
        for _ in range(_TRIES):
            lost = None
            marker = _read_marker(self.client, self.path)
            if marker is not None and marker[0] != self.token:
                if replace(self, token=marker[0]).read_intent() is None:
                    lost = marker[1]
                else:
                    recover(self)
            guard()
            if put_marker(self.client, self.path, self.token, replaces=lost):
                return
        raise InstanceChangingError(store=self.store, path=self.path, reason="others keep publishing it")

    def publish_exactly(self, intent: Intent, guard: Guard, names: Collection[str]) -> None:
        """Publish an exact copy in a place where nothing is; a single file appears in one step, without a marker.

        Raises `PlaceOccupiedError` if something is there.
        """

        def guard_place() -> None:
            guard()
            self._require_vacant()

        if SINGLE_FILE in intent.files:
            guard_place()
            origin = f"{self.data(intent.files[SINGLE_FILE])}/{SINGLE_FILE}"
            copy_exactly(self.client, [""], origin, list_objects(self.client, origin).files, self.path)
            self.remove(names)
            return
        self.begin(guard_place)
        self.roll_forward(intent, names)

    def _require_vacant(self) -> None:
        if list_objects(self.client, self.path).files.keys() - {PUBLISHING_NAME}:
            raise PlaceOccupiedError(store=self.store, path=self.path)

    def roll_forward(self, intent: Intent, names: Collection[str] | None = None) -> None:
        """Publish the intent from any intermediate state, then remove marker and staging.

        `names` are the objects of the staging, if known. It is no error if another process finishes this publication
        meanwhile.
        """
        try:
            self._roll_forward(intent, names)
        except (FileNotFoundError, InstanceChangingError):
            if read_marker(self.client, self.path) is not None or not self._is_published(intent):
                raise

    def _roll_forward(self, intent: Intent, names: Collection[str] | None) -> None:
        """Publish in steps; read the marker before every step and stop if it is missing or belongs to another staging.

        Only a request that is already in flight at that moment cannot be stopped.
        """
        if intent.manifest is None:
            self._roll_exactly(intent)
        else:
            self._replace(intent, intent.manifest)
        self._in_batches(self.client.remove, [self.client.marker(self.path)])
        self.remove(names)

    def _replace(self, intent: Intent, manifest: Manifest) -> None:
        """Replace the content of the instance by that of the intent."""
        before = list_objects(self.client, self.path).files
        closing = [*intent.flags, MANIFEST_NAME]
        keep = {*intent.files, *intent.kept, *closing, PUBLISHING_NAME}
        is_fresh = is_content_of(before.get(PUBLISHING_NAME), _render({"token": self.token}))  # as the listing proves
        for name in (*closing, ""):
            if name in before:
                self._in_batches(self.client.remove, [key_of(self.path, name)], is_fresh=is_fresh)
                is_fresh = False
        sizes = {entry.path: entry.size for entry in manifest.entries}

        def copy(name: str) -> None:
            key = f"{self.data(intent.files[name])}/{name}"
            self.client.copy(key, f"{self.path}/{name}", sizes.get(name))

        self._in_batches(lambda names: each(copy, names), sorted(intent.files), is_fresh=is_fresh)
        others = [f"{self.path}/{name}" for name in before if name and name not in keep]
        self._in_batches(self.client.remove, others)
        self._in_batches(lambda _: self._close(intent, manifest), [manifest])

    def _roll_exactly(self, intent: Intent) -> None:
        """Copy all files of an exact copy to the instance, its flag last, and compare them."""
        names = sorted(intent.files, key=lambda name: (name in intent.flags, intent.files[name], name))
        for generation, group in groupby(names, key=intent.files.__getitem__):
            origin = self.data(generation)
            there = list_objects(self.client, origin).files
            copy = partial(copy_exactly, self.client, origin=origin, there=there, to=self.path)
            self._in_batches(copy, list(group))

    def _in_batches(
        self, work: Callable[[Sequence[Item]], object], items: Sequence[Item], *, is_fresh: bool = False
    ) -> None:
        """Call `work` for batches of objects; check before each that the marker is still that of this staging.

        `is_fresh` says that the marker was checked just now, so the first batch needs no check.

        Raises:
            InstanceChangingError: the marker is missing or belongs to another staging.
        """
        for start in range(0, len(items), _BATCH):
            if not (is_fresh and start == 0) and read_marker(self.client, self.path) != self.token:
                reason = "another publication has overtaken it"
                raise InstanceChangingError(store=self.store, path=self.path, reason=reason)
            work(items[start : start + _BATCH])

    def _close(self, intent: Intent, manifest: Manifest) -> None:
        """Write the manifest, then the flags, the flag of the whole instance last."""
        self.client.put(f"{self.path}/{MANIFEST_NAME}", render_manifest(manifest))
        for flag in intent.flags[::-1]:
            self.client.put(f"{self.path}/{flag}", b"")

    def _is_published(self, intent: Intent) -> bool:
        if intent.manifest is None:
            return intent.files.keys() <= self.client.list(self.path).files.keys()
        with suppress(FileNotFoundError):
            return self.client.get(f"{self.path}/{MANIFEST_NAME}") == render_manifest(intent.manifest)
        return False

    def _lost(self) -> StagingLostError:
        return StagingLostError(store=self.store, path=self.path, token=self.token)

    def _take_over_conflict(self) -> InstanceChangingError:
        reason = f"another process is taking over the staging {self.token!r}"
        return InstanceChangingError(store=self.store, path=self.path, reason=reason)


def recover(objects: StagedObjects, *, if_possible: bool = False) -> bool:
    """Finish an interrupted publication of the path of a staging, from any staging; return whether there was one.

    Raises `StorageError` if the staging of that publication is gone; with `if_possible`, returns False instead.
    """
    token = read_marker(objects.client, objects.path)
    if token is None:
        return False
    objects = replace(objects, token=parse_token(objects.store, token))
    intent = objects.read_intent()
    if intent is not None:
        objects.roll_forward(intent)
    elif read_marker(objects.client, objects.path) == token:
        if if_possible:
            return False
        raise broken_off(objects.store, objects.path, token)
    return True


def broken_off(store: str, path: str, token: str) -> StorageError:
    """Build the error for an interrupted step that only its author can finish."""
    if token.startswith(MOVING):
        reason, next_step = "a move to the trash, or back, broke off", "Repeat the sweep or its undo."
    else:
        reason = f"a publication broke off and its staging {token!r} is gone"
        next_step = "Produce and publish the instance again."
    return StorageError(store=store, path=path, reason=reason, next_step=next_step)


def sweep_staging(staged: Callable[[str, str], StagedObjects], client: ObjectClient, token: str, name: str) -> None:
    """Remove the staging with this name in the hidden folder; finish its publication first, if that has begun. `staged`
    returns the staging of a path and a token.
    """
    prefix = f"{STAGING_PREFIX}/{token}/{name}"
    if (header := read_document(client, f"{prefix}/{HEADER}")) is not None:
        objects = staged(str(header["path"]), token)
        if read_marker(client, objects.path) == token:
            recover(objects)
        objects.remove()
    remove_below(client, prefix)


def read_marker(client: ObjectClient, target: str) -> str | None:
    """Return the token of the publication in progress in an instance; None if there is none."""
    found = _read_marker(client, target)
    return None if found is None else found[0]


def put_marker(client: ObjectClient, target: str, token: str, *, replaces: object = None) -> bool:
    """Put a marker into an instance, and return whether it is there.

    Returns False if another marker exists, unless `replaces` is its version. A marker with the same token counts as
    this one: a request that was answered late may have been repeated.
    """
    try:
        data = _render({"token": token})
        client.put(client.marker(target), data, is_new=replaces is None, replaces=replaces)
    except FileExistsError:
        return read_marker(client, target) == token
    except FileNotFoundError:
        if replaces is None:
            raise
        return False
    return True


def _read_marker(client: ObjectClient, target: str) -> tuple[str, object] | None:
    try:
        text, version = client.get_versioned(client.marker(target))
    except FileNotFoundError:
        return None
    return str(json.loads(text)["token"]), version


def _render(document: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": 1, **document}).encode()
