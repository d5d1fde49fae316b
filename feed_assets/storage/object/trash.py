"""Implement the trash of an object store.

`.feed-assets/trash/<sweep>/` has a record of each move in `moves/` and the objects in `tree/<path>/`. It also has
`purging.json` from the beginning of a purge to its end.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from feed_assets.storage.errors import InstanceNotFoundError, PathRefusedError
from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import ObjectClient, UnusableKeyError, each
from feed_assets.storage.object.staged_objects import MOVING, put_marker, read_marker
from feed_assets.storage.object.tree import (
    CopyDiffersError,
    copy_exactly,
    key_of,
    list_objects,
    read_object,
    remove_below,
)
from feed_assets.storage.paths import CONTROL_FOLDER, PUBLISHING_NAME, is_content, parse_path, parse_token, path_name
from feed_assets.storage.port import InstanceStore, Kept, Trash
from feed_assets.storage.records import Moved, Outcome, Purged

_BATCH = 64


class MoveStep(StrEnum):
    """The progress of a move."""

    COPYING = "COPYING"
    """The instance is complete at its path."""
    TAKING = "TAKING"
    """It is complete in the trash and is being deleted at its path."""
    TAKEN = "TAKEN"
    RETURNING = "RETURNING"
    """It is complete in the trash and is being copied to its path."""
    RETURNED = "RETURNED"
    """It is complete at its path; its remains in the trash are useless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """The record of a move: `files` are (name, size, tag) of every object at the start of the move."""

    path: str
    flag: str | None
    step: MoveStep
    files: tuple[tuple[str, int, str], ...]

    def render(self) -> bytes:
        document = {"version": 1, "path": self.path, "flag": self.flag, "step": self.step, "files": self.files}
        return json.dumps(document).encode()

    @classmethod
    def parse(cls, text: bytes) -> Self:
        document = json.loads(text)
        files = tuple((str(name), int(size), str(tag)) for name, size, tag in document["files"])
        return cls(path=document["path"], flag=document["flag"], step=MoveStep(document["step"]), files=files)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)


class OvertakenError(Exception):
    """Another program has begun to publish the instance."""


