"""Move one instance of an object store into the trash and back, in steps: copy, compare, then delete.

A record in the trash, written before each step, lists the objects of the move and its progress. A repeat can therefore
continue, and an object that arrived later is never deleted. While objects are deleted or restored, the instance has the
marker of a publication: it counts as PARTIAL, and a publisher and the move notice each other.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from feed_assets.storage.object.client import ObjectClient, ObjectFile
from feed_assets.storage.object.listings import MOVING
from feed_assets.storage.object.staged_objects import put_marker, read_marker
from feed_assets.storage.object.tree import CopyDiffersError, copy_exactly, key_of, list_objects, read_object
from feed_assets.storage.paths import PUBLISHING_NAME, is_content, path_name
from feed_assets.storage.records import Moved, Outcome

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
            files = tuple((file.path, file.size, file.tag) for file in present.values())
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

    def _present(self) -> dict[str, ObjectFile]:
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


def _is_same(file: ObjectFile | None, size: int, tag: str) -> bool:
    return file is not None and (file.size, file.tag) == (size, tag)


def _is_unchanged(move: MoveRecord, present: Mapping[str, ObjectFile]) -> bool:
    """Return whether an instance has exactly the objects of the record."""
    recorded = {name: (size, tag) for name, size, tag in move.files}
    return {name: (file.size, file.tag) for name, file in present.items()} == recorded
