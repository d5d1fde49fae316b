"""The end of copies: read back, look whether the source stood still, complete the manifest, publish.

Nothing is visible before all of that has been done, and what goes wrong leaves the staging for the next try.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock

from feed_assets.clock import Clock
from feed_assets.entities.copying import Preserve
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.errors import CopyIncompleteError, SourceDamagedError, TargetDamagedError
from feed_assets.lifecycle.replication.outcomes import Copied, CopyStatus
from feed_assets.lifecycle.replication.plans import (
    REPLICA,
    SIGN,
    Kept,
    Replica,
    part_name,
    replica_key,
    survey_source,
)
from feed_assets.lifecycle.replication.running import Failure, Held, TaskResult
from feed_assets.lifecycle.replication.tasks import SMALL, OpenCopy
from feed_assets.lifecycle.replication.threads import CopyThreads, Inline
from feed_assets.lifecycle.replication.verifying import Checked, check_copy, evidence_of
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.copy_options import OnError
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.copy_port import Assembly, Copying, Prepared, Reading, SourceFile, Written
from feed_assets.storage.errors import InstanceNotFoundError, StorageError
from feed_assets.storage.manifests import HIDDEN, Publication, render_entry
from feed_assets.storage.paths import is_content
from feed_assets.storage.records import Guard, Manifest, ManifestEntry, content_digest

INCOMPLETE = "incomplete"
"""The name in a manifest's `extra` that tells how many files could not be copied."""
_MANY = 4
_new_entry = partial(tuple.__new__, ManifestEntry)
"""A `ManifestEntry` of a tuple of its fields, in half the time of its own way."""


class RepeatError(Exception):
    """A copy that has to be begun again: `files` are not what they should be, or nothing particular is.

    `is_damage`: the storage of the target did not give back what was written.
    """

    def __init__(self, reason: str, *, files: tuple[str, ...] = (), is_damage: bool = False) -> None:
        self.reason = reason
        self.files = files
        self.is_damage = is_damage
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """Ends copies. `clock` is the wall clock; the threads end several copies at a time, or read several files back."""

    stores: StorePool
    clock: Clock
    threads: CopyThreads
    asking: Lock = field(default_factory=Lock)
    """Held while a guard is called."""

    def finish(
        self,
        copies: Sequence[OpenCopy],
        results: Sequence[TaskResult],
        wishes: Sequence[tuple[Guard, Mapping[str, str]]],
        held: Held,
    ) -> "list[Copied | Exception]":
        """End many copies together; for each what became of it, or why it did not. The disk is waited for once.

        For each copy there is a guard, and what goes into `extra` of its manifest; what is `held` of it is given free.
        """
        found = _by_copy(results)
        is_large = any(file.size > SMALL for copy in copies for file in copy.plan.transfers)
        threads = self.threads.many if is_large else self.threads.small
        pool, inner = (threads, Inline()) if len(copies) >= _MANY else (Inline(), threads)
        ends = [
            _End(self, inner, copy, found[key], partial(held.release, key), *wish)
            for key, (copy, wish) in enumerate(zip(copies, wishes, strict=True))
        ]
        try:
            _try_each(ends, _End.prepare, pool)
            self._flush([end for end in ends if end.is_prepared])
            _try_each([end for end in ends if end.is_prepared], _End.publish, pool)
            published = [end for end in ends if end.is_published]
            self._flush(published)
            _try_each(published, _End.clear, pool)
        finally:
            for end in ends:
                end.close()
        return [end.outcome for end in ends]

    def _flush(self, ends: "Sequence[_End]") -> None:
        by_store: dict[int, tuple[Copying, list[_End]]] = {}
        for end in ends:
            by_store.setdefault(id(end.store), (end.copying, []))[1].append(end)
        for copying, group in by_store.values():
            try:
                copying.flush([end.assembly for end in group])
            except FeedAssetsError as exc:
                for end in group:
                    end.fail(exc)


def _try_each(ends: "Sequence[_End]", work: "Callable[[_End], None]", pool: Executor) -> None:
    """Do the same for each; one that fails has its error."""

    def attempt(end: "_End") -> None:
        try:
            work(end)
        except (FeedAssetsError, RepeatError) as exc:
            end.fail(exc)

    list(pool.map(attempt, ends))


@dataclass(slots=True)
class _Results:
    """What all tasks did for one copy; a file that failed in several of its stretches is one failure."""

    written: list[Written] = field(default_factory=list)
    resumed: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    error: FeedAssetsError | None = None


def _by_copy(results: Sequence[TaskResult]) -> dict[int, _Results]:
    found: dict[int, _Results] = defaultdict(_Results)
    for copy in (copy for result in results for copy in result.copies):
        one = found[copy.key]
        one.written += copy.written
        one.resumed += copy.resumed
        one.failures |= {failure.file: failure for failure in copy.failures}
        one.error = one.error or copy.error
    return found


