"""Between an operation and its call: what a front asks the servers of its colos, and what it makes of their answers.

A change of definitions is checked everywhere before it is made anywhere, and recorded here last. So the same command
completes what one server could not take, and what is done already stays as it is.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import click

from feed_assets.access.rights import require_acts, require_reads
from feed_assets.cli.door import Door, Outcome, Screen
from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.options import open_entity_context_for, split_kind
from feed_assets.cli.render import Output, echo, print_json, print_table, say
from feed_assets.context.safe_mode import require_allowed
from feed_assets.definitions.errors import MassDeletionError
from feed_assets.definitions.ownership import is_mass_deletion
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.changes import KeyedDocuments, read_documents
from feed_assets.definitions.verbs.context import EntityContext, get_declared
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import declared_by
from feed_assets.entities.graph import DependencyGraph, find_reached
from feed_assets.entities.process import Process
from feed_assets.errors import SettingsError, WrongUsageError
from feed_assets.front.errors import NoSiteError, SitesError
from feed_assets.front.sites import Call, Site, Told, ask_all, iter_lines, merge, read_tables
from feed_assets.issues import EntityKey
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import find_operation
from feed_assets.server.calls import call, list_parameters
from feed_assets.setting_sections import Authorization
from feed_assets.settings import Settings

_DELETE, _UPDATE, _DEPENDENTS = "entity delete", "entity update", "entity update-cluster-dependents"
_SUBMITS = ("entity submit", "entity submit-and-schedule")
_DECLARES = ("apply", _UPDATE, _DELETE, _DEPENDENTS, *_SUBMITS)
_OWN = ("metadata", "notify", "admin")
"""Groups that are about what the front itself has."""
_LAST_FIRST = (Kind.PROCESS, Kind.FEED, Kind.DATASOURCE, Kind.CLUSTER)
"""Kinds in the order in which they are deleted: nothing refers to the first."""
_CONFIRMED = ("yes", "digest", "delete_all", "dry_run")
_ALL = 1_000_000
_SUBJECTS = ("kind", "names", "name", "feed", "process")
_Spread = Mapping[str, Collection[EntityKey]]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of definitions: what it declares, what it removes, and what each colo has before and after it."""

    loaded: Loaded
    documents: KeyedDocuments
    removed: Collection[EntityKey]
    after: Bundle
    had: _Spread
    has: _Spread

    @property
    def keys(self) -> set[EntityKey]:
        return {*self.documents, *self.removed}