class TrashMove:
    """The move of the instance at `path` in one sweep; its objects in the trash are below `prefix`."""

    def __init__(self, client: ObjectClient, *, prefix: str, path: str) -> None:
        self._client = client
        self._path = path
        self._kept = f"{prefix}/tree/{path}"
        self._record = f"{prefix}/moves/{path_name(path)}.json"
        self._token = f"{MOVING}{path_name(prefix)}"

    def find(self) -> MoveRecord | None:
        """Return the record of the move; None if there is none."""
        text = read_object(self._client, self._record)
        return None if text is None else MoveRecord.parse(text)

    def record(self, move: MoveRecord) -> MoveRecord:
        self._client.put(self._record, move.render())
        return move

    def put(self, flag: str | None) -> Moved:
        """Continue the move until the instance is in the trash."""
        move = self.find()
        if move is None:
            present = list_objects(self._client, self._path).files
            if not present:
                return self._answer(Outcome.VANISHED, "it does not exist")
            if PUBLISHING_NAME in present:
                return self._answer(Outcome.REFUSED, "a publication of it is in progress")
            files = tuple((file.path, file.size, file.version) for file in present.values())
            move = self.record(MoveRecord(path=self._path, flag=flag, step=MoveStep.COPYING, files=files))
        match move.step:
            case MoveStep.COPYING:
                if (taking := self._copy(move)) is None:
                    return self._answer(Outcome.CHANGED, "it changed while it was copied")
                return self._take(taking)
            case MoveStep.TAKING:
                return self._take(move)
            case MoveStep.TAKEN:
                self.release()
                if self._present():
                    reason = "this sweep has already removed another one; the present one came later"
                    return self._answer(Outcome.CHANGED, reason)
                return self._answer(Outcome.ALREADY, "this sweep has already removed it")
            case MoveStep.RETURNING | MoveStep.RETURNED:
                return self._answer(Outcome.REFUSED, "its restore was interrupted: restore it again first")

    def keep(self, flag: str | None) -> Moved:
        """Copy the instance into the trash; nothing is deleted, and a copy that is broken off is begun anew."""
        if self.find() is not None:
            return self._answer(Outcome.ALREADY, "this sweep has one already")
        present = self._present()
        if not present:
            return self._answer(Outcome.VANISHED, "it does not exist")
        files = tuple((file.path, file.size, file.version) for file in present.values())
        move = MoveRecord(path=self._path, flag=flag, step=MoveStep.TAKEN, files=files)
        copy_exactly(self._client, list(present), self._path, present, self._kept)
        if not _is_unchanged(move, self._present()):
            return self._answer(Outcome.CHANGED, "it changed while it was copied")
        self.record(move)
        return self._answer(Outcome.MOVED, None, move)

    def restore(self) -> Moved:
        """Continue the move until the instance is at its path and nothing of it is in the trash."""
        move = self.find()
        if move is None:
            return self._answer(Outcome.LOST, "it is not in the trash")
        if move.step is MoveStep.COPYING:
            return self._restore_undeleted(move)
        if move.step in (MoveStep.TAKING, MoveStep.TAKEN):
            present = self._present()
            left = {name for name, size, tag in move.files if _is_same(present.get(name), size, tag)}
            if (move.step is MoveStep.TAKEN and present) or present.keys() - left or not self._put_marker(move):
                return self._answer(Outcome.OCCUPIED, "something else is in its place")
            move = self.record(replace(move, step=MoveStep.RETURNING))
        if move.step is MoveStep.RETURNING:
            try:
                self._copy_back(move)
            except OvertakenError:
                self.record(replace(move, step=MoveStep.TAKEN))
                return self._answer(Outcome.OCCUPIED, "another publication has begun in its place")
            move = self.record(replace(move, step=MoveStep.RETURNED))
        self.release()
        self.forget(move)
        return self._answer(Outcome.MOVED, None, move)

    def settle(self) -> bool:
        """Finish an interrupted move, or undo it if nothing was deleted; return whether the trash has the instance."""
        move = self.find()
        if move is None:
            return False
        match move.step:
            case MoveStep.COPYING:
                self.abandon(move)
            case MoveStep.TAKING:
                self._take(move)
            case MoveStep.TAKEN:
                self.release()
            case MoveStep.RETURNING | MoveStep.RETURNED:
                self.restore()
        return self.find() is not None

    def forget(self, move: MoveRecord) -> None:
        """Remove the instance's objects from the trash, the record last."""
        self._client.remove([key_of(self._kept, name) for name, _, _ in move.files])
        self._client.remove([self._record])

    def abandon(self, move: MoveRecord) -> None:
        """Undo a move that has not deleted anything."""
        self.release()
        self.forget(move)

    def _copy(self, move: MoveRecord) -> MoveRecord | None:
        """Copy all objects into the trash and compare them; undo and return None if the instance changed meanwhile."""
        present = self._present()
        if _is_unchanged(move, present):
            try:
                names = [name for name, _, _ in move.files]
                copy_exactly(self._client, names, self._path, present, self._kept)
            except (FileNotFoundError, CopyDiffersError):
                if _is_unchanged(move, self._present()):
                    raise
            if self._put_marker(move) and _is_unchanged(move, self._present()):
                return self.record(replace(move, step=MoveStep.TAKING))
        self.abandon(move)
        return None

    def _take(self, move: MoveRecord) -> Moved:
        """Delete the trashed objects at their path, the flag first; other objects arrived later and stay."""
        present = self._present()
        undeleted = [name for name, size, tag in move.files if _is_same(present.get(name), size, tag)]
        first = [name for name in undeleted if name == move.flag]
        try:
            for names in (first, [name for name in undeleted if name not in first]):
                self._in_batches(move, names, lambda batch: self._client.remove([key_of(self._path, n) for n in batch]))
        except OvertakenError:
            self.record(replace(move, step=MoveStep.TAKEN))
            reason = "another publication began during its removal; the trash has the former content"
            return self._answer(Outcome.CHANGED, reason)
        self.record(replace(move, step=MoveStep.TAKEN))
        self.release()
        if present.keys() - set(undeleted):
            return self._answer(Outcome.CHANGED, "objects were added during its removal; they stay")
        return self._answer(Outcome.MOVED, None, move)

    def _copy_back(self, move: MoveRecord) -> None:
        """Copy all objects back to their path and compare them, the flag last. Raises `OvertakenError`."""
        kept = list_objects(self._client, self._kept).files
        names = sorted((name for name, _, _ in move.files), key=lambda name: not is_content(name, None))
        for group in ([name for name in names if name != move.flag], [name for name in names if name == move.flag]):
            self._in_batches(move, group, lambda batch: copy_exactly(self._client, batch, self._kept, kept, self._path))

    def _restore_undeleted(self, move: MoveRecord) -> Moved:
        """Restore an instance from which this move has deleted nothing."""
        present = self._present()
        if _is_unchanged(move, present):
            self.abandon(move)
            return self._answer(Outcome.MOVED, None, move)
        if present:
            return self._answer(Outcome.OCCUPIED, "it changed before its removal, and stays")
        kept = list_objects(self._client, self._kept).files
        if all(name in kept and kept[name].size == size for name, size, _ in move.files):
            self.record(replace(move, step=MoveStep.TAKEN))
            return self.restore()
        return self._answer(Outcome.LOST, "another program removed it before all of it was in the trash")

    def _present(self) -> dict[str, Entry]:
        files = list_objects(self._client, self._path).files
        return {name: file for name, file in files.items() if name != PUBLISHING_NAME}

    def _put_marker(self, move: MoveRecord) -> bool:
        """Put the marker of this move into the instance; return False if another marker exists.

        A single object needs no marker.
        """
        if _is_single(move):
            return True
        return put_marker(self._client, self._path, self._token)

    def release(self) -> None:
        """Remove the marker of this move, if it exists."""
        if read_marker(self._client, self._path) == self._token:
            self._client.remove([f"{self._path}/{PUBLISHING_NAME}"])

    def _in_batches(self, move: MoveRecord, names: Sequence[str], work: Callable[[Sequence[str]], None]) -> None:
        """Call `work` for batches of objects; check before each batch that the marker is still that of this move."""
        for start in range(0, len(names), _BATCH):
            if not _is_single(move) and read_marker(self._client, self._path) != self._token:
                raise OvertakenError
            work(names[start : start + _BATCH])

    def _answer(self, outcome: Outcome, reason: str | None, move: MoveRecord | None = None) -> Moved:
        if move is None:
            return Moved(path=self._path, outcome=outcome, reason=reason)
        return Moved(path=self._path, outcome=outcome, reason=reason, bytes=move.bytes, files=len(move.files))


