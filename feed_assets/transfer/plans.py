"""Plan copies: decide which files are transferred, kept and removed, by comparing two manifests.

The manifest of a copy names its sources: `extra` has one record for each source (see `Replica`), and each entry has the
version of its file at the source. A copy with nothing to do therefore reads no more than the heads of two manifests.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache

from feed_assets.clock import Clock
from feed_assets.entities.cluster import ICEBERG
from feed_assets.entities.copies.globs import translate_glob
from feed_assets.entities.copies.options import RemovedFiles
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.copy_port import SourceFile, Survey
from feed_assets.storage.errors import ManifestError
from feed_assets.storage.listing import nanoseconds
from feed_assets.storage.manifests import FOREIGN, Publication, hidden_entries, parse_json, render_json
from feed_assets.storage.paths import is_content, path_name
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability, Manifest, ManifestEntry, content_digest
from feed_assets.transfer.errors import (
    NothingSelectedError,
    SourceEmptiedError,
    SourceNotAvailableError,
)

REPLICA = "replica:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The record of a source in the manifest of its copy.

    `digest` is the digest of the copied content. `fingerprint` and `mark` are those of the source at that time (see
    `Survey`). `is_settled` means that every later change of the source changes the fingerprint.
    """

    url: str
    part: str
    digest: str
    fingerprint: str
    mark: str
    is_settled: bool

    def render(self) -> str:
        """Render the record as a value of a manifest's `extra`."""
        fields = [self.url, self.part, self.digest, self.fingerprint, self.mark, int(self.is_settled)]
        return render_json([1, *fields]).decode()


def parse_replica(text: str | None) -> Replica | None:
    """Parse the text of `Replica.render`; return None for any other text."""
    try:
        version, url, part, digest, fingerprint, mark, is_settled = parse_json(text or "null")
    except (ValueError, TypeError):
        return None
    if version != 1:
        return None
    return Replica(url=url, part=part, digest=digest, fingerprint=fingerprint, mark=mark, is_settled=bool(is_settled))


def replica_key(part: str) -> str:
    """Return the key in a manifest's `extra` for the source of a part of the instance."""
    return f"{REPLICA}{path_name(part) if part else 'whole'}"


_WILD = re.compile(r"[*?\[{\\]")


@dataclass(frozen=True)
class CopyFilter:
    """A filter on paths relative to the instance.

    `sub_path` names directories or files: every match is copied, with everything below it. `base` is its deepest folder
    without globs; the availability flag of this part is written there. In patterns, `*` and `?` match within one name,
    `**` matches across names, and `{a,b}` and `[a-z]` are alternatives.

    >>> part = CopyFilter(sub_path="region=eu/site=*")
    >>> part.base, part.matches("region=eu/site=1/part-0"), part.matches("region=eu/part-0")
    ('region=eu', True, False)
    >>> CopyFilter(include=("**.csv",), exclude=("tmp/**",)).matches("a/b.csv")
    True
    """

    sub_path: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @cached_property
    def base(self) -> str:
        """The folder of the copied part; "" for the instance itself."""
        literal: list[str] = []
        for part in self._parts:
            if _WILD.search(part):
                break
            literal.append(part)
        return "/".join(literal)

    @cached_property
    def is_everything(self) -> bool:
        """Whether every file matches."""
        return not (self._parts or self.include or self.exclude)

    @cached_property
    def name(self) -> str:
        """The name of the copied part; equal filters have equal names."""
        return "\n".join(["/".join(self._parts), *sorted(self.include), "\0", *sorted(self.exclude)]).strip("\n\0")

    def matches(self, file: str) -> bool:
        """Return whether a file is copied."""
        if self._part is not None and self._part.match(file) is None:
            return False
        if self._included and not any(pattern.fullmatch(file) for pattern in self._included):
            return False
        return not any(pattern.fullmatch(file) for pattern in self._excluded)

    @cached_property
    def _parts(self) -> list[str]:
        return [part for part in self.sub_path.split("/") if part]

    @cached_property
    def _part(self) -> re.Pattern[str] | None:
        return re.compile(f"(?:{translate_glob('/'.join(self._parts))})(?:/|$)") if self._parts else None

    @cached_property
    def _included(self) -> list[re.Pattern[str]]:
        return [re.compile(translate_glob(each)) for each in self.include]

    @cached_property
    def _excluded(self) -> list[re.Pattern[str]]:
        return [re.compile(translate_glob(each)) for each in self.exclude]


