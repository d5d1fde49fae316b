"""Implement the trash of an object store.

`.feed-assets/trash/<sweep>/` has a record of each move in `moves/` and the objects in `tree/<path>/`. It also has
`purging.json` from the beginning of a purge to its end.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from feed_assets.storage.errors import PathRefusedError
from feed_assets.storage.object.client import ObjectClient, UnusableKeyError, each
from feed_assets.storage.object.trash_mover import MoveRecord, MoveStep, TrashMove
from feed_assets.storage.object.tree import list_objects, read_object, remove_below
from feed_assets.storage.paths import CONTROL_FOLDER, parse_path, parse_token
from feed_assets.storage.port import InstanceStore, Trash
from feed_assets.storage.records import Moved, Outcome, Purged

_AREA = f"{CONTROL_FOLDER}/trash"


class ObjectTrash(Trash):
    """The trash of an object store; `translated` opens a context that translates file errors into its errors."""

    def __init__(
        self,
        store: InstanceStore,
        client: ObjectClient,
        translated: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.store = store
        self._client = client
        self._translated = translated

    def describe(self, sweep: str, document: Mapping[str, object]) -> None:
        key = f"{self._prefix(sweep)}/sweep.json"
        with self._translated():
            self._client.put(key, json.dumps(document, indent=1).encode())

    def find_description(self, sweep: str) -> Mapping[str, object] | None:
        with self._translated():
            text = read_object(self._client, f"{self._prefix(sweep)}/sweep.json")
        try:
            found = None if text is None else json.loads(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        if self._is_purging(sweep):
            return [Moved(path=path, outcome=Outcome.REFUSED, reason="the sweep is being purged") for path in paths]
        return self._move(sweep, paths, lambda trash_move: trash_move.put(flag))

    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        if self._is_purging(sweep):
            return [Moved(path=path, outcome=Outcome.LOST, reason="the sweep is being purged") for path in paths]
        return self._move(sweep, paths, lambda trash_move: trash_move.restore())

    def settle(self, sweep: str, paths: Sequence[str]) -> frozenset[str]:
        if self._is_purging(sweep):
            return frozenset()
        plain = {path: one for path in paths if isinstance(one := self._plain(path), str)}
        with self._translated():
            removed = each(lambda one: self._trash_move(sweep, one).settle(), list(plain.values()))
        return frozenset(path for path, is_removed in zip(plain, removed, strict=True) if is_removed)

    def purge(self, sweep: str) -> Purged:
        prefix = self._prefix(sweep)
        with self._translated():
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
        with self._translated():
            return sorted(self._client.children(_AREA).folders)

    def contents(self, sweep: str) -> Iterator[str]:
        with self._translated():
            moves = [] if self._is_purging(sweep) else self._moves(sweep)
        yield from (move.path for move in moves if move.step in (MoveStep.TAKING, MoveStep.TAKEN, MoveStep.RETURNING))

    def holds(self, sweep: str, path: str) -> bool:
        plain = self._plain(path)
        with self._translated():
            return isinstance(plain, str) and self._trash_move(sweep, plain).find() is not None

    def _prefix(self, sweep: str) -> str:
        return f"{_AREA}/{parse_token(self.store.root_url, sweep)}"

    def _trash_move(self, sweep: str, plain: str) -> TrashMove:
        return TrashMove(self._client, prefix=self._prefix(sweep), path=plain)

    def _is_purging(self, sweep: str) -> bool:
        """Return whether a purge of the sweep has begun."""
        with self._translated():
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
        with self._translated():
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
