"""List, describe, register, enable and disable extensions."""

from collections.abc import Collection
from pathlib import Path

from feed_assets.access.rights import find_hidden
from feed_assets.command_lines import command_line
from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.extensions.recipes import read_recipe
from feed_assets.definitions.extensions.records import BUILD, ENTITIES, README, RECIPE, Extension, ShownExtension
from feed_assets.definitions.extensions.store import Extensions, digest_of, read_folder
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.definitions.verbs.verb_results import EntityOutcome, VerbOutcome, VerbResult
from feed_assets.entities.common import label_of
from feed_assets.issues import EntityKey

_KIND = "extension"


def find_jobs(loaded: Loaded, extension: str, hidden: Collection[EntityKey] = ()) -> tuple[str, ...]:
    """Return the names of the jobs that an extension has made, but for those that have made something `hidden`."""
    jobs = loaded.jobs.items()
    return tuple(
        sorted(name for name, each in jobs if each.job.extension == extension and not {*hidden} & {*each.keys})
    )


def list_extensions(context: EntityContext) -> tuple[ShownExtension, ...]:
    """Return all extensions, by name."""
    loaded = context.load()
    with context.database.read() as connection:
        found = [Extensions(connection).look(name) for name in Extensions(connection).names()]
    hidden = find_hidden()
    return tuple(ShownExtension(extension=each, jobs=find_jobs(loaded, each.name, hidden)) for each in found)


def find_extension(context: EntityContext, name: str) -> Extension:
    """Return an extension. Raises as `Extensions.get`."""
    with context.database.read() as connection:
        return Extensions(connection).get(name)


def show_extension(context: EntityContext, name: str) -> ShownExtension:
    """Return an extension for people. Raises as `Extensions.get`."""
    return ShownExtension(extension=find_extension(context, name), jobs=find_jobs(context.load(), name, find_hidden()))


def describe_extension(context: EntityContext, name: str) -> str:
    """Return the README of an extension; without one its description."""
    extension = find_extension(context, name)
    return extension.files.get(README, extension.recipe.description.encode()).decode("utf-8", "replace").rstrip("\n")


def register_extension(context: EntityContext, folder: Path) -> VerbResult:
    """Keep the code of an extension in the state, in the place of earlier code of its name, whose jobs stay as they are
    until they are updated.

    Raises:
        DefinitionsError: its recipe has mistakes; carries the issues.
        VerbRefusedError: an installed extension has its name.
    """
    files = read_folder(folder)
    name, made_by = read_recipe(files, str(folder)).name, digest_of(files)
    with context.database.begin() as connection:
        known = Extensions(connection)
        is_known = name in known.names()
        if is_known and not known.is_registered(name):
            reason = "an installed extension has this name"
            raise VerbRefusedError(subject=label_of((_KIND, name)), reason=reason, next_step="Choose another name.")
        is_change = not is_known or known.get(name).made_by != made_by
        if is_change and not context.dry_run:
            known.put(name, files)
    parts = {RECIPE, README, BUILD, ENTITIES.removesuffix("/")}
    left = sorted(each.name for each in folder.iterdir() if each.name not in parts)
    notes = (f"no part of it: {', '.join(left)}",) if left else ()
    return _result(context, name, made_by, VerbOutcome.REGISTERED, is_change=is_change, notes=notes)


def unregister_extension(context: EntityContext, name: str) -> VerbResult:
    """Forget the code of an extension.

    Raises:
        VerbRefusedError: there is none of this name, it is not registered, or it has jobs.
    """
    with context.database.begin() as connection:
        known = Extensions(connection)
        made_by, jobs = known.get(name).made_by, find_jobs(context.load(), name)
        reason, next_step = "", ""
        if jobs:
            reason = f"it has made {', '.join(jobs)}"
            next_step = f"Delete that first: {command_line('extension', 'job', 'delete', jobs[0])}"
        elif not known.is_registered(name):
            reason, next_step = f"it goes with {made_by}", "Disable it instead."
        if reason:
            raise VerbRefusedError(subject=label_of((_KIND, name)), reason=reason, next_step=next_step)
        if not context.dry_run:
            known.remove(name)
    return _result(context, name, made_by, VerbOutcome.UNREGISTERED)


def enable_extension(context: EntityContext, name: str, *, is_enabled: bool) -> VerbResult:
    """Let jobs of an extension be submitted, scheduled and updated, or not any more. Raises as `Extensions.get`."""
    with context.database.begin() as connection:
        extension = Extensions(connection).get(name)
        is_change = extension.is_enabled is not is_enabled
        if is_change and not context.dry_run:
            Extensions(connection).enable(name, is_enabled=is_enabled)
    outcome = VerbOutcome.ENABLED if is_enabled else VerbOutcome.DISABLED
    return _result(context, name, extension.made_by, outcome, is_change=is_change)


def _result(
    context: EntityContext,
    name: str,
    made_by: str,
    outcome: VerbOutcome,
    *,
    is_change: bool = True,
    notes: tuple[str, ...] = (),
) -> VerbResult:
    """Return what was done, with an entry in the audit, and which jobs another version has made."""
    if is_change and not context.dry_run:
        context.audit(f"extension-{outcome}", label_of((_KIND, name)), made_by=made_by)
    jobs = {job: each.job for job, each in context.load().jobs.items() if each.job.extension == name}
    others = [job for job, each in sorted(jobs.items()) if each.made_by != made_by]
    follow = command_line("extension", "job", "update", name, all=True)
    notes = (made_by, *notes, *([f"another version has made {', '.join(others)}: `{follow}`"] if others else ()))
    told = EntityOutcome(kind=_KIND, name=name, outcome=outcome if is_change else VerbOutcome.UNCHANGED, notes=notes)
    return VerbResult(verb=outcome, outcomes=(told,), dry_run=context.dry_run)
