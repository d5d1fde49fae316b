"""Finish copies: read back, check that the source has not changed, complete the manifest, publish.

Nothing is visible before all of this is done. A failure leaves the staging for the next try.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain

from feed_assets.clock import Clock
from feed_assets.entities.copies.options import OF_HDFS, Preserve, Verification
from feed_assets.errors import FeedAssetsError
from feed_assets.plan.copy_records import OnError
from feed_assets.storage.checksums import Checksum, checksum_of
from feed_assets.storage.clearing import clear_place
from feed_assets.storage.copy_port import Prepared, Reading, SourceFile, Staging
from feed_assets.storage.errors import InstanceNotFoundError, StorageError
from feed_assets.storage.manifests import FOREIGN, HIDDEN, Publication, render_entry
from feed_assets.storage.paths import is_content
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Clearing, Displaced, Manifest, ManifestEntry, content_digest
from feed_assets.transfer.errors import (
    CopyIncompleteError,
    SourceDamagedError,
    SourceNotAvailableError,
    TargetDamagedError,
)
from feed_assets.transfer.plans import REPLICA, VERSION, Kept, Replica, part_name, replica_key, survey_source
from feed_assets.transfer.requests import Copied, CopyRequest, CopyStatus
from feed_assets.transfer.running import CopyResult
from feed_assets.transfer.tasks import LARGE, OpenCopy

_BLOCK = 64


def _read_back(
    staging: Staging, files: Sequence[ManifestEntry], pool: Executor | None
) -> list[tuple[ManifestEntry, str]]:
    """Read back large files in parallel and small ones in blocks; return each with its checksum."""
    large = [[file] for file in files if file.size >= LARGE]
    small = [file for file in files if file.size < LARGE]
    blocks = large + [small[start : start + _BLOCK] for start in range(0, len(small), _BLOCK)]

    def read(block: Sequence[ManifestEntry]) -> list[tuple[ManifestEntry, str]]:
        return [(file, _read(staging, file)) for file in block]

    return list(chain.from_iterable(map(read, blocks) if pool is None else pool.map(read, blocks)))


def _read(staging: Staging, file: ManifestEntry) -> str:
    """Return the checksum of a staged file; "" if it does not exist with its expected size."""
    checksum, size = Checksum(file.checksum), 0
    try:
        for chunk in staging.chunks(file.path):
            checksum.update(chunk)
            size += len(chunk)
    except InstanceNotFoundError:
        return ""
    return checksum.render() if size == file.size else ""


INCOMPLETE = "incomplete"
"""The key in a manifest's `extra` for the number of files that could not be copied."""
_MANY = 4


class RepeatError(Exception):
    """A copy must start again. `files` are the wrong files; empty if the reason concerns no particular file.

    `is_damage` means that the storage of the target returned other bytes than were written.
    """

    def __init__(self, reason: str, *, files: tuple[str, ...] = (), is_damage: bool = False) -> None:
        self.reason = reason
        self.files = files
        self.is_damage = is_damage
        super().__init__(reason)


def finish_copies(
    stores: StorePool,
    clock: Clock,
    pool: Executor,
    copies: Sequence[OpenCopy],
    results: Sequence[CopyResult],
    requests: Sequence[CopyRequest],
) -> "list[Copied | Exception]":
    """Finish many copies together, with shared flushes to disk; return the result or the exception of each.

    `clock` is the real clock; `pool` finishes copies, or reads back files, in parallel. So the guards of the `requests`
    are called by several threads.
    """
    found: dict[int, list[CopyResult]] = defaultdict(list)
    for result in results:
        found[result.key].append(result)
    across, within = (pool, None) if len(copies) >= _MANY else (None, pool)
    ends = [
        _End(stores, clock, within, copy, found[key], request)
        for key, (copy, request) in enumerate(zip(copies, requests, strict=True))
    ]
    try:
        _try_each(ends, _End.prepare, across)
        _flush([end for end in ends if end.is_prepared])
        _try_each([end for end in ends if end.is_prepared], _End.publish, across)
        published = [end for end in ends if end.is_published]
        _flush(published)
        _try_each(published, _End.clear, across)
    finally:
        for end in ends:
            end.close()
    return [end.outcome for end in ends]


