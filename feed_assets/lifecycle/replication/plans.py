"""What a copy has to do: which files are transferred, adopted and removed, from manifest against manifest.

The manifest of a copy says of what it is one: `extra` has a record for each source (see `Replica`), and each entry has
the sign that its file had at the source. So a copy that has nothing to do finds that out from two heads of manifests.
"""

import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from feed_assets.clock import Clock
from feed_assets.entities.copying import RemovedFiles
from feed_assets.lifecycle.errors import SourceEmptiedError, SourceNotAvailableError
from feed_assets.lifecycle.replication.filters import CopyFilter
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.addresses import StoreAddress
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.copy_port import Copying, SourceFile, Survey
from feed_assets.storage.errors import ManifestError
from feed_assets.storage.manifests import Publication, hidden_entries, parse_json, render_json
from feed_assets.storage.paths import is_content, path_name
from feed_assets.storage.records import Availability, Manifest, ManifestEntry

SIGN = "source"
"""The field of a manifest entry that has the sign of the file at its source."""
REPLICA = "replica:"
HIDDEN_PART = "\n+ hidden"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a copy: an instance by its store, its path and its availability flag (None: it has none)."""

    store: StoreAddress
    path: str
    flag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What a manifest says of a source it was copied from.

    `digest` is the content digest of what was copied, `sign` and `mark` those of the source then (see `Survey`);
    `is_settled` says that a later change of the source changes the sign.
    """

    url: str
    part: str
    digest: str
    sign: str
    mark: str
    is_settled: bool

    def render(self) -> str:
        """The record as the value of a manifest's `extra`."""
        fields = [self.url, self.part, self.digest, self.sign, self.mark, int(self.is_settled)]
        return render_json([1, *fields]).decode()


def parse_replica(text: str | None) -> Replica | None:
    """Read what `Replica.render` wrote; None for what is no such record."""
    try:
        version, url, part, digest, sign, mark, is_settled = parse_json(text or "null")
    except (ValueError, TypeError):
        return None
    if version != 1:
        return None
    return Replica(url=url, part=part, digest=digest, sign=sign, mark=mark, is_settled=bool(is_settled))


