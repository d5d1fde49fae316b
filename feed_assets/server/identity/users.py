"""Who is known by name: to the settings, by tokens and log-ins, and to the `acl` of entities; with their roles."""

from collections import Counter
from dataclasses import dataclass

from feed_assets.access.rights import find_rights, reads
from feed_assets.context.operation import OperationContext
from feed_assets.operation import Does
from feed_assets.server.identity.tokens import Tokens
from feed_assets.settings import load_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUser:
    """A user or a group, `what` says which, with its roles; what valid tokens let it do, and in which groups they put
    it; and how many entities it owns.
    """

    what: str
    name: str
    roles: tuple[str, ...]
    may: tuple[Does, ...]
    groups: tuple[str, ...]
    entities: int


def find_users(context: OperationContext) -> list[KnownUser]:
    """Return who is known by name, groups first. Entities that who asks may not read are not counted."""
    settings, rights = context.settings or load_settings(), find_rights()
    declared = rights.declared if rights else {key: facts.acl for key, facts in context.plan.facts.items()}
    acls = [acl for key, acl in declared.items() if reads(*key)]
    with context.database.read() as connection:
        tokens = [each for each in Tokens(connection).all() if each.is_valid(context.as_of)]
    held = [each.principal for each in tokens]
    owned = Counter(("user", acl.owner) for acl in acls) + Counter(("group", acl.group) for acl in acls)
    access, group_of_superusers = settings.access, settings.access.superuser_group
    roles: dict[str, set[tuple[str, str | None]]] = {
        "superuser": {*(("user", name) for name in access.superusers), ("group", group_of_superusers)},
        "admin": {("user", name) for name in access.admins},
        "asks for others": {("user", name) for name in settings.server.proxy_users},
        "has a token": {("user", each.name) for each in held} | {("group", of) for each in held for of in each.groups},
        "owner": {*owned},
    }
    return [
        KnownUser(
            what=what,
            name=name,
            roles=tuple(role for role, named in roles.items() if (what, name) in named),
            may=tuple(does for does in Does if any(does in each.may for each in own)),
            groups=tuple(sorted({group for each in own for group in each.groups})),
            entities=owned[what, name],
        )
        for what, name in sorted((what, name) for what, name in set().union(*roles.values()) if name)
        for own in [[each for each in held if (what, each.name) == ("user", name)]]
    ]