FLAG = "_SUCCESS"
"""The availability flag of replicas of feeds without a flag (Falcon's)."""
VERSION = "source"
"""The field of a manifest entry for the version of the file at its source."""
HIDDEN_PART = "\n+ hidden"
_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a copy: the store, path and availability flag of an instance (None: it has no flag)."""

    store: StoreAddress
    path: str
    flag: str | None = None


def source_side(record: FeedRecord, nominal_time: datetime) -> Side:
    """Return an instance as the source of a copy."""
    return Side(store=record.store, path=record.path(nominal_time), flag=record.flag)


def target_side(record: FeedRecord, nominal_time: datetime) -> Side:
    """Return an instance as the target of a copy, which always has a flag, as in Falcon; but one commit shows all of a
    partition of an Iceberg table.
    """
    flag = None if record.store.url.startswith(ICEBERG) else record.flag or FLAG
    return Side(store=record.store, path=record.path(nominal_time), flag=flag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file of the target that stays; `entry` is its manifest entry, None if no manifest lists it yet."""

    path: str
    size: int
    entry: ManifestEntry | None

    @property
    def is_foreign(self) -> bool:
        """Whether we have not written it."""
        return self.entry is None or bool(self.entry.unknown.get(FOREIGN))


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """The plan of one copy.

    `transfers` are read from the source, `kept` files stay at the target, `removed` files are removed there. `replaced`
    are the target's files that transfers replace. `is_unchanged`: there is nothing to do. `is_refresh`: only the record
    that nothing changed must be written. `flags` are written last. `standing` is the mark of the target (see
    `InstanceStore.mark`), `is_unfinished` says that a publication has begun there, and `extra` is from its manifest.
    `publication` is the publication at the target if all its flags exist. `is_foreign`: we have never published there,
    so what stands there is not ours.
    """

    source: Side
    target: Side
    options: CopyOptions
    source_url: str
    survey: Survey
    is_unchanged: bool = False
    transfers: tuple[SourceFile, ...] = ()
    kept: tuple[Kept, ...] = ()
    replaced: tuple[Kept, ...] = ()
    removed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    standing: str = ""
    is_unfinished: bool = False
    digest: str = ""
    publication: Publication | None = None
    is_refresh: bool = False
    is_foreign: bool = False

    @property
    def bytes(self) -> int:
        """The number of bytes to be transferred."""
        return sum(file.size for file in self.transfers)

    @property
    def filter(self) -> CopyFilter:
        return copy_filter(self.options)

    @property
    def token(self) -> str:
        """The name of the staging, shared by copies of the same part of one source, which reuse its files."""
        text = f"{self.source_url}\n{self.filter.name}"
        kind = "archive" if self.options.exact else "copy"
        return f"{kind}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


@lru_cache(maxsize=64)
def copy_filter(options: CopyOptions) -> CopyFilter:
    """Return the filter of a copy."""
    return CopyFilter(options.sub_path, options.include, options.exclude)


def part_name(options: CopyOptions) -> str:
    """Return the name of the copied part, as `Replica.part` records it."""
    return f"{copy_filter(options).name}{HIDDEN_PART if options.hidden else ''}"


def plan_copy(
    stores: StorePool,
    source: Side,
    target: Side,
    options: CopyOptions,
    clock: Clock,
    distrusted: Collection[str] = (),
    *,
    adopts: bool = False,
) -> CopyPlan:
    """Plan a copy; write nothing. `clock` is the real clock.

    `distrusted` files are transferred even if the manifest of the target has the same version of them. With `adopts`,
    foreign files at the target stay if they equal those of the source; for that they are read.

    Raises:
        SourceNotAvailableError: the source has no complete instance; an unmounted storage is a `StorageError`.
        SourceEmptiedError: a source without flag and manifest is empty and the target is not.
        NothingSelectedError: the filter matches no file of a source that has files.
        StorageError: a storage refused, or the source changed while it was listed.
    """
    store, to = stores.get(source.store), stores.get(target.store)
    url = store.url(source.path)
    published, replica = _find_replica(to, url, target, options, distrusted)
    nothing = CopyPlan(
        source=source,
        target=target,
        options=options,
        source_url=url,
        survey=Survey(availability=Availability.AVAILABLE),
        is_unchanged=True,
        digest=replica.digest if replica is not None else "",
        publication=published,
    )
    if replica is not None and options.quick and replica.mark and replica.mark == store.mark(source.path):
        return nothing
    survey = survey_source(stores, source, options, clock)
    if replica is not None and _is_described(published, survey) and _has_content(replica, survey, options):
        return replace(nothing, survey=replace(nothing.survey, others=survey.others))
    draft = replace(nothing, survey=survey, digest="", flags=copy_flags(target, options))
    return _Comparison(store, to, draft, distrusted, adopts).plan()


