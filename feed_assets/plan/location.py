"""Locations: the entities declared in one place, validated and compiled, with their issues.

Every run of Dagster loads its location anew. A compiled plan is cached beside the state and used again while the files
are unchanged; code that parses, validates and compiles is imported only when needed.
"""

import hashlib
import io
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.locations.overlaps import Places
from feed_assets.entities.maps import EMPTY, FrozenMap
from feed_assets.issues import Issue, Severity, SourceMap, fold_followers
from feed_assets.loading.entity_files import EntityFile, digest_files, read_declared_files, values_of
from feed_assets.masking import SecretPart, get_logger, remember_credentials, split_secrets
from feed_assets.plan.pinned_files import with_pinned_files
from feed_assets.plan.records import Plan
from feed_assets.settings import Settings

if TYPE_CHECKING:
    from feed_assets.entities.bundle import AnyEntity
    from feed_assets.loading.bundles import LoadedBundle
    from feed_assets.loading.process_functions import ProcessFunction

Declared: TypeAlias = "AnyEntity | ProcessFunction[..., Any]"
"""A declaration in Python: an entity, or the function of a process."""

_CACHED_PLANS = 4
_CHECKSUM_BYTES = 32
_OTHERS = 0o077
_COMPILING = ("entities", "loading", "plan", "timing", "validation")

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The plan of all usable declarations of one place, with every issue found.

    `declared` are entities that were built in Python; None if they are declared in files. `identities` are the local
    folders of the declarations as this machine had them: links and mounts may change without the files.
    """

    plan: Plan
    issues: tuple[Issue, ...]
    digest: str
    declared: "tuple[AnyEntity, ...] | None" = None
    identities: FrozenMap[str, str] = EMPTY

    @property
    def errors(self) -> tuple[Issue, ...]:
        """The issues that keep an entity out of the plan."""
        return tuple(issue for issue in self.issues if issue.severity is Severity.ERROR)


def load_location(
    settings: Settings, cache: Path | None = None, files: tuple[EntityFile, ...] | None = None
) -> Location:
    """Load, validate and compile the entities that the settings name.

    Entities with errors, and those that depend on them, are left out of the plan and named in `issues`. `cache` is a
    folder for compiled plans. `files` are those of the settings, if they are read already.

    Raises:
        DefinitionsError: the files cannot be read, or they have errors and the settings are strict.
    """
    files = read_declared_files(settings) if files is None else files
    values = values_of(settings)
    digest = digest_files(files, values)
    listeners = sorted(settings.notify)
    cached = " ".join([digest, *listeners, *([] if settings.works_in is None else [f"in {settings.works_in}"])])
    location = _find_cached(cache, cached)
    if location is None:
        from feed_assets.loading.bundles import load_files

        loaded = load_files(files, values)
        location = compile_location(loaded, settings.code_root, listeners, settings.works_in)
        if not location.errors:
            _keep(cache, cached, location)
    location = replace(location, plan=with_pinned_files(location.plan, settings.root))
    if settings.strict and location.errors:
        raise _definitions_error(settings.entities_location, location)
    return location


def find_plan_cache(environ: Mapping[str, str]) -> Path | None:
    """Return the folder for compiled plans, beside the Dagster instance of `DAGSTER_HOME`; None without one."""
    home = environ.get("DAGSTER_HOME")
    return Path(home) / "feed_assets" / "plans" if home else None


def declare_location(entities: Sequence[Declared], root: Path | None = None) -> Location:
    """Validate and compile entities that were built in Python; files of workflows are below `root`.

    Raises:
        DefinitionsError: the entities have errors. Declarations in code are corrected at once.
    """
    from feed_assets.entities.bundle import Bundle
    from feed_assets.loading.bundles import LoadedBundle
    from feed_assets.loading.process_functions import ProcessFunction

    functions = [each for each in entities if isinstance(each, ProcessFunction)]
    sources = SourceMap({function.entity.key: function.sources for function in functions})
    bundle = Bundle(entities=tuple(each.entity if isinstance(each, ProcessFunction) else each for each in entities))
    for entity in bundle.entities:
        remember_credentials(entity.model_dump(mode="json"), os.environ)
    loaded = LoadedBundle(bundle=bundle, issues=(), sources=sources, broken=frozenset(), digest=bundle.digest)
    location = compile_location(loaded)
    if location.errors:
        raise _definitions_error("entities built in Python", location)
    plan = location.plan if root is None else with_pinned_files(location.plan, root)
    return replace(location, plan=plan, declared=bundle.entities)


def compile_location(
    loaded: "LoadedBundle",
    root: Path | None = None,
    listeners: Collection[str] | None = None,
    colo: str | None = None,
) -> Location:
    """Validate loaded entities and compile the usable ones, of one `colo` or of all; files of workflows are checked
    below `root`. `listeners` are the receivers of the settings, if they are known.
    """
    from feed_assets.entities.locations.overlaps import find_overlaps
    from feed_assets.loading.bundles import usable_bundle
    from feed_assets.plan.compile import compile_plan
    from feed_assets.validation.rules import validate_bundle

    found = validate_bundle(loaded.bundle, loaded.sources, root, left_out=loaded.salvaged, listeners=listeners)
    issues = (*loaded.issues, *found)
    usable, blocked = usable_bundle(loaded, issues)
    left_out = [*(each for each in loaded.bundle.entities if usable.find(each.key) is None), *loaded.salvaged]
    places = Places()
    overlaps = find_overlaps(usable, left_out=left_out, places=places)
    plan = compile_plan(usable, loaded.sources, overlaps=overlaps, colo=colo)
    found = fold_followers((*issues, *blocked))
    return Location(plan=plan, issues=tuple(found), digest=loaded.digest, identities=FrozenMap(places.identities))


def _definitions_error(place: str, location: Location) -> DefinitionsError:
    return DefinitionsError(
        location=place,
        reason=f"{len(location.errors)} {'error' if len(location.errors) == 1 else 'errors'}",
        next_step="Correct these issues:",
        issues=location.errors,
    )


def _find_cached(cache: Path | None, digest: str) -> Location | None:
    """Return the result of an earlier load of the same files by the same code.

    None if it is missing or damaged, or if links or mounts have changed since.
    """
    if cache is None or not _is_ours(cache):
        return None
    try:
        content = _read_ours(_cached_file(cache, digest))
    except OSError:
        return None
    checksum, pickled = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    if hashlib.sha256(pickled).digest() != checksum:
        return None
    try:
        location = _Unpickler(io.BytesIO(pickled)).load()
    except KeyError:  # a variable is gone
        return None
    assert isinstance(location, Location)
    return location if Places().confirm(location.identities) else None


def _keep(cache: Path | None, digest: str, location: Location) -> None:
    """Store a location for the next load; if the folder is not writable, every load compiles anew.

    Values of the environment are only named. What contains credentials in clear text is not stored.
    """
    if cache is None:
        return
    from feed_assets.validation.entities.credentials import CLEAR_TEXT_CREDENTIAL  # a cached plan needs no validation

    if any(issue.code == CLEAR_TEXT_CREDENTIAL for issue in location.issues):
        return
    stream = io.BytesIO()
    _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(location)
    pickled = stream.getvalue()
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_ours(cache):
            return
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
            file.write(hashlib.sha256(pickled).digest() + pickled)
        Path(file.name).replace(_cached_file(cache, digest))
        plans = sorted(cache.glob("*.plan"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in plans[_CACHED_PLANS:]:
            old.unlink(missing_ok=True)
    except OSError as exc:
        _logger.warning("compiled plans cannot be cached in %s: %s", cache, exc)


class _Pickler(pickle.Pickler):
    """Writes texts with values of the environment as their parts."""

    def persistent_id(self, obj: object) -> list[str | SecretPart] | None:
        return split_secrets(obj) if isinstance(obj, str) else None


class _Unpickler(pickle.Unpickler):
    """Puts values of the environment into the texts again."""

    def persistent_load(self, pid: list[str | SecretPart]) -> str:
        return "".join(part if isinstance(part, str) else part.restore(os.environ) for part in pid)


def _is_ours(cache: Path) -> bool:
    """Return whether only we can write the folder: whoever writes a cached plan decides what is executed here."""
    try:
        found = cache.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
    if not is_ours:
        _warn_once(f"compiled plans are not cached in {cache}: it is no folder of this user with mode 0700; remove it")
    return is_ours


def _read_ours(file: Path) -> bytes:
    """Read a file that only we can have written. Raises `OSError` for any other."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - of a descriptor
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS or not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{file} is not a file of this user alone")
        return stream.read()


@lru_cache
def _warn_once(message: str) -> None:
    _logger.warning("%s", message)


def _cached_file(cache: Path, digest: str) -> Path:
    return cache / f"{hashlib.sha256(f'{_code_stamp()}|{digest}'.encode()).hexdigest()[:40]}.plan"


@lru_cache
def _code_stamp() -> str:
    """Return a digest of the code that loads, validates and compiles, so that no cached plan outlives a code change."""
    package = Path(__file__).parents[1]
    folders = [package.glob("*.py"), *((package / folder).rglob("*.py") for folder in _COMPILING)]
    files = [file for folder in folders for file in sorted(folder)]
    stats = [(file.name, stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]
    return f"{sys.version_info}|{stats}"
