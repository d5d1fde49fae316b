"""The trash of an object store.

`.feed-assets/trash/<sweep>/` has a record of each move in `moves/` and the objects in `tree/<path>/`; `purging.json` is
in it from the beginning of a purge to its end.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fsspec import AbstractFileSystem

from feed_assets.storage.archiving import Copied, check_copy, receive_instance
from feed_assets.storage.errors import PathRefusedError
from feed_assets.storage.manifests import read_entry
from feed_assets.storage.object_passage import Move, ObjectPassage, Step
from feed_assets.storage.object_requests import put_object
from feed_assets.storage.object_tree import (
    child_names,
    each,
    list_objects,
    open_object,
    read_object,
    remove_below,
    remove_objects,
)
from feed_assets.storage.paths import CONTROL_FOLDER, parse_path, parse_token
from feed_assets.storage.port import InstanceStore, Trash
from feed_assets.storage.records import Moved, Outcome, Purged


class ObjectTrash(Trash):
    """The trash of a store whose root is the key `root`. `area` is its folder in the hidden folder.

    In a block of `translated` the exceptions of the filesystem become refusals of the store.
    """

    def __init__(
        self,
        store: InstanceStore,
        fs: AbstractFileSystem,
        root: str,
        translated: Callable[[], AbstractContextManager[None]],
        area: str = "trash",
    ) -> None:
        self.store = store
        self._fs = fs
        self._root = root
        self._translated = translated
        self._area = f"{root}/{CONTROL_FOLDER}/{area}"

    def describe(self, sweep: str, document: Mapping[str, object]) -> None:
        key = f"{self._prefix(sweep)}/sweep.json"
        with self._translated():
            put_object(self._fs, key, json.dumps(document, indent=1).encode())

    def find_description(self, sweep: str) -> Mapping[str, object] | None:
        with self._translated():
            text = read_object(self._fs, f"{self._prefix(sweep)}/sweep.json")
        try:
            found = None if text is None else json.loads(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        if self._is_condemned(sweep):
            return [Moved(path=path, outcome=Outcome.REFUSED, reason="the sweep is being purged") for path in paths]
        return self._move(sweep, paths, lambda passage: passage.put(flag))

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        if self._is_condemned(sweep):
            return [Moved(path=path, outcome=Outcome.LOST, reason="the sweep is being purged") for path in paths]
        return self._move(sweep, paths, lambda passage: passage.restore())

    def purge(self, sweep: str) -> Purged:
        prefix = self._prefix(sweep)
        with self._translated():
            if not self._is_condemned(sweep):
                obstacle = self._settle(sweep)
                if obstacle is not None:
                    return Purged(sweep=sweep, files=0, is_complete=False, obstacle=obstacle)
                if not list_objects(self._fs, prefix).files:
                    return Purged(sweep=sweep, files=0, is_complete=True)
                put_object(self._fs, f"{prefix}/purging.json", b"{}")
            kept = len(list_objects(self._fs, f"{prefix}/tree").files)
            for part in ("tree", "moves"):
                remove_below(self._fs, f"{prefix}/{part}")
            remove_objects(self._fs, [f"{prefix}/sweep.json"])
            remove_objects(self._fs, [f"{prefix}/purging.json"])
        return Purged(sweep=sweep, files=kept, is_complete=True)

    def remove_empty_parents(self, base: str, paths: Sequence[str]) -> list[str]:  # noqa: ARG002
        return []

    def sweeps(self) -> list[str]:
        with self._translated():
            return sorted(child_names(self._fs, self._area) or ())

    def contents(self, sweep: str) -> Iterator[str]:
        with self._translated():
            moves = [] if self._is_condemned(sweep) else self._moves(sweep)
        yield from (move.path for move in moves if move.step in (Step.TAKING, Step.TAKEN, Step.RETURNING))

    def receive(self, source: InstanceStore, path: str, to_path: str, *, flag: str | None = None) -> Moved:
        intake = ObjectTrash(self.store, self._fs, self._root, self._translated, "incoming")
        return receive_instance(self.store, intake, source, path, to_path, flag)

    def fill(self, token: str, to_path: str, copied: Copied, flag: str | None) -> None:
        """Write a copy into the trash, and check it: see `Intake`."""
        plain = parse_path(self.store.root_url, to_path)
        kept = f"{self._prefix(token)}/tree/{plain}"
        with self._translated(), tempfile.TemporaryDirectory() as scratch:
            for file in copied.files:
                self._fill_file(plain, copied, file, f"{kept}/{file}".rstrip("/"), Path(scratch) / "file")
            files = tuple((file.path, file.size, file.tag) for file in list_objects(self._fs, kept).files.values())
            self._passage(token, plain).record(Move(path=plain, flag=flag, step=Step.TAKEN, files=files))

    def resume(self, token: str, to_path: str) -> None:
        """Finish a copy that was being put in its place: see `Intake`."""
        with self._translated():
            move = self._passage(token, parse_path(self.store.root_url, to_path)).find()
            if move is not None:
                self._settle_one(token, move)

    def _fill_file(self, plain: str, copied: Copied, file: str, key: str, scratch: Path) -> None:
        with scratch.open("wb") as stream:
            read = copied.read(file, stream)
        self._fs.put_file(str(scratch), key)
        with open_object(self._fs, key, read.size) as stream:
            check_copy(self.store.root_url, plain, read, read_entry(file, stream))

    def _has_begun(self, sweep: str, path: str) -> bool:
        plain = self._plain(path)
        with self._translated():
            return isinstance(plain, str) and self._passage(sweep, plain).find() is not None

    def _prefix(self, sweep: str) -> str:
        return f"{self._area}/{parse_token(self.store.root_url, sweep)}"

    def _passage(self, sweep: str, plain: str) -> ObjectPassage:
        return ObjectPassage(self._fs, root=self._root, prefix=self._prefix(sweep), path=plain)

    def _is_condemned(self, sweep: str) -> bool:
        """Whether a purge of the sweep has begun."""
        with self._translated():
            return read_object(self._fs, f"{self._prefix(sweep)}/purging.json") is not None

    def _moves(self, sweep: str) -> list[Move]:
        prefix = f"{self._prefix(sweep)}/moves"
        names = list(list_objects(self._fs, prefix).files)
        texts = each(lambda name: read_object(self._fs, f"{prefix}/{name}"), names)
        return [Move.parse(text) for text in texts if text is not None]

    def _settle(self, sweep: str) -> str | None:
        """Bring moves that broke off to where nothing is lost by a purge; else why that cannot be."""
        moves = self._moves(sweep)
        for move in moves:
            if move.step is Step.RETURNING:
                return f"the restore of {move.path!r} broke off: restore it again first"
        each(partial(self._settle_one, sweep), moves)
        return None

    def _settle_one(self, sweep: str, move: Move) -> None:
        passage = self._passage(sweep, move.path)
        match move.step:
            case Step.COPYING:
                passage.abandon(move)
            case Step.TAKING:
                passage.put(move.flag)
            case Step.TAKEN:
                passage.release()
            case Step.RETURNING | Step.RETURNED:
                passage.restore()

    def _move(self, sweep: str, paths: Sequence[str], move: Callable[[ObjectPassage], Moved]) -> list[Moved]:
        """Move many paths, several at a time; the same path twice one after the other."""
        plain = [self._plain(path) for path in paths]
        first = list(dict.fromkeys(one for one in plain if isinstance(one, str)))
        answers: list[Moved] = []
        with self._translated():
            early = dict(zip(first, each(lambda one: move(self._passage(sweep, one)), first), strict=True))
            for path, one in zip(paths, plain, strict=True):
                if isinstance(one, Moved):
                    answers.append(one)
                else:
                    answer = early.pop(one) if one in early else move(self._passage(sweep, one))
                    answers.append(replace(answer, path=path))
        return answers

    def _plain(self, path: str) -> str | Moved:
        """A path without superfluous slashes, or the answer for one that is none."""
        try:
            return parse_path(self.store.root_url, path)
        except PathRefusedError as exc:
            return Moved(path=path, outcome=Outcome.REFUSED, reason=exc.reason)
