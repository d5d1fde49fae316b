"""Who is known by name: to the settings, by tokens and log-ins, and to the `acl` of entities; with their roles."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from feed_assets.access.rights import find_rights, reads
from feed_assets.context.operation import OperationContext
from feed_assets.operation import Does
from feed_assets.server.tokens import Tokens
from feed_assets.settings import load_settings


class Role(StrEnum):
    """What a user or a group is; who holds a token has its rights, and owns what says so."""

    SUPERUSER = "superuser"
    ADMIN = "admin"
    PROXY = "asks for others"
    HOLDER = "holds a token"
    OWNER = "owns entities"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUser:
    """A user, or a group (`is_group`), with what tokens that are valid let it do, and how many entities it owns."""

    name: str
    is_group: bool
    roles: tuple[Role, ...]
    may: tuple[Does, ...] = ()
    groups: tuple[str, ...] = ()
    entities: int = 0

    @property
    def what(self) -> str:
        """What it is."""
        return "group" if self.is_group else "user"


def find_users(context: OperationContext) -> list[KnownUser]:
    """Return who is known by name, users first. Entities that who asks may not read are not counted."""
    settings, rights = context.settings or load_settings(), find_rights()
    declared = rights.declared if rights else {key: facts.acl for key, facts in context.plan.facts.items()}
    with context.database.read() as connection:
        tokens = [each for each in Tokens(connection).all() if each.is_valid(context.as_of)]

    def iter_roles() -> Iterator[tuple[bool, str | None, Role]]:
        yield from ((False, name, Role.SUPERUSER) for name in settings.access.superusers)
        yield True, settings.access.superuser_group, Role.SUPERUSER
        yield from ((False, name, Role.ADMIN) for name in settings.access.admins)
        yield from ((False, name, Role.PROXY) for name in settings.server.proxy_users)
        for token in tokens:
            yield False, token.principal.name, Role.HOLDER
            yield from ((True, group, Role.HOLDER) for group in token.groups)
        for acl in (acl for key, acl in declared.items() if reads(*key)):
            yield False, acl.owner, Role.OWNER
            yield True, acl.group, Role.OWNER

    found: dict[tuple[bool, str], list[Role]] = defaultdict(list)
    for is_group, name, role in iter_roles():
        if name:
            found[is_group, name].append(role)
    users = []
    for (is_group, name), roles in sorted(found.items()):
        held = [each.principal for each in tokens if not is_group and each.principal.name == name]
        users.append(
            KnownUser(
                name=name,
                is_group=is_group,
                roles=tuple(role for role in Role if role in roles),
                may=tuple(does for does in Does if any(does in each.may for each in held)),
                groups=tuple(sorted({group for each in held for group in each.groups})),
                entities=roles.count(Role.OWNER),
            )
        )
    return users
