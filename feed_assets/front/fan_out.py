"""Between an operation and its call: what a front asks the servers of its colos, and what it makes of their answers.

A change of definitions is checked everywhere before it is made anywhere, and recorded here last. So the same command
completes what one server could not take, and what is done already stays as it is.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from feed_assets.definitions.edits import KeyedDocuments, read_documents
from feed_assets.definitions.errors import MassDeletionError
from feed_assets.definitions.ownership import is_mass_deletion
from feed_assets.definitions.store import Loaded
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
from feed_assets.front.sites import Call, Told, ask_site, merge, read_tables, say_of
from feed_assets.issues import EntityKey
from feed_assets.loading.entity_files import EntityFile
from feed_assets.masking import remember_unnamed
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import find_operation
from feed_assets.server.calls import call, list_parameters
from feed_assets.setting_sections import Authorization, SiteSettings
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
    """A change of definitions: who asks for it, what it declares, what it removes, and what each colo has before and
    after it.
    """

    operation: Operation
    given: Mapping[str, Any]
    user: str | None
    loaded: Loaded
    documents: KeyedDocuments
    removed: Collection[EntityKey]
    had: _Spread
    has: _Spread

    @property
    def keys(self) -> set[EntityKey]:
        return {*self.documents, *self.removed}


@dataclass(frozen=True, slots=True)
class Front:
    """The front of the servers of several colos."""

    settings: Settings
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
        for each in settings.colos.values():
            remember_unnamed(each.token)
        front, asked = cls(settings), [Call(find_operation("settings"), {"output": "json"})]
        for colo, told in front.ask(dict.fromkeys(settings.colos, asked), None).items():
            reason, next_step = f"its server refuses: {told.reason.rstrip('.')}", "Correct it."
            if told.is_away:
                say(f"feed-assets: warning: {colo}/{told.reason}", err=True)
                continue
            if told.is_done:
                known = json.loads(told.out)["settings"]
                if (its := next((each["value"] for each in known if each["name"] == "colo"), None)) == colo:
                    continue
                reason = f"the server there has {f'the colo {its!r}' if its else 'no colo'}"
                next_step = f"Set colo: {colo} there, or correct the address."
            raise SettingsError(setting=f"colos.{colo}", reason=reason, tried=settings.tried, next_step=next_step)
        return front

    @property
    def sites(self) -> Mapping[str, SiteSettings]:
        """The servers, by colo."""
        return self.settings.colos

    def ask(self, calls: Mapping[str, Iterable[Call]], user: str | None, *, dry_run: bool = False) -> dict[str, Told]:
        """Ask the servers of several colos at the same time; see `ask_site`."""

        def told(colo: str) -> Told:
            return ask_site(colo, self.sites[colo], calls[colo], user, dry_run=dry_run)

        with ThreadPoolExecutor(max(len(calls), 1)) as pool:
            return dict(zip(calls, pool.map(told, calls), strict=True))

    def __call__(self, door: Door, operation: Operation, given: Mapping[str, Any]) -> Outcome:
        """Call an operation here, at the servers of colos, or both."""
        own, given = replace(door, ask_sites=None), {**given}
        asked = given.pop("colo", None) or "*"
        has_plan = operation.context in ("OperationContext", "ChangeContext")
        is_own = operation.does in (Does.READS, Does.ADMINISTERS) and not has_plan
        goes_out = operation.is_of_sites or operation.name in _DECLARES
        if not goes_out and (is_own or operation.group in _OWN):
            return call(own, operation, given)
        if door.screen.takes_results or not goes_out:
            places = ", ".join(f"{colo} at {each.url}" for colo, each in self.sites.items())
            raise WrongUsageError(f"A front does not offer this: ask the server of a colo itself, {places}.")
        user = door.principal.name if self.settings.authorization is Authorization.ACL else None
        if operation.is_of_sites:
            told = self._ask_about(door, operation, given, self._choose(asked), user)
            _require_one(told, "No colo has done it.")
            return _tell(door, operation, given, told)
        with self.changing:
            return self._change(own, operation, given, user)

    def _choose(self, asked: str) -> tuple[str, ...]:
        names = [*filter(None, (each.strip() for each in asked.split(",")))]
        if unknown := [each for each in names if each not in self.sites and each != "*"]:
            raise NoSiteError(
                subject=f"colo {unknown[0]!r}", reason="there is none", next_step=f"Colos are {', '.join(self.sites)}."
            )
        return tuple(each for each in self.sites if each in names or "*" in names)

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
        places = {name: self._list_sites(bundle, entities) for name, entities in found.items()}
        for colo in colos:
            names = [name for name, at in places.items() if colo in at]
            chosen = [each for each in wanted if (it := bundle.find_cluster(each)) is not None and it.colo == colo]
            if (names or not places) and (chosen or not wanted):
                told = {**given, **({"clusters": ",".join(chosen)} if "clusters" in given else {})}
                if "names" in given:
                    told["names"] = (*([] if kind is None else [kind]), *names)
                calls[colo] = [_call_of(operation, told)]
        if not calls:
            where = [f"{name} is in {', '.join(at) or 'none'}" for name, at in places.items()]
            raise NoSiteError(
                subject=", ".join([*places, *wanted]) or "this",
                reason=f"no colo applies of {', '.join(colos)}",
                next_step=f"{'; '.join(where) or 'Colos are ' + ', '.join(self.sites)}.",
            )
        return self.ask(calls, user)

    def _list_sites(self, bundle: Bundle, entities: Collection[AnyEntity]) -> tuple[str, ...]:
        """Return the colos in which entities are on clusters. What is on none, as a cluster itself, is everywhere."""
        is_on_any = any(bundle.clusters_in(each, None) for each in entities)
        return tuple(
            colo for colo in self.sites if not is_on_any or any(bundle.clusters_in(each, colo) for each in entities)
        )

    def _change(self, own: Door, operation: Operation, given: dict[str, Any], user: str | None) -> Outcome:
        """Change definitions: check it here and there, then do it there, and then here."""
        context = open_entity_context_for(dry_run=True)
        change = self._read_change(context, operation, given, user)
        mine = call(replace(own, screen=Screen()), operation, {**given, "dry_run": True})
        if mine.error is not None:
            raise mine.error
        if mine.exit_code:
            return mine
        self._require_sites(change)
        _require_confirmed(context, change, mine)
        steps, lost = self._plan_steps(change)
        checked = self.ask({colo: _checked(each) for colo, each in steps.items()}, user, dry_run=True) | lost
        refused = {colo: each.reason for colo, each in checked.items() if not (each.is_done or each.is_away)}
        if refused:
            raise SitesError(reasons=refused, next_step="Nothing was changed, neither here nor in another colo.")
        if not given.get("dry_run"):
            checked |= self.ask({colo: each for colo, each in steps.items() if checked[colo].is_done}, user)
        _require_one(checked, "Nothing was changed here.")
        is_whole = all(each.is_done for each in checked.values())
        if (is_whole or operation.name in _SUBMITS) and not given.get("dry_run"):
            mine = call(replace(own, screen=Screen()), operation, given)
            if mine.error is not None:
                raise mine.error
        return _tell(own, operation, given, checked, mine)

    def _read_change(
        self, context: EntityContext, operation: Operation, given: Mapping[str, Any], user: str | None
    ) -> _Change:
        loaded = context.load()
        before, files = loaded.bundle.bundle, given.get("files")
        if operation.name == "apply" and not files:
            raise WrongUsageError("Give FILES: a front applies what it is given, not what is in its folder.")
        documents = read_documents(files, context.store.values) if files else {}
        removed: set[EntityKey] = set()
        if operation.name == _DELETE:
            kind, named = split_kind([*_listed(given.get("kind")), *_listed(given.get("names"))])
            removed = {each.key for each in before.entities if each.name in named and kind in (None, each.kind)}
            removed |= {(kind.value, name) for name in named} if kind is not None else set()
        elif click.BOOL.convert(given.get("prune", False), None, None):
            removed = {each.key for each in before.entities} - documents.keys()
        kept = {each.key: each for each in before.entities if each.key not in removed}
        after = Bundle(entities=(*{**kept, **{key: each for key, (_, each) in documents.items()}}.values(),))
        had, has = self._spread(before), self._spread(after)
        return _Change(operation, given, user, loaded, documents, removed, had, has)

    def _spread(self, bundle: Bundle) -> _Spread:
        """Return what each colo has: all clusters and datasources, what is on clusters there, and what that names."""
        shared = {each.key for each in (*bundle.clusters, *bundle.datasources)}
        edges: dict[EntityKey, Collection[EntityKey]] = {**DependencyGraph.of(bundle).dependencies}
        for feed in bundle.feeds:
            kept = (each.retention.until_read_by for each in feed.clusters.values() if each.retention is not None)
            edges[feed.key] = {*edges[feed.key], *((Kind.PROCESS.value, name) for names in kept for name in names)}
        there = {colo: {each.key for each in bundle.entities if bundle.clusters_in(each, colo)} for colo in self.sites}
        return {
            colo: {*shared, *keys, *(each for each in find_reached(edges, keys) if bundle.find(each) is not None)}
            for colo, keys in there.items()
        }

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

    def _plan_steps(self, change: _Change) -> tuple[dict[str, list[Call]], dict[str, Told]]:
        """Return what each colo that is concerned is asked for, and those that have not told what they have."""
        if change.operation.name == _DEPENDENTS:
            return {colo: [_call_of(change.operation, change.given)] for colo in self.sites}, {}
        known: Mapping[str, Told] = {}
        if change.operation.name not in _SUBMITS:
            listing = Call(find_operation("entity list"), {"num_results": _ALL, "output": "json"})
            known = self.ask({colo: [listing] for colo in self.sites}, change.user)
        # a command that was never completed may have left what the front has elsewhere
        there = {colo: _read_keys(told) for colo, told in known.items() if told.is_done}
        has = {colo: {*change.had[colo], *change.has[colo], *there.get(colo, ())} for colo in self.sites}
        lost = {colo: told for colo, told in known.items() if change.keys & has[colo] and not told.is_done}
        asked = [colo for colo in self.sites if change.keys & has[colo] and colo not in lost]
        return {colo: [*_iter_steps(colo, change, there.get(colo, set()))] for colo in asked}, lost


def _iter_steps(colo: str, change: _Change, known: set[EntityKey]) -> Iterator[Call]:
    """Yield what a colo is asked for: to declare what it has then, to submit what it has not yet, to delete what it has
    no more.
    """
    texts = {key: (put.text, put.source) for key, (put, _) in change.documents.items() if key in change.has[colo]}
    for key in set(change.has[colo]) - {*change.had[colo], *texts, *change.documents}:
        document = change.loaded.documents[key]
        texts[key] = document.text, document.file
    there = known if change.operation.name == _UPDATE else {*texts}
    values = {name: change.given[name] for name in ("skip_checks",) if name in change.given}
    values |= {"yes": "true"} if change.operation.name == "apply" else {}
    updated = {key: each for key, each in texts.items() if key in there}
    if updated:
        yield Call(change.operation, values, _files_of(updated))
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


def _require_confirmed(context: EntityContext, change: _Change, mine: Outcome) -> None:
    """Require what the call here would ask for only after the colos have done it."""
    if change.operation.name != "apply":
        return
    if not change.given.keys() & {*_CONFIRMED} and "\nPlan " in mine.out:
        raise WrongUsageError("Apply this? A server cannot ask: give yes=true, or the digest of the plan.")
    declared, share = len(change.loaded.bundle.bundle.entities), context.settings.unconfirmed_deletions
    is_confirmed = change.given.keys() & {"digest", "delete_all", "dry_run"}
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


def _require_one(told: Mapping[str, Told], next_step: str) -> None:
    """Require that one of the colos that are asked has done it. Raises SitesError."""
    if told and not any(each.is_done for each in told.values()):
        raise SitesError(reasons={colo: each.reason for colo, each in told.items()}, next_step=next_step)


def _tell(
    door: Door, operation: Operation, given: Mapping[str, Any], told: Mapping[str, Told], mine: Outcome | None = None
) -> Outcome:
    """Print what colos have told, merged, or before what is said here; the command fails if one has not done it."""
    done = {colo: each for colo, each in told.items() if each.is_done}
    if given.get("output") == Output.JSON:
        results = (json.loads(each.out) for each in done.values())
        found = merge(dict(zip(done, results, strict=True))) if mine is None else json.loads(mine.out)
        print_json(**found, colos=[{"colo": colo, **each.document} for colo, each in told.items()])
    elif operation.table:
        print_table(*read_tables(done), given.get("output", Output.TABLE), spare=operation.spare)
    else:
        for colo, each in done.items():
            say_of(colo, each.out)
        echo(mine.out if mine is not None else "", nl=False)
    for colo, each in done.items():
        say_of(colo, each.err, err=True)
    echo(mine.err if mine is not None else "", err=True, nl=False)
    for colo, each in told.items():
        if not each.is_done:
            say(f"PARTIAL: {colo}/{each.reason}", err=True)
    return Outcome("".join(door.screen.out), "".join(door.screen.err), 0 if done.keys() == told.keys() else FAILED)