@dataclass(frozen=True, slots=True)
class Front:
    """The front of the servers of several colos."""

    settings: Settings
    sites: Mapping[str, Site]
    changing: Lock = field(default_factory=Lock)

    @classmethod
    def open(cls, settings: Settings) -> "Front":
        """Return the front that the settings name; say which servers are away.

        Raises:
            SettingsError: they name none, or one does not take the token, or is that of another colo.
        """
        if not settings.colos:
            reason, form = "it is missing, or names none", "colos: {east: {url: https://…, token: …}}"
            raise SettingsError(setting="colos", reason=reason, tried=settings.tried, next_step=f"Set {form}.")
        sites = {colo: Site.of(colo, each) for colo, each in settings.colos.items()}
        asked = [Call(find_operation("settings"), {"output": "json"})]
        for colo, told in ask_all(sites, dict.fromkeys(sites, asked), None).items():
            if told.is_away:
                say(f"feed-assets: warning: {colo}/{told.reason}", err=True)
                continue
            known = json.loads(told.out)["settings"] if told.is_done else ()
            its = next((each["value"] for each in known if each["name"] == "colo"), None)
            if not told.is_done or its != colo:
                reason = f"the server there has {f'the colo {its!r}' if its else 'no colo'}"
                reason = reason if told.is_done else f"its server refuses: {told.reason.rstrip('.')}"
                next_step = f"Set colo: {colo} there, or correct the address." if told.is_done else "Correct it."
                raise SettingsError(setting=f"colos.{colo}", reason=reason, tried=settings.tried, next_step=next_step)
        return cls(settings, sites)

    def __call__(self, door: Door, operation: Operation, given: Mapping[str, Any]) -> Outcome:
        """Call an operation here, at the servers of colos, or both."""
        own, given = replace(door, ask_sites=None), {**given}
        asked = given.pop("colo", None) or "*"
        is_own = operation.does in (Does.READS, Does.ADMINISTERS) and operation.context != "OperationContext"
        if not operation.is_of_sites and operation.name not in _DECLARES and (is_own or operation.group in _OWN):
            return call(own, operation, given)
        if door.screen.takes_results or not (operation.is_of_sites or operation.name in _DECLARES):
            places = ", ".join(f"{each.colo} at {each.url}" for each in self.sites.values())
            raise WrongUsageError(f"A front does not offer this: ask the server of a colo itself, {places}.")
        user = door.principal.name if self.settings.authorization is Authorization.ACL else None
        if operation.is_of_sites:
            told = self._ask_about(door, operation, given, self._choose(asked), user)
            return _tell(door, operation, given, told)
        with self.changing:
            return self._change(own, operation, given, user)

    def _choose(self, asked: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(filter(None, (each.strip() for each in asked.split(",")))))
        if unknown := [each for each in names if each not in self.sites and each != "*"]:
            raise NoSiteError(
                subject=f"colo {unknown[0]!r}", reason="there is none", next_step=f"Colos are {', '.join(self.sites)}."
            )
        return tuple(self.sites) if "*" in names else names

    def _ask_about(
        self, door: Door, operation: Operation, given: dict[str, Any], colos: Collection[str], user: str | None
    ) -> dict[str, Told]:
        """Ask the chosen colos, as far as what is named is there, each for its own."""
        if operation.stops_in_safe_mode:
            require_allowed(door.database, operation)
        loaded = open_entity_context_for(dry_run=True).load()
        kind, subjects = split_kind([word for name in _SUBJECTS for word in _listed(given.get(name))])
        found = {name: _find(loaded, kind, name) for name in subjects}
        keys = [each.key for entities in found.values() for each in entities]
        (require_reads if operation.does is Does.READS else require_acts)(keys)
        wanted = [
            each for name in ("clusters", "cluster") for text in _listed(given.get(name)) for each in text.split(",")
        ]
        calls, bundle = dict[str, list[Call]](), loaded.bundle.bundle
        named = {each: _list_clusters(bundle, entities, None) for each, entities in found.items()}
        for colo in self.sites:
            own = {each: _list_clusters(bundle, entities, colo) for each, entities in found.items()}
            there = {each.name for each in bundle.clusters if each.colo == colo}
            names = [each for each in found if own[each] or not named[each]]  # clusters and datasources are everywhere
            chosen = [each for each in wanted if each in there]
            if colo in colos and (names or not found) and (chosen or not wanted):
                told = {**given, **({"clusters": ",".join(chosen)} if "clusters" in given else {})}
                if "names" in given:
                    told["names"] = (*([] if kind is None else [kind]), *names)
                calls[colo] = [_call_of(operation, told)]
        if not calls:
            raise NoSiteError(
                subject=", ".join([*found, *wanted]) or "this",
                reason=f"no colo applies of {', '.join(colos)}",
                next_step=_say_where(bundle, found, self.sites),
            )
        return ask_all(self.sites, calls, user)

    def _change(self, own: Door, operation: Operation, given: dict[str, Any], user: str | None) -> Outcome:
        """Change definitions: check it here and there, then do it there, and then here."""
        context = open_entity_context_for(dry_run=True)
        change = self._read_change(context, operation, given)
        mine = call(replace(own, screen=Screen()), operation, {**given, "dry_run": True})
        if mine.error is not None:
            raise mine.error
        if mine.exit_code:
            return mine
        self._require_sites(change)
        _require_confirmed(context, operation, given, change, mine)
        steps, lost = self._plan_steps(operation, given, change, user)
        checked = ask_all(self.sites, {colo: _checked(each) for colo, each in steps.items()}, user, dry_run=True) | lost
        refused = {each.colo: each.reason for each in checked.values() if not (each.is_done or each.is_away)}
        if refused:
            raise SitesError(reasons=refused, next_step="Nothing was changed, neither here nor in another colo.")
        if not given.get("dry_run"):
            here = {colo: each for colo, each in steps.items() if checked[colo].is_done}
            checked |= ask_all(self.sites, here, user)
        if checked and not any(each.is_done for each in checked.values()):
            raise SitesError(
                reasons={each.colo: each.reason for each in checked.values()}, next_step="Nothing was changed here."
            )
        is_whole = all(each.is_done for each in checked.values())
        if (is_whole or operation.name in _SUBMITS) and not given.get("dry_run"):
            mine = call(replace(own, screen=Screen()), operation, given)
            if mine.error is not None:
                raise mine.error
        return _tell(own, operation, given, checked, mine)

    def _read_change(self, context: EntityContext, operation: Operation, given: Mapping[str, Any]) -> _Change:
        loaded = context.load()
        before, files = loaded.bundle.bundle, given.get("files")
        if operation.name == "apply" and not files:
            raise WrongUsageError("Give FILES: a front applies what it is given, not what is in its folder.")
        documents = read_documents(context, files) if files else {}
        removed: set[EntityKey] = set()
        if operation.name == _DELETE:
            kind, named = split_kind([*_listed(given.get("kind")), *_listed(given.get("names"))])
            removed = {each.key for each in before.entities if each.name in named and kind in (None, each.kind)}
            removed |= {(kind.value, name) for name in named} if kind is not None else set()
        elif click.BOOL.convert(given.get("prune", False), None, None):
            removed = {each.key for each in before.entities} - documents.keys()
        kept = {each.key: each for each in before.entities if each.key not in removed}
        after = Bundle(entities=(*{**kept, **{key: each for key, (_, each) in documents.items()}}.values(),))
        return _Change(loaded, documents, removed, after, self._spread(before), self._spread(after))

    def _spread(self, bundle: Bundle) -> _Spread:
        """Return what each colo has: all clusters and datasources, what is on clusters there, and what that names."""
        shared = {each.key for each in (*bundle.clusters, *bundle.datasources)}
        edges: dict[EntityKey, Collection[EntityKey]] = {
            key: {*found} for key, found in DependencyGraph.of(bundle).dependencies.items()
        }
        for feed in bundle.feeds:
            kept = (each.retention.until_read_by for each in feed.clusters.values() if each.retention is not None)
            edges[feed.key] = {*edges[feed.key], *((Kind.PROCESS.value, name) for names in kept for name in names)}
        there = {colo: {each.key for each in bundle.entities if bundle.clusters_in(each, colo)} for colo in self.sites}
        named = {
            colo: find_reached(edges, keys).intersection(each.key for each in bundle.entities)
            for colo, keys in there.items()
        }
        return {colo: {*shared, *keys, *named[colo]} for colo, keys in there.items()}

    def _require_sites(self, change: _Change) -> None:
        """Require that each entity that is declared is in a colo that has a server."""
        for key, (_, entity) in change.documents.items():
            if isinstance(entity, Cluster) and entity.colo not in self.sites:
                reason = f"no server is named for its colo {entity.colo!r}"
            elif isinstance(entity, Feed | Process) and not any(key in keys for keys in change.has.values()):
                reason = "none of its clusters is in a colo that has a server"
            else:
                continue
            raise NoSiteError(
                subject=label_of(key),
                reason=reason,
                next_step=f"Colos are {', '.join(self.sites)}. Nothing was changed.",
            )

    def _plan_steps(
        self, operation: Operation, given: Mapping[str, Any], change: _Change, user: str | None
    ) -> tuple[dict[str, list[Call]], dict[str, Told]]:
        """Return what each colo that is concerned is asked for, and those that have not told what they have."""
        if operation.name == _DEPENDENTS:
            return {colo: [_call_of(operation, given)] for colo in self.sites}, {}
        known: Mapping[str, Told] = {}
        if operation.name not in _SUBMITS:
            listing = Call(find_operation("entity list"), {"num_results": _ALL, "output": "json"})
            known = ask_all(self.sites, {colo: [listing] for colo in self.sites}, user)
        # a command that was never completed may have left what the front has elsewhere
        there = {colo: _read_keys(told) for colo, told in known.items() if told.is_done}
        has = {colo: {*change.had[colo], *change.has[colo], *there.get(colo, ())} for colo in self.sites}
        lost = {colo: told for colo, told in known.items() if change.keys & has[colo] and not told.is_done}
        asked = [colo for colo in self.sites if change.keys & has[colo] and colo not in lost]
        return {
            colo: list(self._iter_steps(colo, operation, given, change, there.get(colo, set()))) for colo in asked
        }, lost

    def _iter_steps(
        self, colo: str, operation: Operation, given: Mapping[str, Any], change: _Change, known: set[EntityKey]
    ) -> Iterator[Call]:
        """Yield what a colo is asked for: to declare what it has then, to submit what it has not yet, to delete what
        it has no more.
        """
        texts = {key: (put.text, put.source) for key, (put, _) in change.documents.items() if key in change.has[colo]}
        for key in set(change.has[colo]) - {*change.had[colo], *texts, *change.documents}:
            document = change.loaded.documents[key]
            texts[key] = document.text, document.file
        there = known if operation.name == _UPDATE else {*texts}
        values = {name: given[name] for name in ("skip_checks",) if name in given}
        values |= {"yes": "true"} if operation.name == "apply" else {}
        updated = {key: each for key, each in texts.items() if key in there}
        if updated:
            yield Call(operation, values, _files_of(updated))
        if new := {key: each for key, each in texts.items() if key not in there}:
            yield Call(find_operation(_SUBMITS[0]), values, _files_of(new))
        gone = change.keys.intersection((*change.had[colo], *known)) - {*change.has[colo]}
        for kind in _LAST_FIRST:
            if names := sorted(name for of, name in gone if of == kind):
                yield Call(find_operation(_DELETE), {"kind": kind.value, "names": names})