def _is_single(move: MoveRecord) -> bool:
    return [name for name, _, _ in move.files] == [""]


def _is_same(file: Entry | None, size: int, tag: str) -> bool:
    return file is not None and (file.size, file.version) == (size, tag)


def _is_unchanged(move: MoveRecord, present: Mapping[str, Entry]) -> bool:
    """Return whether an instance has exactly the objects of the record."""
    recorded = {name: (size, tag) for name, size, tag in move.files}
    return {name: (file.size, file.version) for name, file in present.items()} == recorded


_AREA = f"{CONTROL_FOLDER}/trash"


class ObjectTrash(Trash):
    """The trash of an object store."""

    def __init__(self, store: InstanceStore, client: ObjectClient) -> None:
        self.store = store
        self._client = client

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        if self._is_purging(sweep):
            return [Moved(path=path, outcome=Outcome.REFUSED, reason="the sweep is being purged") for path in paths]
        return self._move(sweep, paths, lambda trash_move: trash_move.put(flag))

    def keep(self, sweep: str, path: str, *, flag: str | None = None) -> Moved:
        return self._move(sweep, [path], lambda trash_move: trash_move.keep(flag))[0]

    @contextmanager
    def reading(self, sweep: str, path: str) -> Iterator[Kept]:
        plain = parse_path(self.store.root_url, path)
        kept = f"{self._prefix(sweep)}/tree/{plain}"
        with self.store._translated(""):
            move = None if self._is_purging(sweep) else self._trash_move(sweep, plain).find()
            if move is None:
                raise InstanceNotFoundError(store=self.store.root_url, path=path)
            yield [name for name, _, _ in move.files], lambda name: self._client.chunks(key_of(kept, name))

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        if self._is_purging(sweep):
            return [Moved(path=path, outcome=Outcome.LOST, reason="the sweep is being purged") for path in paths]
        return self._move(sweep, paths, lambda trash_move: trash_move.restore())

    def settle(self, sweep: str, paths: Sequence[str]) -> frozenset[str]:
        if self._is_purging(sweep):
            return frozenset()
        plain = {path: one for path in paths if isinstance(one := self._plain(path), str)}
        with self.store._translated(""):
            removed = each(lambda one: self._trash_move(sweep, one).settle(), list(plain.values()))
        return frozenset(path for path, is_removed in zip(plain, removed, strict=True) if is_removed)

    def purge(self, sweep: str) -> Purged:
        prefix = self._prefix(sweep)
        with self.store._translated(""):
            if not self._is_purging(sweep):
                obstacle = self._settle(sweep)
                if obstacle is not None:
                    return Purged(sweep=sweep, files=0, is_complete=False, obstacle=obstacle)
                if not list_objects(self._client, prefix).files:
                    return Purged(sweep=sweep, files=0, is_complete=True)
                self._client.put(f"{prefix}/purging.json", b"{}")
            kept = len(list_objects(self._client, f"{prefix}/tree").files)
            for part in ("tree", "moves"):
                remove_below(self._client, f"{prefix}/{part}")
            self._client.remove([f"{prefix}/sweep.json"])
            self._client.remove([f"{prefix}/purging.json"])
        return Purged(sweep=sweep, files=kept, is_complete=True)

    def sweeps(self) -> list[str]:
        with self.store._translated(""):
            return sorted(self._client.children(_AREA).folders)

    def contents(self, sweep: str) -> Iterator[str]:
        with self.store._translated(""):
            moves = [] if self._is_purging(sweep) else self._moves(sweep)
        yield from (move.path for move in moves if move.step in (MoveStep.TAKING, MoveStep.TAKEN, MoveStep.RETURNING))

    def holds(self, sweep: str, path: str) -> bool:
        plain = self._plain(path)
        with self.store._translated(""):
            return isinstance(plain, str) and self._trash_move(sweep, plain).find() is not None

    def _prefix(self, sweep: str) -> str:
        return f"{_AREA}/{parse_token(self.store.root_url, sweep)}"

    def _trash_move(self, sweep: str, plain: str) -> TrashMove:
        return TrashMove(self._client, prefix=self._prefix(sweep), path=plain)

    def _is_purging(self, sweep: str) -> bool:
        """Return whether a purge of the sweep has begun."""
        with self.store._translated(""):
            return read_object(self._client, f"{self._prefix(sweep)}/purging.json") is not None

    def _moves(self, sweep: str) -> list[MoveRecord]:
        prefix = f"{self._prefix(sweep)}/moves"
        names = list(list_objects(self._client, prefix).files)
        texts = each(lambda name: read_object(self._client, f"{prefix}/{name}"), names)
        return [MoveRecord.parse(text) for text in texts if text is not None]

    def _settle(self, sweep: str) -> str | None:
        """Settle interrupted moves so that a purge loses nothing; return the obstacle if that is impossible."""
        moves = self._moves(sweep)
        for move in moves:
            if move.step is MoveStep.RETURNING:
                return f"the restore of {move.path!r} broke off: restore it again first"
        each(lambda move: self._trash_move(sweep, move.path).settle(), moves)
        return None

    def _move(self, sweep: str, paths: Sequence[str], move: Callable[[TrashMove], Moved]) -> list[Moved]:
        """Move many paths, several at a time; handle a repeated path after its first move."""
        plain = [self._plain(path) for path in paths]
        first = list(dict.fromkeys(one for one in plain if isinstance(one, str)))
        answers: list[Moved] = []
        with self.store._translated(""):
            early = dict(zip(first, each(lambda one: self._move_one(sweep, one, move), first), strict=True))
            for path, one in zip(paths, plain, strict=True):
                if isinstance(one, Moved):
                    answers.append(one)
                else:
                    answer = early.pop(one) if one in early else self._move_one(sweep, one, move)
                    answers.append(replace(answer, path=path))
        return answers

    def _move_one(self, sweep: str, plain: str, move: Callable[[TrashMove], Moved]) -> Moved:
        """Move one path. An instance with an object that cannot be removed stays as it is."""
        trash_move = self._trash_move(sweep, plain)
        try:
            return move(trash_move)
        except UnusableKeyError as exc:
            begun = trash_move.find()
            if begun is not None and begun.step is not MoveStep.COPYING:
                raise
            if begun is not None:
                trash_move.abandon(begun)
            return Moved(path=plain, outcome=Outcome.REFUSED, reason=exc.obstacle)

    def _plain(self, path: str) -> str | Moved:
        """Return a path without superfluous slashes, or the result for an invalid path."""
        try:
            return parse_path(self.store.root_url, path)
        except PathRefusedError as exc:
            return Moved(path=path, outcome=Outcome.REFUSED, reason=exc.reason)