def is_current(stores: StorePool, source: Side, target: Side, options: CopyOptions, clock: Clock) -> bool:
    """Return whether a copy would bring nothing new: the replica was made from the present content of the source.

    The files of the source are listed even if its publication is the same, so that content written in place counts.
    Raises as `plan_copy` does.
    """
    plan = plan_copy(stores, source, target, without_shortcuts(options), clock)
    return plan.is_unchanged or plan.is_refresh


def without_shortcuts(options: CopyOptions) -> CopyOptions:
    """Return the options of a comparison: by content, neither by the publication alone nor with all files taken."""
    return replace(options, quick=False, overwrite=False)


def _find_replica(
    to: InstanceStore, url: str, target: Side, options: CopyOptions, distrusted: Collection[str]
) -> tuple[Publication | None, Replica | None]:
    """Return the publication at the target, and its record of this source if the record can be relied on."""
    published = to.find_publication(target.path, copy_flags(target, options))
    if published is None or options.overwrite or distrusted:
        return published, None
    replica = parse_replica(published.extra.get(replica_key(copy_filter(options).name)))
    if replica is not None and (replica.url, replica.part) != (url, part_name(options)):
        replica = None
    return published, replica


def _is_described(published: Publication | None, survey: Survey) -> bool:
    """Return whether readers of the target know of the files what those of the source do."""
    return published is not None and survey.described.items() <= published.extra.items()


def _has_content(replica: Replica, survey: Survey, options: CopyOptions) -> bool:
    """Return whether the source has what was copied: the same files, or the same content under other names."""
    if replica.is_settled and replica.fingerprint == survey.fingerprint:
        return True
    files = [ManifestEntry(each.path, each.size, each.checksum) for each in survey.files if is_content(each.path, None)]
    is_known = not options.by_name and len(files) == len(survey.files) and all(each.checksum for each in files)
    return is_known and content_digest(files) == replica.digest


def survey_source(stores: StorePool, source: Side, options: CopyOptions, clock: Clock) -> Survey:
    """List the files of the source that the filter selects.

    Raises:
        SourceNotAvailableError: the source has no complete instance.
        NothingSelectedError: include and exclude match none of its files; a part without files is no error.
    """
    store = stores.get(source.store)
    now = nanoseconds(clock.now())
    if options.exact:
        survey = store.survey_all(source.path, now)
    else:
        survey = store.survey(source.path, source.flag, now, everything=options.hidden)
    if survey.availability is Availability.MISSING and not options.exact:
        store.require_root()
    if survey.availability not in (Availability.AVAILABLE, Availability.EMPTY):
        raise SourceNotAvailableError(url=store.url(source.path), availability=survey.availability, flag=source.flag)
    part = copy_filter(options)
    if part.is_everything:
        return survey
    files = tuple(file for file in survey.files if part.matches(file.path))
    whole = CopyFilter(options.sub_path)
    if not files and not options.allow_empty and (there := sum(whole.matches(file.path) for file in survey.files)):
        raise NothingSelectedError(url=store.url(source.path), files=there)
    return replace(survey, files=files, others=tuple(path for path in survey.others if part.matches(path)))