def _flush(ends: "Sequence[_End]") -> None:
    by_store: dict[InstanceStore, list[_End]] = {}
    for end in ends:
        by_store.setdefault(end.store, []).append(end)
    for store, group in by_store.items():
        try:
            store.flush([end.staging for end in group])
        except FeedAssetsError as exc:
            for end in group:
                end.fail(exc)


def _try_each(ends: "Sequence[_End]", work: "Callable[[_End], None]", pool: Executor | None) -> None:
    """Call `work` for each copy and keep the error of a failed one in that copy."""

    def attempt(end: "_End") -> None:
        try:
            work(end)
        except (FeedAssetsError, RepeatError) as exc:
            end.fail(exc)

    list(map(attempt, ends) if pool is None else pool.map(attempt, ends))


class _End:
    """The last steps of one copy."""

    def __init__(
        self,
        stores: StorePool,
        clock: Clock,
        pool: Executor | None,
        copy: OpenCopy,
        results: Sequence[CopyResult],
        request: CopyRequest,
    ) -> None:
        self.plan = copy.plan
        self.copy = copy
        self.store = stores.get(copy.plan.target.store)
        self.staging = self.store.staging(copy.plan.target.path, copy.plan.token)
        self._stores = stores
        self._clock = clock
        self._pool = pool
        self._request = request
        written = chain.from_iterable(each.written for each in results)
        self._copied = {file.path: file for file in (*copy.resumed, *written)}
        self._failures = [failure for each in results for failure in each.failures]
        self._keeps: frozenset[str] = frozenset()
        self._prepared: Prepared | None = None
        self._displaced: Displaced | None = None
        self._is_cleared = False
        self._error: Exception | None = next((each.error for each in results if each.error is not None), None)
        self._source_digest = ""
        self._versions: Mapping[str, str] = {}
        """The versions of source files for which every later write gives a new version."""
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
            resumed=self.copy.resumed_bytes,
            kept=len(plan.kept),
            removed=plan.removed,
            displaced=self._displaced,
            source_digest=self._source_digest,
            verification=plan.options.verification,
            failures=tuple(self._failures),
            skipped=plan.survey.others,
            publication=Publication.of(manifest) if (manifest := self._prepared and self._prepared.manifest) else None,
        )

    def _status(self, has_failed: bool) -> CopyStatus:
        if has_failed:
            return CopyStatus.INCOMPLETE
        return CopyStatus.UNCHANGED if self.plan.is_refresh else CopyStatus.COPIED

    def fail(self, error: Exception) -> None:
        self._error = error

    def close(self) -> None:
        self.staging.close()

    def clear(self) -> None:
        """Remove the staging of a published copy; the staging sweep removes any remains."""
        with suppress(StorageError):
            self.staging.remove()

    def prepare(self) -> None:
        """Do every step before the publication."""
        if self._error is not None:
            return
        plan = self.plan
        moved = [failure for failure in self._failures if failure.is_change]
        if moved:
            raise RepeatError(moved[0].reason, files=tuple(each.file for each in moved if each.file))
        if self._failures and plan.options.on_error is not OnError.PUBLISH:
            return
        self.staging.seal(self.copy.generation)  # locks out writers that are presumed dead but still run
        failed = {failure.file for failure in self._failures}
        transfers = [file for file in plan.transfers if file.path not in failed]
        if missing := tuple(file.path for file in transfers if file.path not in self._copied):
            raise CopyIncompleteError(url=plan.source_url, files=missing)
        kept = [*plan.kept, *(each for each in plan.replaced if each.path in failed)]
        self.staging.adopt([each.path for each in kept])
        self._keeps = frozenset(each.path for each in kept)
        checksums = self._check_staged(transfers, kept)
        self._check_source(checksums, failed)
        if plan.options.preserve:
            with self._reading_source() as reading:
                for file in transfers:
                    self._dress(file, reading)
        self._prepared = self._manifest(transfers, kept, checksums, failed)
        self.staging.prepare(self._prepared)

    def _check_staged(self, transfers: Sequence[SourceFile], kept_files: Sequence[Kept]) -> Mapping[str, str]:
        """Return the checksums of all staged files by path; read back those that the copy is to verify.

        Those of an earlier try are read back in every mode, because the machine may have stopped meanwhile. Raises as
        `_raise_damage`.
        """
        mode, resumed = self.plan.options.verification, {file.path for file in self.copy.resumed}
        if self.staging.copies_adopted and mode is not Verification.NONE:
            mode = Verification.WHOLE
        checksums: dict[str, str] = {}
        damaged: list[str] = []
        unread: list[ManifestEntry] = []
        for file in transfers:
            read = checksums[file.path] = self._copied[file.path].checksum
            if file.checksum and file.checksum != read:  # the bytes read differ from the manifest of the source
                damaged.append(file.path)
            elif mode is not Verification.NONE or file.path in resumed:
                unread.append(ManifestEntry(file.path, file.size, read))
        for kept in kept_files:
            known = kept.entry.checksum if kept.entry else ""
            if known and mode is not Verification.WHOLE:
                checksums[kept.path] = known
            elif known or is_content(kept.path, None):
                unread.append(ManifestEntry(kept.path, kept.size, known))
        for expected, checksum in _read_back(self.staging, unread, self._pool):
            checksums[expected.path] = checksum
            if not checksum or (expected.checksum and checksum != expected.checksum):
                damaged.append(expected.path)
        if damaged:
            self._raise_damage(tuple(damaged))
        return checksums

    def publish(self) -> None:
        plan = self.plan

        def guarded() -> None:
            try:
                self._request.guard()
            except Exception as exc:  # any exception forbids this publication only
                self._error = exc
                raise
            if self._is_cleared:  # it was asked before, and now directly before a commit
                return
            if self.store.mark(plan.target.path) != plan.standing:
                raise RepeatError("what stands at the target was replaced meanwhile")
            if self._request.clearing is not None:
                self._clear(self._request.clearing)
            self._is_cleared = True

        try:
            self.staging.publish(guarded)
        except Exception as exc:
            if self._error is not exc:
                raise
        else:
            self.is_published = True

    def _clear(self, clearing: Clearing) -> None:
        target = self.plan.target
        try:
            self._displaced = clear_place(self.store, target.path, target.flag, clearing, self._keeps)
        except FeedAssetsError as exc:
            self._error = exc
            raise

    def _raise_damage(self, damaged: tuple[str, ...]) -> None:
        """Drop the damaged copies, then raise the error of the side at fault.

        Raises:
            TargetDamagedError: a kept file of the target is damaged and the source does not have it.
            SourceDamagedError: a file of the source differs from the manifest of the source.
            RepeatError: the copy is damaged and must be repeated.
        """
        plan = self.plan
        known = {file.path: file for file in plan.transfers if file.checksum}
        self.staging.drop(damaged)
        kept = {each.path for each in plan.kept} & set(damaged)
        if foreign := kept - {file.path for file in plan.survey.files}:
            raise TargetDamagedError(url=self.store.url(plan.target.path), files=tuple(sorted(foreign)))
        with self._reading_source() as reading:
            for file in [known[path] for path in damaged if path in known]:
                if checksum_of(reading.chunks(file.path), like=file.checksum) != file.checksum:
                    raise SourceDamagedError(url=plan.source_url, file=file.path)
        reason = "a file that stood there is not what its manifest says" if kept else "the copy is not what was read"
        raise RepeatError(reason, files=damaged, is_damage=True)

    def _check_source(self, checksums: Mapping[str, str], failed: Collection[str]) -> None:
        """Check that the source still has the listed content; reread files whose times are too recent to prove it."""
        plan = self.plan
        try:
            now = survey_source(self._stores, plan.source, plan.options, self._clock)
        except SourceNotAvailableError as exc:
            raise RepeatError(str(exc)) from exc
        if not now.is_like(plan.survey):
            raise RepeatError("its files are not those that were there when the copy began")
        resumed = {each.path for each in self.copy.resumed if not each.is_settled}
        doubtful = [
            file for file in plan.transfers if (not file.is_settled or file.path in resumed) and file.path not in failed
        ]
        self._versions = {
            file.path: file.version
            for file, later in zip(plan.survey.files, now.files, strict=True)
            if (file.is_settled or later.is_settled) and file.path not in failed
        }
        if not doubtful:
            return
        with self._reading_source() as reading:
            for file in doubtful:
                expected = checksums[file.path]
                if checksum_of(reading.chunks(file.path), like=expected) != expected:
                    self.staging.drop([file.path])
                    raise RepeatError("a file was written while it was read", files=(file.path,))

    @contextmanager
    def _reading_source(self) -> Iterator[Reading]:
        """Read the source again; a missing file counts as a change."""
        plan = self.plan
        try:
            with self._stores.get(plan.source.store).reading(plan.source.path) as reading:
                yield reading
        except InstanceNotFoundError as exc:
            raise RepeatError(str(exc)) from exc

    def _dress(self, file: SourceFile, reading: Reading) -> None:
        preserve = self.plan.options.preserve
        modified = file.modified if Preserve.TIMES in preserve else None
        mode = file.mode if Preserve.PERMISSIONS in preserve else None
        if modified is not None or mode is not None:
            self.staging.dress(file.path, modified, mode)
        if file.traits is None or not preserve & OF_HDFS:
            return
        traits = file.traits._replace(
            owner=file.traits.owner if Preserve.OWNER in preserve else "",
            group=file.traits.group if Preserve.GROUP in preserve else "",
            replicas=file.traits.replicas if Preserve.REPLICAS in preserve else 0,
        )
        self.staging.grant(file.path, traits, reading.acl(file.path) if Preserve.ACL in preserve else None)

    def _manifest(
        self,
        transfers: Sequence[SourceFile],
        kept: Sequence[Kept],
        checksums: Mapping[str, str],
        failed: Collection[str],
    ) -> Prepared:
        """Build the manifest of the new content of the target, with the record of its source."""
        plan = self.plan
        if plan.options.exact:
            names = {file.path for file in transfers}
            exact = tuple(ManifestEntry(each.path, each.size, checksums[each.path]) for each in transfers)
            return Prepared(manifest=None, flags=tuple(flag for flag in plan.flags if flag in names), hidden=exact)
        entries = [_entry(file.path, file.size, checksums[file.path], self._versions) for file in transfers]
        for each in kept:
            checksum = checksums.get(each.path, "")
            version = self._versions.get(each.path) or (each.entry.unknown.get(VERSION) if each.entry else None)
            entry = _entry(each.path, each.size, checksum, {each.path: version} if version else {})
            entries.append(entry._replace(unknown={**entry.unknown, FOREIGN: True}) if each.is_foreign else entry)
        names = {file.path for file in plan.survey.files}
        mixed = entries if plan.options.hidden else entries[len(transfers) :]  # otherwise only kept files can be hidden
        others = [each for each in mixed if not is_content(each.path, None)]
        hidden = {each.path for each in others}
        content = [each for each in entries if each.path not in hidden] if hidden else entries
        copied = [each for each in content if each.path in names] if kept else content
        manifest = Manifest.of(content)
        self._source_digest = manifest.digest if len(copied) == len(content) else content_digest(copied)
        replica = Replica(
            url=plan.source_url,
            part=part_name(plan.options),
            digest=self._source_digest,
            fingerprint=plan.survey.fingerprint,
            mark="" if failed else plan.survey.mark,
            is_settled=not failed and len(self._versions) == len(plan.survey.files),
        )
        former = {name: text for name, text in plan.extra.items() if name.startswith(REPLICA)}
        if plan.filter.is_everything:
            former = {}
        own = {replica_key(plan.filter.name): replica.render()}
        incomplete = {INCOMPLETE: str(len(failed))} if failed else {}
        extra = {**self._request.extra, **former, **own, **incomplete, **plan.survey.described}
        known = [each for each in others if each.checksum]
        unknown = {HIDDEN: [render_entry(each) for each in known]} if known else {}
        flags = () if failed else plan.flags
        return Prepared(
            manifest=replace(manifest, extra=extra, unknown=unknown),
            flags=flags,
            hidden=tuple(others),
            description=plan.survey.description,
        )


def _entry(path: str, size: int, checksum: str, versions: Mapping[str, object]) -> ManifestEntry:
    unknown = {VERSION: versions[path]} if path in versions else {}
    return ManifestEntry(path, size, checksum, unknown)