def _checked(calls: list[Call]) -> list[Call]:
    """Return the calls that are checked by themselves: what is deleted beside may still be referred to."""
    return calls[:1] + [each for each in calls[1:] if each.operation.name != _DELETE]


def _read_keys(listing: Told) -> set[EntityKey]:
    return {(each["kind"], each["name"]) for each in json.loads(listing.out)["entities"]}


def _files_of(texts: Mapping[EntityKey, tuple[str, str | None]]) -> list[EntityFile]:
    """Return a file for each document, called as the one that it comes from."""
    form = [
        (f"{kind}-{name}.{'xml' if (source or '').endswith('.xml') else 'yaml'}", text)
        for (kind, name), (text, source) in texts.items()
    ]
    return [EntityFile(name=name, content=text.encode()) for name, text in form]


def _require_confirmed(
    context: EntityContext, operation: Operation, given: Mapping[str, Any], change: _Change, mine: Outcome
) -> None:
    """Require what the call here would ask for only after the colos have done it."""
    if operation.name != "apply":
        return
    if not given.keys() & {*_CONFIRMED} and "\nPlan " in mine.out:
        raise WrongUsageError("Apply this? A server cannot ask: give yes=true, or the digest of the plan.")
    declared, share = len(change.loaded.bundle.bundle.entities), context.settings.unconfirmed_deletions
    is_confirmed = given.keys() & {"digest", "delete_all", "dry_run"}
    if not is_confirmed and is_mass_deletion(len(change.removed), declared, share):
        deleted = tuple(label_of(key) for key in sorted(change.removed))
        raise MassDeletionError(location=context.store.folder.location, deleted=deleted, declared=declared)