def replica_key(part: str) -> str:
    """The name in a manifest's `extra` under which the source of a part of the instance is recorded."""
    return f"{REPLICA}{path_name(part) if part else 'whole'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A file that stands at the target and stays; `entry` is None where no manifest tells of it yet."""

    path: str
    size: int
    entry: ManifestEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What one copy will do. `transfers` are read from the source, `kept` stay, `removed` go.

    `replaced` is what stands in the place of some of the transfers. A plan that `is_unchanged` has nothing to do; one
    that `is_refresh` only has to write down that nothing has changed. `flags` are written last. `standing` is the mark
    of what stood at the target (nothing at all if that `is_vacant`; if it `is_unfinished`, a publication has begun
    there), `extra` what its manifest said, `publication` what was published with all its flags.
    """

    source: Side
    target: Side
    options: CopyOptions
    source_url: str
    is_unchanged: bool
    survey: Survey
    transfers: tuple[SourceFile, ...] = ()
    kept: tuple[Kept, ...] = ()
    replaced: tuple[Kept, ...] = ()
    removed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    standing: str = ""
    is_vacant: bool = False
    is_unfinished: bool = False
    digest: str = ""
    publication: Publication | None = None
    is_refresh: bool = False

    @property
    def bytes(self) -> int:
        """How many bytes will be transferred."""
        return sum(file.size for file in self.transfers)

    @property
    def filter(self) -> CopyFilter:
        return copy_filter(self.options)

    @property
    def may_be_in_place(self) -> bool:
        """Whether the copy may be written where it belongs, because only its flag tells readers that it is there."""
        return self.is_vacant and bool(self.flags) and self.filter.is_everything

    @property
    def token(self) -> str:
        """The name of the staging: copies of the same part of one source share it, and what is of use in it."""
        text = f"{self.source_url}\n{self.filter.name}"
        return f"copy-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


@lru_cache(maxsize=64)
def copy_filter(options: CopyOptions) -> CopyFilter:
    """The filter of a copy."""
    return CopyFilter(options.sub_path, options.include, options.exclude)


def part_name(part: CopyFilter, options: CopyOptions) -> str:
    """What is copied, as a replica writes it down."""
    return f"{part.name}{HIDDEN_PART}" if options.hidden else part.name


def nanoseconds(moment: datetime) -> int:
    """A moment as nanoseconds since 1970."""
    return ((moment - _EPOCH) // timedelta(microseconds=1)) * 1000


def plan_copy(
    stores: StorePool, source: Side, target: Side, options: CopyOptions, clock: Clock, distrusted: Collection[str] = ()
) -> CopyPlan:
    """Find out what a copy would do; nothing is written. `clock` is the wall clock.

    Files that are `distrusted` are transferred whatever the manifest of the target says of them.

    Raises:
        SourceNotAvailableError: there is no whole instance at the source; an unmounted storage is a `StorageError`.
        SourceEmptiedError: a source without flag and manifest is empty and the target is not.
        StorageError: a storage refused, or the source did not hold still.
    """
    store = stores.get(source.store)
    copying, to, url = store.copying(), stores.get(target.store).copying(), store.url(source.path)
    published, replica = _find_replica(to, url, target, options, distrusted)
    if replica is not None and _is_marked(replica, copying, source, options):
        return _unchanged(source, target, options, url, published, replica)
    survey = survey_source(stores, source, options, clock)
    if replica is not None and replica.is_settled and replica.sign == survey.sign:
        return _unchanged(source, target, options, url, published, replica)
    flags = copy_flags(target, copy_filter(options), options)
    return _Comparison(stores, source, target, options, survey, url, flags, copying, to, distrusted).plan(published)


def find_unchanged(
    stores: StorePool, source: Side, target: Side, options: CopyOptions, distrusted: Collection[str] = ()
) -> CopyPlan | None:
    """The plan of a copy that has nothing to do, if the marks of both sides tell so; None if more has to be looked at.

    Raises:
        StorageError: a storage refused.
    """
    store, to = stores.get(source.store), stores.get(target.store).copying()
    url = store.url(source.path)
    published, replica = _find_replica(to, url, target, options, distrusted)
    if replica is None or not _is_marked(replica, store.copying(), source, options):
        return None
    return _unchanged(source, target, options, url, published, replica)


def _find_replica(
    copying: Copying, url: str, target: Side, options: CopyOptions, distrusted: Collection[str]
) -> tuple[Publication | None, Replica | None]:
    """What is published at the target, and what it says of the copy of this URL, if that can be gone by."""
    part = copy_filter(options)
    published = copying.find_publication(target.path, copy_flags(target, part, options))
    if published is None or options.overwrite or distrusted:
        return published, None
    replica = parse_replica(published.extra.get(replica_key(part.name)))
    if replica is not None and (replica.url, replica.part) != (url, part_name(part, options)):
        replica = None
    return published, replica


def _is_marked(replica: Replica, copying: Copying, source: Side, options: CopyOptions) -> bool:
    """Whether the source is marked as it was when it was copied."""
    if not options.quick or not replica.mark:
        return False
    return replica.mark == copying.mark(source.path)


def survey_source(stores: StorePool, source: Side, options: CopyOptions, clock: Clock) -> Survey:
    """The files of the source that the filter names.

    Raises:
        SourceNotAvailableError: there is no whole instance.
    """
    copying = stores.get(source.store).copying()
    now = nanoseconds(clock.now())
    survey = copying.survey(source.path, source.flag, now, everything=options.hidden)
    if survey.availability not in (Availability.AVAILABLE, Availability.EMPTY):
        raise SourceNotAvailableError(
            url=stores.get(source.store).url(source.path), availability=survey.availability, flag=source.flag
        )
    part = copy_filter(options)
    if part.is_everything:
        return survey
    files = tuple(file for file in survey.files if part.matches(file.path))
    return Survey(availability=survey.availability, files=files, mark=survey.mark)


def copy_flags(target: Side, part: CopyFilter, options: CopyOptions) -> tuple[str, ...]:
    """The flags to be written, that of the whole instance last of all to appear (so first in order)."""
    if not target.flag:
        return ()
    own = f"{part.base}/{target.flag}".lstrip("/")
    return (target.flag, own) if options.instance_flag and own != target.flag else (own,)


def _unchanged(
    source: Side, target: Side, options: CopyOptions, url: str, published: Publication | None, replica: Replica
) -> CopyPlan:
    survey = Survey(availability=Availability.AVAILABLE)
    return CopyPlan(
        source=source,
        target=target,
        options=options,
        source_url=url,
        is_unchanged=True,
        survey=survey,
        digest=replica.digest,
        publication=published,
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    stores: StorePool
    source: Side
    target: Side
    options: CopyOptions
    survey: Survey
    url: str
    flags: tuple[str, ...]
    copying: Copying
    to: Copying
    distrusted: Collection[str]

    def plan(self, published: Publication | None) -> CopyPlan:
        """Compare file by file. `published` is what stands at the target, if it is whole, with its flags."""
        mark, standing, is_unfinished = self.to.standing(self.target.path)
        manifest = self._find_manifest() if mark else None
        entries = {path: entry for path, entry in _entries(manifest, standing).items() if path not in self.distrusted}
        part, files = copy_filter(self.options), {file.path: file for file in self.survey.files}
        same, doubtful = self._find_same(files, entries)
        equal = self._find_equal(doubtful, entries)
        same |= equal
        kept, removed, replaced = [], [], []
        for path, size in standing.items():
            is_part = part.is_everything or (part.matches(path) and (self.options.hidden or is_content(path, None)))
            if path in self.flags:
                continue
            if path in same or (path not in files and (not is_part or self._keeps_extra())):
                kept.append(Kept(path=path, size=size, entry=entries.get(path)))
            elif path not in files:
                removed.append(path)
            else:
                replaced.append(Kept(path=path, size=size, entry=entries.get(path)))
        transfers = tuple(file for file in self.survey.files if file.path not in same)
        if not files and removed and not self._may_empty():
            raise SourceEmptiedError(url=self.url, target=self._target_url(), files=len(removed))
        is_same = published is not None and not transfers and not removed
        is_refresh = is_same and bool(equal) and all(file.is_settled for file in self.survey.files)
        return CopyPlan(
            source=self.source,
            target=self.target,
            options=self.options,
            source_url=self.url,
            is_unchanged=is_same and not is_refresh,
            is_refresh=is_refresh,
            survey=self.survey,
            transfers=transfers,
            kept=tuple(sorted(kept, key=lambda each: each.path)),
            replaced=tuple(replaced),
            removed=tuple(sorted(removed)),
            flags=self.flags,
            extra=dict(manifest.extra) if manifest else {},
            standing=mark,
            is_vacant=not mark and not standing,
            is_unfinished=is_unfinished,
            publication=published,
        )

    def _find_manifest(self) -> Manifest | None:
        """That of the target; one that cannot be read says nothing, and everything is copied."""
        try:
            return self.stores.get(self.target.store).published_manifest(self.target.path)
        except ManifestError:
            return None

    def _find_same(
        self, files: Mapping[str, SourceFile], entries: Mapping[str, ManifestEntry]
    ) -> tuple[set[str], list[SourceFile]]:
        """The files that are at the target already, and those of which only their bytes can tell."""
        same: set[str] = set()
        doubtful: list[SourceFile] = []
        for path, file in files.items() if not self.options.overwrite else ():
            entry = entries.get(path)
            if entry is None or entry.size != file.size:
                continue
            sign = entry.unknown.get(SIGN)
            if (file.checksum and file.checksum == entry.checksum) or (sign and sign == file.sign):
                same.add(path)
            elif not file.checksum and not sign:
                doubtful.append(file)
        return same, doubtful

    def _find_equal(self, files: list[SourceFile], entries: Mapping[str, ManifestEntry]) -> set[str]:
        """Those whose bytes are those of the target, where the source is near enough to be read for it."""
        if not files:
            return set()
        with self.copying.reading(self.source.path) as reading:
            if not reading.has_descriptors:
                return set()

            def is_equal(file: SourceFile) -> bool:
                expected = entries[file.path].checksum
                return checksum_of(reading.chunks(file.path, 0, file.size), like=expected) == expected

            with ThreadPoolExecutor(_THREADS) as pool:
                return {file.path for file, equal in zip(files, pool.map(is_equal, files), strict=True) if equal}

    def _keeps_extra(self) -> bool:
        match self.options.removed_files:
            case RemovedFiles.BY_MANIFEST:
                return not self.survey.mark
            case removed:
                return removed is RemovedFiles.KEEP

    def _may_empty(self) -> bool:
        return bool(self.options.allow_emptying or self.source.flag or self.survey.mark)

    def _target_url(self) -> str:
        return self.stores.get(self.target.store).url(self.target.path)


def _entries(manifest: Manifest | None, standing: Mapping[str, int]) -> dict[str, ManifestEntry]:
    """What a manifest says of the files that stand, hidden ones included; nothing of those that have another size."""
    if manifest is None:
        return {}
    entries = [*manifest.entries, *hidden_entries(manifest)]
    return {entry.path: entry for entry in entries if standing.get(entry.path) == entry.size}
