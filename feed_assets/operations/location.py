"""A location: what is declared in one place, validated and compiled, with what is wrong there.

Every run of Dagster loads its location anew, so a compiled plan is kept beside the state and used again while the
files say the same.
"""

import hashlib
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.errors import DefinitionsError
from feed_assets.issues import Issue, Severity, SourceMap
from feed_assets.loading.entity_files import (
    LoadedBundle,
    digest_files,
    load_files,
    read_entity_files,
    usable_bundle,
)
from feed_assets.loading.interpolation import Values
from feed_assets.plan.compile import compile_plan
from feed_assets.plan.records import Plan
from feed_assets.settings import Settings
from feed_assets.validation.rules import validate_bundle

PLAN_FORMAT = 1
_CACHED_PLANS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """What one place declares: the plan of everything that can be used, and every issue found on the way."""

    plan: Plan
    issues: tuple[Issue, ...]
    digest: str

    @property
    def errors(self) -> tuple[Issue, ...]:
        """The issues that keep something out of the plan."""
        return tuple(issue for issue in self.issues if issue.severity is Severity.ERROR)


def load_location(settings: Settings, as_of: datetime, cache: Path | None = None) -> Location:
    """Load, validate and compile what the settings name.

    Entities with errors, and those that depend on them, are left out of the plan and named in `issues`. `cache` is a
    folder of ours for compiled plans.

    Raises:
        DefinitionsError: the place cannot be read; or something is wrong in it and the settings are strict.
    """
    files = read_entity_files(settings.entities_location)
    values = Values(variables=settings.cluster_variables, environ=os.environ)
    digest = digest_files(files, values)
    location = _find_cached(cache, digest)
    if location is None:
        location = compile_location(load_files(files, values), as_of)
        _keep(cache, digest, location)
    if settings.strict and location.errors:
        raise _refused(settings.entities_location, location)
    return location


def declare_location(entities: Sequence[AnyEntity], as_of: datetime) -> Location:
    """Validate and compile entities that were built in Python.

    Raises:
        DefinitionsError: something is wrong with them; code that declares is corrected at once.
    """
    bundle = Bundle(entities=tuple(entities))
    loaded = LoadedBundle(bundle=bundle, issues=(), sources=SourceMap(), broken=frozenset(), digest=bundle.digest)
    location = compile_location(loaded, as_of)
    if location.errors:
        raise _refused("entities built in Python", location)
    return location


def compile_location(loaded: LoadedBundle, as_of: datetime) -> Location:
    """Validate what was read and compile what can be used of it."""
    issues = (*loaded.issues, *validate_bundle(loaded.bundle, loaded.sources, as_of))
    usable, blocked = usable_bundle(loaded, issues)
    return Location(plan=compile_plan(usable, loaded.sources), issues=(*issues, *blocked), digest=loaded.digest)


def _refused(place: str, location: Location) -> DefinitionsError:
    return DefinitionsError(
        location=place,
        reason=f"{len(location.errors)} errors",
        next_step="Correct them:",
        issues=tuple(issue.render() for issue in location.errors),
    )


def _find_cached(cache: Path | None, digest: str) -> Location | None:
    if cache is None:
        return None
    try:
        with _cached_file(cache, digest).open("rb") as file:
            location = pickle.load(file)
    except (OSError, pickle.UnpicklingError, AttributeError, ImportError, EOFError, TypeError):
        return None
    return location if isinstance(location, Location) else None


def _keep(cache: Path | None, digest: str, location: Location) -> None:
    if cache is None:
        return
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
        pickle.dump(location, file, protocol=pickle.HIGHEST_PROTOCOL)
    os.replace(file.name, _cached_file(cache, digest))
    plans = sorted(cache.glob("*.plan"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in plans[_CACHED_PLANS:]:
        old.unlink(missing_ok=True)


def _cached_file(cache: Path, digest: str) -> Path:
    name = hashlib.sha256(f"{PLAN_FORMAT}|{digest}".encode()).hexdigest()[:40]
    return cache / f"{name}.plan"