def _listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else [*value]


def _call_of(operation: Operation, given: Mapping[str, Any]) -> Call:
    """Return the call of an operation with parameters as they were given, in a form that can be merged."""
    names = {str(each.name): name for name, each in list_parameters(operation).items()}
    values = {names[name]: value for name, value in given.items() if name in names}
    if "output" in names.values():
        is_json = values.get("output") == Output.JSON
        values["output"] = Output.JSON if is_json else Output.CSV if operation.table else values.get("output", "text")
    return Call(operation, {name: "true" if each is True else each for name, each in values.items()})


def _find(loaded: Loaded, kind: Kind | None, name: str) -> list[AnyEntity]:
    """Return the entities of a name, maybe of one kind; that of a copy, an import or an export is its feed.

    Raises:
        EntityNotFoundError: none is declared.
    """
    of_kind, declared = declared_by(name)
    kinds = [of_kind] if declared != name else [kind] if kind is not None else [*Kind]
    found = [each for of in kinds if (each := loaded.bundle.bundle.find((of, declared))) is not None]
    return found or [get_declared(loaded, kind, name)]


def _list_clusters(bundle: Bundle, entities: list[AnyEntity], colo: str | None) -> set[str]:
    return {name for each in entities for name in bundle.clusters_in(each, colo)}


def _say_where(bundle: Bundle, found: Mapping[str, list[AnyEntity]], sites: Collection[str]) -> str:
    places = {
        name: [colo for colo in sites if _list_clusters(bundle, entities, colo)] for name, entities in found.items()
    }
    told = [f"{name} is in {', '.join(colos) or 'none'}" for name, colos in places.items()]
    return f"{'; '.join(told) or 'Colos are ' + ', '.join(sites)}."


def _tell(
    door: Door, operation: Operation, given: Mapping[str, Any], told: Mapping[str, Told], mine: Outcome | None = None
) -> Outcome:
    """Print what colos have told, merged, or before what is said here; the command fails if one has not done it.

    Raises:
        SitesError: none has done it.
    """
    done, failed = (
        [each for each in told.values() if each.is_done],
        [each for each in told.values() if not each.is_done],
    )
    if told and not done:
        raise SitesError(reasons={each.colo: each.reason for each in failed}, next_step="No colo has done it.")
    if given.get("output") == Output.JSON:
        found = merge({each.colo: json.loads(each.out) for each in done}) if mine is None else json.loads(mine.out)
        print_json(**found, colos=[each.document for each in told.values()])
    elif operation.table:
        print_table(*read_tables(done), given.get("output", Output.TABLE), spare=operation.spare)
    else:
        for each in done:
            for line in iter_lines(each, each.out):
                say(line)
        echo(mine.out if mine is not None else "", nl=False)
    for each in done:
        for line in iter_lines(each, each.err):
            say(line, err=True)
    echo(mine.err if mine is not None else "", err=True, nl=False)
    for each in failed:
        say(f"PARTIAL: {each.colo}/{each.reason}", err=True)
    exit_code = FAILED if failed else 0
    return Outcome("".join(door.screen.out), "".join(door.screen.err), exit_code)
