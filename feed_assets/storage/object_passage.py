"""The way of one instance of an object store into the trash and back: copied, compared, then deleted, in steps.

A record in the trash, written before each step, says which objects the move is about and how far it has come; so a
repeat goes on, and an object that came later is never deleted. While objects are deleted or put back, the marker of a
publication stands in the instance: it counts as PARTIAL, and a publisher and we notice one another.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from fsspec import AbstractFileSystem

from feed_assets.storage.manifests import read_entry
from feed_assets.storage.object_looks import MOVING
from feed_assets.storage.object_requests import put_object
from feed_assets.storage.object_slot import put_marker, read_marker
from feed_assets.storage.object_tree import ObjectFile, each, list_objects, open_object, read_object, remove_objects
from feed_assets.storage.paths import PUBLISHING_NAME, is_content, path_name
from feed_assets.storage.records import Moved, Outcome

_BATCH = 64


class Step(StrEnum):
    """How far a move has come."""

    COPYING = "COPYING"
    """The instance is at its place, whole."""
    TAKING = "TAKING"
    """It is in the trash, whole, and being deleted at its place."""
    TAKEN = "TAKEN"
    RETURNING = "RETURNING"
    """It is in the trash, whole, and being copied to its place."""
    RETURNED = "RETURNED"
    """It is at its place, whole; what is left in the trash is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What the record of a move says: `files` are (name, size, tag) of every object when the move began."""

    path: str
    flag: str | None
    step: Step
    files: tuple[tuple[str, int, str], ...]

    def render(self) -> bytes:
        document = {"version": 1, "path": self.path, "flag": self.flag, "step": self.step, "files": self.files}
        return json.dumps(document).encode()

    @classmethod
    def parse(cls, text: bytes) -> Self:
        document = json.loads(text)
        files = tuple((str(name), int(size), str(tag)) for name, size, tag in document["files"])
        return cls(path=document["path"], flag=document["flag"], step=Step(document["step"]), files=files)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)


class OvertakenError(Exception):
    """Somebody else has begun to publish the instance."""


class CopyDiffersError(OSError):
    """What was written is not what was read: a fault of the storage, or the object has changed since."""


class ObjectPassage:
    """The move of the instance at `path` in one sweep, whose objects in the trash are below `prefix`."""

    def __init__(self, fs: AbstractFileSystem, *, root: str, prefix: str, path: str) -> None:
        self._fs = fs
        self._path = path
        self._target = f"{root}/{path}"
        self._kept = f"{prefix}/tree/{path}"
        self._record = f"{prefix}/moves/{path_name(path)}.json"
        self._token = f"{MOVING}{path_name(prefix)}"

    def find(self) -> Move | None:
        """What the record says; None if there is none."""
        text = read_object(self._fs, self._record)
        return None if text is None else Move.parse(text)

    def record(self, move: Move) -> Move:
        put_object(self._fs, self._record, move.render())
        return move

    def put(self, flag: str | None) -> Moved:
        """Go on with the move until the instance is in the trash."""
        move = self.find()
        if move is None:
            present = list_objects(self._fs, self._target).files
            if not present:
                return self._answer(Outcome.VANISHED, "nothing is there")
            if PUBLISHING_NAME in present:
                return self._answer(Outcome.REFUSED, "a publication of it is under way")
            files = tuple((file.path, file.size, file.tag) for file in present.values())
            move = self.record(Move(path=self._path, flag=flag, step=Step.COPYING, files=files))
        match move.step:
            case Step.COPYING:
                if (taking := self._copy(move)) is None:
                    return self._answer(Outcome.CHANGED, "it changed while it was copied")
                return self._take(taking)
            case Step.TAKING:
                return self._take(move)
            case Step.TAKEN:
                self.release()
                if self._present():
                    reason = "this sweep has taken another one away before; what stands there came later"
                    return self._answer(Outcome.CHANGED, reason)
                return self._answer(Outcome.ALREADY, "this sweep has taken it away before")
            case Step.RETURNING | Step.RETURNED:
                return self._answer(Outcome.REFUSED, "its restore broke off: restore it again first")

    def restore(self) -> Moved:
        """Go on with the move until the instance is at its place and nothing of it in the trash."""
        move = self.find()
        if move is None:
            return self._answer(Outcome.LOST, "it is not in the trash")
        if move.step is Step.COPYING:
            return self._give_up(move)
        if move.step in (Step.TAKING, Step.TAKEN):
            present = self._present()
            left = {name for name, size, tag in move.files if _is_same(present.get(name), size, tag)}
            if (move.step is Step.TAKEN and present) or present.keys() - left or not self._begin(move):
                return self._answer(Outcome.OCCUPIED, "something stands in its place")
            move = self.record(replace(move, step=Step.RETURNING))
        if move.step is Step.RETURNING:
            try:
                self._copy_back(move)
            except OvertakenError:
                self.record(replace(move, step=Step.TAKEN))
                return self._answer(Outcome.OCCUPIED, "another publication has begun in its place")
            move = self.record(replace(move, step=Step.RETURNED))
        self.release()
        self.forget(move)
        return self._answer(Outcome.MOVED, None, move)

    def forget(self, move: Move) -> None:
        """Remove what the trash holds of it, the record last."""
        remove_objects(self._fs, [_key(self._kept, name) for name, _, _ in move.files])
        remove_objects(self._fs, [self._record])

    def abandon(self, move: Move) -> None:
        """Undo the beginning of a move by which nothing was deleted."""
        self.release()
        self.forget(move)

    def _copy(self, move: Move) -> Move | None:
        """Copy all objects into the trash and compare them; None, and no trace, if the instance did not hold still."""
        present = self._present()
        if _is_unchanged(move, present):
            try:
                self._copy_all([name for name, _, _ in move.files], self._target, present, self._kept)
            except (FileNotFoundError, CopyDiffersError):
                if _is_unchanged(move, self._present()):
                    raise
            if self._begin(move) and _is_unchanged(move, self._present()):
                return self.record(replace(move, step=Step.TAKING))
        self.abandon(move)
        return None

    def _take(self, move: Move) -> Moved:
        """Delete at its place what the trash holds, the flag first; what is there beside it came later and stays."""
        present = self._present()
        ours = [name for name, size, tag in move.files if _is_same(present.get(name), size, tag)]
        first = [name for name in ours if name == move.flag]
        try:
            for names in (first, [name for name in ours if name not in first]):
                self._in_turns(
                    move, names, lambda batch: remove_objects(self._fs, [_key(self._target, n) for n in batch])
                )
        except OvertakenError:
            self.record(replace(move, step=Step.TAKEN))
            reason = "another publication has begun while it was taken away; the trash holds what was there"
            return self._answer(Outcome.CHANGED, reason)
        self.record(replace(move, step=Step.TAKEN))
        self.release()
        if present.keys() - set(ours):
            return self._answer(Outcome.CHANGED, "objects came into it while it was taken away; they are left there")
        return self._answer(Outcome.MOVED, None, move)

    def _copy_back(self, move: Move) -> None:
        """Copy all objects to their place and compare them, the flag last. Raises `OvertakenError`."""
        kept = list_objects(self._fs, self._kept).files
        names = sorted((name for name, _, _ in move.files), key=lambda name: not is_content(name, None))
        for group in ([name for name in names if name != move.flag], [name for name in names if name == move.flag]):
            self._in_turns(move, group, lambda batch: self._copy_all(batch, self._kept, kept, self._target))

    def _give_up(self, move: Move) -> Moved:
        """Answer a restore of what was never deleted."""
        present = self._present()
        if _is_unchanged(move, present):
            self.abandon(move)
            return self._answer(Outcome.MOVED, None, move)
        if present:
            return self._answer(Outcome.OCCUPIED, "it changed before it was taken away, and stands there")
        kept = list_objects(self._fs, self._kept).files
        if all(name in kept and kept[name].size == size for name, size, _ in move.files):
            self.record(replace(move, step=Step.TAKEN))
            return self.restore()
        return self._answer(Outcome.LOST, "somebody else removed it before all of it was in the trash")

    def _copy_all(self, names: Sequence[str], origin: str, there: Mapping[str, ObjectFile], to: str) -> None:
        """Copy objects that are listed `there`, those that are copied already excepted, and compare each."""

        def copy(name: str) -> None:
            self._fs.cp_file(_key(origin, name), _key(to, name))

        def check(name: str) -> None:
            if not self._is_copied(origin, there[name], to, copied.get(name)):
                raise CopyDiffersError(f"the copy of {name!r} is not what was copied")

        copied = list_objects(self._fs, to).files
        each(copy, [name for name in names if not self._is_copied(origin, there.get(name), to, copied.get(name))])
        copied = list_objects(self._fs, to).files
        each(check, names)

    def _is_copied(self, origin: str, file: ObjectFile | None, to: str, copy: ObjectFile | None) -> bool:
        """Whether a copy has the content of an object: by the storage's checksums if they agree, else by reading."""
        if file is None or copy is None or file.size != copy.size:
            return False
        if file.checksum and file.checksum == copy.checksum:
            return True
        return self._read(origin, file) == self._read(to, copy)

    def _read(self, prefix: str, file: ObjectFile) -> str:
        with open_object(self._fs, _key(prefix, file.path), file.size) as stream:
            return read_entry(file.path, stream).checksum

    def _present(self) -> dict[str, ObjectFile]:
        files = list_objects(self._fs, self._target).files
        return {name: file for name, file in files.items() if name != PUBLISHING_NAME}

    def _begin(self, move: Move) -> bool:
        """Put our marker into the instance; False if another stands there. A single object needs none."""
        if _is_single(move):
            return True
        return put_marker(self._fs, self._target, self._token)

    def release(self) -> None:
        """Remove our marker, if it is there."""
        if read_marker(self._fs, self._target) == self._token:
            remove_objects(self._fs, [f"{self._target}/{PUBLISHING_NAME}"])

    def _in_turns(self, move: Move, names: Sequence[str], work: Callable[[Sequence[str]], None]) -> None:
        """Work on many objects, some at a time, while the instance is ours."""
        for start in range(0, len(names), _BATCH):
            if not _is_single(move) and read_marker(self._fs, self._target) != self._token:
                raise OvertakenError
            work(names[start : start + _BATCH])

    def _answer(self, outcome: Outcome, reason: str | None, move: Move | None = None) -> Moved:
        if move is None:
            return Moved(path=self._path, outcome=outcome, reason=reason)
        return Moved(path=self._path, outcome=outcome, reason=reason, bytes=move.bytes, files=len(move.files))


def _key(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if name else prefix


def _is_single(move: Move) -> bool:
    return [name for name, _, _ in move.files] == [""]


def _is_same(file: ObjectFile | None, size: int, tag: str) -> bool:
    return file is not None and (file.size, file.tag) == (size, tag)


def _is_unchanged(move: Move, present: Mapping[str, ObjectFile]) -> bool:
    """Whether an instance is exactly what the record says."""
    recorded = {name: (size, tag) for name, size, tag in move.files}
    return {name: (file.size, file.tag) for name, file in present.items()} == recorded