class _End:
    """The end of one copy."""

    def __init__(
        self,
        finishing: Finishing,
        pool: Executor,
        copy: OpenCopy,
        results: _Results,
        release: Callable[[], Mapping[str, bytes]],
        guard: Guard,
        extra: Mapping[str, str],
    ) -> None:
        self.plan = copy.plan
        self.copy = copy
        self.store = finishing.stores.get(copy.plan.target.store)
        self.copying = self.store.copying()
        self.assembly: Assembly = self.copying.assembly(copy.plan.target.path, copy.plan.token)
        self._finishing = finishing
        self._pool = pool
        self._written = results.written
        self._resumed = copy.resumed_bytes + results.resumed
        self._failures = list(results.failures.values())
        self._release = release
        self._guard = guard
        self._extra = extra
        self._prepared: Prepared | None = None
        self._error: Exception | None = results.error
        self._source_digest = ""
        self._signs: Mapping[str, str] = {}
        """The signs of source files that a later write would change."""
        self.is_published = False

    @property
    def is_prepared(self) -> bool:
        return self._prepared is not None and self._error is None

    @property
    def outcome(self) -> "Copied | Exception":
        if self._error is not None:
            return self._error
        plan = self.plan
        failed = {failure.file for failure in self._failures}
        transferred = [file for file in plan.transfers if file.path not in failed]
        return Copied(
            status=self._status(bool(failed)),
            source_url=plan.source_url,
            target_url=self.store.url(plan.target.path),
            bytes=sum(file.size for file in transferred),
            files=len(transferred),
            resumed=self._resumed,
            kept=len(plan.kept),
            removed=plan.removed,
            source_digest=self._source_digest,
            verification=plan.options.verification,
            failures=tuple(self._failures),
            publication=Publication.of(self._prepared.manifest) if self._prepared else None,
        )

    def _status(self, has_failed: bool) -> CopyStatus:
        if has_failed:
            return CopyStatus.INCOMPLETE
        return CopyStatus.UNCHANGED if self.plan.is_refresh else CopyStatus.COPIED

    def fail(self, error: Exception) -> None:
        self._error = error

    def close(self) -> None:
        self.assembly.close()

    def clear(self) -> None:
        """Remove the staging of what is published; what cannot be removed now is swept one day."""
        with suppress(StorageError):
            self.assembly.remove()

    def prepare(self) -> None:
        """Everything up to what only has to be made visible."""
        if self._error is not None:
            return
        plan = self.plan
        moved = [failure for failure in self._failures if failure.is_change]
        if moved:
            raise RepeatError(moved[0].reason, files=tuple(each.file for each in moved if each.file))
        if self._failures and plan.options.on_error is not OnError.PUBLISH:
            return
        self.assembly.seal()  # shuts out writers that somebody takes for dead
        failed = {failure.file for failure in self._failures}
        transfers = [file for file in plan.transfers if file.path not in failed]
        evidence, incomplete = evidence_of(plan, [*self.copy.resumed, *self._written])
        if missing := tuple(path for path in incomplete if path not in failed):
            raise CopyIncompleteError(url=plan.source_url, files=missing)
        for file in transfers:
            if file.size > SMALL:
                self.assembly.complete(file.path, file.size)
        kept = [*plan.kept, *(each for each in plan.replaced if each.path in failed)]
        self.assembly.adopt([each.path for each in kept])
        checked = check_copy(
            plan.options.verification, self.assembly, transfers, evidence, kept, self._release(), self._pool
        )
        if checked.damaged:
            self._raise_damage(checked.damaged)
        self._check_source(checked, failed)
        if plan.options.preserve:
            for file in transfers:
                self._dress(file)
        self._prepared = self._manifest(transfers, kept, checked, failed)
        self.assembly.prepare(self._prepared)

    def publish(self) -> None:
        plan = self.plan

        def guarded() -> None:
            try:
                with self._finishing.asking:
                    self._guard()
            except Exception as exc:  # whatever it is, it forbids this one publication and no other
                self._error = exc
                raise
            if self.copying.mark(plan.target.path) != plan.standing:
                raise RepeatError("what stands at the target was replaced meanwhile")

        try:
            self.assembly.publish(guarded)
        except Exception as exc:
            if self._error is not exc:
                raise
        else:
            self.is_published = True

    def _raise_damage(self, damaged: tuple[str, ...]) -> None:
        """Forget the copies that are damaged; the source is to blame where it is not what its manifest says."""
        plan = self.plan
        known = {file.path: file for file in plan.transfers if file.checksum}
        self.assembly.drop(damaged)
        kept = {each.path for each in plan.kept} & set(damaged)
        if foreign := kept - {file.path for file in plan.survey.files}:
            raise TargetDamagedError(url=self.store.url(plan.target.path), files=tuple(sorted(foreign)))
        with self._reading_source() as reading:
            for file in [known[path] for path in damaged if path in known]:
                if checksum_of(reading.chunks(file.path, 0, file.size), like=file.checksum) != file.checksum:
                    raise SourceDamagedError(url=plan.source_url, file=file.path)
        reason = "a file that stood there is not what its manifest says" if kept else "the copy is not what was read"
        raise RepeatError(reason, files=damaged, is_damage=True)

    def _check_source(self, checked: Checked, failed: Collection[str]) -> None:
        """Make sure that the source is still what was listed, also where its times are too new to tell."""
        plan, finishing = self.plan, self._finishing
        now = survey_source(finishing.stores, plan.source, plan.options, finishing.clock)
        if not now.is_like(plan.survey):
            raise RepeatError("its files are not those that were there when the copy began")
        resumed = {each.file for each in self.copy.resumed if not each.is_settled}
        doubtful = [
            file for file in plan.transfers if (not file.is_settled or file.path in resumed) and file.path not in failed
        ]
        self._signs = {
            file.path: file.sign
            for file, later in zip(plan.survey.files, now.files, strict=True)
            if (file.is_settled or later.is_settled) and file.path not in failed
        }
        if not doubtful:
            return
        with self._reading_source() as reading:
            for file in doubtful:
                expected = checked.checksums[file.path]
                if checksum_of(reading.chunks(file.path, 0, file.size + 1), like=expected) != expected:
                    self.assembly.drop([file.path])
                    raise RepeatError("a file was written while it was read", files=(file.path,))

    @contextmanager
    def _reading_source(self) -> Iterator[Reading]:
        """The source once more; that something of it is gone is a change."""
        plan = self.plan
        try:
            with self._finishing.stores.get(plan.source.store).copying().reading(plan.source.path) as reading:
                yield reading
        except InstanceNotFoundError as exc:
            raise RepeatError(str(exc)) from exc

    def _dress(self, file: SourceFile) -> None:
        preserve = self.plan.options.preserve
        modified = file.modified if Preserve.TIMES in preserve else None
        mode = file.mode if Preserve.PERMISSIONS in preserve else None
        if modified is not None or mode is not None:
            self.assembly.dress(file.path, modified, mode)

    def _manifest(
        self, transfers: Sequence[SourceFile], kept: Sequence[Kept], checked: Checked, failed: Collection[str]
    ) -> Prepared:
        """The manifest of what will stand at the target, with what it is a copy of."""
        plan = self.plan
        entries = [_entry(file.path, file.size, checked.checksums[file.path], self._signs) for file in transfers]
        for each in kept:
            checksum = checked.checksums.get(each.path, "")
            sign = self._signs.get(each.path) or (each.entry.unknown.get(SIGN) if each.entry else None)
            entries.append(_entry(each.path, each.size, checksum, {each.path: sign} if sign else {}))
        names = {file.path for file in plan.survey.files}
        mixed = entries if plan.options.hidden else entries[len(transfers) :]  # otherwise only what stood may be hidden
        others = [each for each in mixed if not is_content(each.path, None)]
        hidden = {each.path for each in others}
        content = [each for each in entries if each.path not in hidden] if hidden else entries
        copied = [each for each in content if each.path in names] if kept else content
        manifest = Manifest.of(content)
        self._source_digest = manifest.digest if len(copied) == len(content) else content_digest(copied)
        replica = Replica(
            url=plan.source_url,
            part=part_name(plan.filter, plan.options),
            digest=self._source_digest,
            sign=plan.survey.sign,
            mark="" if failed else plan.survey.mark,
            is_settled=not failed and len(self._signs) == len(plan.survey.files),
        )
        former = {name: text for name, text in plan.extra.items() if name.startswith(REPLICA)}
        if plan.filter.is_everything:
            former = {}
        own = {replica_key(plan.filter.name): replica.render()}
        incomplete = {INCOMPLETE: str(len(failed))} if failed else {}
        extra = {**self._extra, **former, **own, **incomplete}
        known = [each for each in others if each.checksum]
        unknown = {HIDDEN: [render_entry(each) for each in known]} if known else {}
        flags = () if failed else plan.flags
        return Prepared(
            manifest=replace(manifest, extra=extra, unknown=unknown),
            flags=flags,
            hidden=tuple(others),
            checked=checked.read,
        )


def _entry(path: str, size: int, checksum: str, signs: Mapping[str, object]) -> ManifestEntry:
    unknown = {SIGN: signs[path]} if path in signs else {}
    return _new_entry((path, size, checksum, unknown))