def copy_flags(target: Side, options: CopyOptions) -> tuple[str, ...]:
    """Return the flags to write. The flag of the whole instance is first in order, because it must appear last."""
    if not target.flag:
        return ()
    own = f"{copy_filter(options).base}/{target.flag}".lstrip("/")
    return (target.flag, own) if options.instance_flag and own != target.flag else (own,)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The comparison of two sides, file by file. The `draft` of the plan has the survey of the source, and the
    publication at the target if it is complete, with its flags.
    """

    store: InstanceStore
    to: InstanceStore
    draft: CopyPlan
    distrusted: Collection[str]
    adopts: bool

    def plan(self) -> CopyPlan:
        draft, options, survey = self.draft, self.draft.options, self.draft.survey
        mark, standing, is_unfinished = self.to.standing(draft.target.path)
        is_foreign = bool(standing) and not mark and not is_unfinished and draft.publication is None
        manifest = self._find_manifest() if mark or (is_foreign and self.adopts) else None
        entries = {path: entry for path, entry in _entries(manifest, standing).items() if path not in self.distrusted}
        part, files = draft.filter, {file.path: file for file in survey.files}
        same, doubtful = self._find_same(files, entries)
        equal = self._find_equal(doubtful, entries)
        same |= equal
        kept, removed, replaced = [], [], []
        for path, size in standing.items():
            is_part = part.is_everything or (part.matches(path) and (options.hidden or is_content(path, None)))
            if path in draft.flags:
                continue
            if path in same or (path not in files and (not is_part or self._keeps_extra())):
                kept.append(Kept(path=path, size=size, entry=entries.get(path)))
            elif path not in files:
                removed.append(path)
            else:
                replaced.append(Kept(path=path, size=size, entry=entries.get(path)))
        transfers = tuple(file for file in survey.files if file.path not in same)
        if not files and removed and not (options.allow_emptying or draft.source.flag or survey.mark):
            target = self.to.url(draft.target.path)
            raise SourceEmptiedError(url=draft.source_url, target=target, files=len(removed))
        is_same = _is_described(draft.publication, survey) and not transfers and not removed
        is_refresh = is_same and bool(equal) and all(file.is_settled for file in survey.files)
        return replace(
            draft,
            is_unchanged=is_same and not is_refresh,
            is_refresh=is_refresh,
            transfers=transfers,
            kept=tuple(sorted(kept, key=lambda each: each.path)),
            replaced=tuple(replaced),
            removed=tuple(sorted(removed)),
            extra=dict(manifest.extra) if manifest else {},
            standing=mark,
            is_unfinished=is_unfinished,
            is_foreign=is_foreign,
        )

    def _find_manifest(self) -> Manifest | None:
        """Return the manifest of the target; None if it cannot be read, and then everything is copied.

        That of foreign content is computed.
        """
        try:
            found = self.to.published_manifest(self.draft.target.path)
        except ManifestError:
            return None
        return found or (self.to.manifest(self.draft.target.path, self.draft.target.flag) if self.adopts else None)

    def _find_same(
        self, files: Mapping[str, SourceFile], entries: Mapping[str, ManifestEntry]
    ) -> tuple[set[str], list[SourceFile]]:
        """Return the files that the target already has, and those that only a comparison of bytes can decide."""
        same: set[str] = set()
        doubtful: list[SourceFile] = []
        for path, file in files.items() if not self.draft.options.overwrite else ():
            entry = entries.get(path)
            if entry is None or entry.size != file.size:
                continue
            version = entry.unknown.get(VERSION)
            if (file.checksum and file.checksum == entry.checksum) or (version and version == file.version):
                same.add(path)
            elif not file.checksum and not version:
                doubtful.append(file)
        return same, doubtful

    def _find_equal(self, files: list[SourceFile], entries: Mapping[str, ManifestEntry]) -> set[str]:
        """Return the files whose bytes equal those of the target; none if the source is remote."""
        if not files or self.store.place(self.draft.source.path).store.is_remote:
            return set()
        with self.store.reading(self.draft.source.path) as reading:

            def is_equal(file: SourceFile) -> bool:
                expected = entries[file.path].checksum
                return checksum_of(reading.chunks(file.path), like=expected) == expected

            with ThreadPoolExecutor(_THREADS) as pool:
                return {file.path for file, equal in zip(files, pool.map(is_equal, files), strict=True) if equal}

    def _keeps_extra(self) -> bool:
        match self.draft.options.removed_files:
            case RemovedFiles.BY_MANIFEST:
                return not self.draft.survey.mark
            case removed:
                return removed is RemovedFiles.KEEP


def _entries(manifest: Manifest | None, standing: Mapping[str, int]) -> dict[str, ManifestEntry]:
    """Return the manifest entries of existing files, including hidden ones; leave out files of another size."""
    if manifest is None:
        return {}
    entries = [*manifest.entries, *hidden_entries(manifest)]
    return {entry.path: entry for entry in entries if standing.get(entry.path) == entry.size}
