"""What a principal may do with which entities: a token's rights limit it, `acl` and the settings grant it.

Without `authorization: acl` nobody has `Rights`, and nothing is asked: so it is for what the system does by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from feed_assets.access.errors import AccessRefusedError
from feed_assets.access.principals import Principal, find_machine_user
from feed_assets.access.records import NOBODYS, AclRecord
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.flow_names import declared_by, is_of_feed
from feed_assets.entities.maps import EMPTY
from feed_assets.errors import render_some
from feed_assets.issues import EntityKey
from feed_assets.setting_sections import AccessSettings, Authorization
from feed_assets.settings import Settings

_FOUND = frozenset({*Kind, "run"})
"""What is refused elsewhere if it is not there. Of a run, its processes are asked."""


class Needs(StrEnum):
    """Who may do something: each is more than the one before."""

    KNOWN = "everybody who may read it"
    OWNER = "its owner and group"
    ADMIN = "admins"
    SUPERUSER = "superusers"


@dataclass(frozen=True)
class Rights:
    """What a principal may do. `declared` are the entities as they are declared, and `find_recorded` finds what was
    said last of one that is not: it was deleted, or cannot be read.
    """

    settings: AccessSettings
    principal: Principal
    declared: Mapping[EntityKey, AclRecord]
    find_recorded: Callable[[EntityKey], AclRecord | None] = lambda _: None

    @cached_property
    def is_superuser(self) -> bool:
        """Whether all is allowed."""
        return is_superuser(self.settings, self.principal)

    @property
    def is_admin(self) -> bool:
        """Whether safe mode, tokens, receivers and extensions may be changed."""
        return self.is_superuser or self.principal.name in self.settings.admins

    @cached_property
    def hidden(self) -> Mapping[EntityKey, AclRecord]:
        """The declared entities that the principal may not read."""
        declared = {} if self.is_superuser else self.declared
        return {key: acl for key, acl in declared.items() if not (acl.is_public or self.owns(acl))}

    def owns(self, acl: AclRecord) -> bool:
        """Return whether the principal is the owner of an entity, or of its group."""
        return self.principal.name == acl.owner or (acl.group is not None and acl.group in self.principal.groups)

    def find_acl(self, key: EntityKey) -> AclRecord | None:
        """Return what an entity says, or has said last; None of one that never was."""
        key = _declaring(key)
        return self.declared[key] if key in self.declared else self.find_recorded(key)

    def reads(self, kind: str, name: str) -> bool:
        """Return whether the principal may read an entity."""
        key = _declaring((kind, name))
        if self.is_superuser or key in self.declared:
            return key not in self.hidden
        acl = self.find_recorded(key)
        return acl is None or acl.is_public or self.owns(acl)

    def acts(self, key: EntityKey) -> bool:
        """Return whether the principal may act on something: clusters, and what nobody declares, are superusers'."""
        if self.is_superuser:
            return True
        if (acl := self.find_acl(key)) is None:
            return key[0] in _FOUND
        return key[0] != Kind.CLUSTER and self.owns(acl)

    def require(self, needed: Iterable[tuple[EntityKey, Needs]], of_all: Needs = Needs.KNOWN) -> None:
        """Require what is needed for each entity that there is, and for the request as a whole.

        Raises:
            AccessRefusedError: something is not allowed; says what, and who could.
        """
        is_lacking = {Needs.ADMIN: not self.is_admin, Needs.SUPERUSER: not self.is_superuser}
        if is_lacking.get(of_all):
            raise AccessRefusedError(reason=f"This is for {of_all}, not for {self.principal.name!r}", next_step=_ASK)
        keys = list(dict.fromkeys((_declaring(key), needs) for key, needs in needed))
        if unread := [key for key, _ in keys if not self.reads(*key)]:
            acl = self.find_acl(unread[0]) or NOBODYS
            raise AccessRefusedError(
                reason=f"This is {describe_hidden(acl)}; {acl.whose} and superusers may", next_step=_ASK
            )
        lacking = [key for key, needs in keys if needs is not Needs.KNOWN and not self.acts(key)]
        self._refuse({key: _tell(key, self.find_acl(key)) for key in lacking})

    def require_declared(self, changed: Iterable[tuple[EntityKey, AclRecord | None, AclRecord | None]]) -> None:
        """Require that the principal may change entities: by what each has said, and by what it is to say; None where
        there is none.

        Raises:
            AccessRefusedError: one may not be changed.
        """
        refused = dict[EntityKey, str]()
        for key, *acls in changed:
            for then, acl in zip(("", "then "), acls, strict=True):
                if acl is not None and not self.is_superuser and (key[0] == Kind.CLUSTER or not self.owns(acl)):
                    refused.setdefault(key, _tell(key, acl, then))
        self._refuse(refused)

    def _refuse(self, told: Mapping[EntityKey, str]) -> None:
        if told:
            reason = f"{self.principal.name!r} may not change or act on {render_some(tuple(told.values()))}"
            who = "their owners, their groups and superusers may"
            raise AccessRefusedError(reason=f"{reason}: {who}", next_step="Nothing was changed.")


def _tell(key: EntityKey, acl: AclRecord | None, then: str = "") -> str:
    """Return what is refused, and whose it is, or then would be."""
    acl = NOBODYS if acl is None or key[0] == Kind.CLUSTER else acl
    return f"{label_of(key)} ({then}of {acl.whose})"


_ASK = "Ask one of them."
_rights: ContextVar[Rights | None] = ContextVar("rights", default=None)


def find_rights() -> Rights | None:
    """Return what who asks may do; None if nothing is refused."""
    return _rights.get()


@contextmanager
def limited_by(rights: Rights | None) -> Iterator[None]:
    """Let what is called in the block do only what somebody may."""
    token = _rights.set(rights)
    try:
        yield
    finally:
        _rights.reset(token)


def reads(kind: str, name: str) -> bool:
    """Return whether who asks may read an entity."""
    rights = _rights.get()
    return rights is None or rights.reads(kind, name)


def find_hidden() -> Mapping[EntityKey, AclRecord]:
    """Return the declared entities that who asks may not read; none if nothing is refused."""
    return EMPTY if (rights := _rights.get()) is None else rights.hidden


def require_reads(keys: Iterable[EntityKey]) -> None:
    """Require that who asks may read all entities. Raises AccessRefusedError."""
    if (rights := _rights.get()) is not None:
        rights.require((key, Needs.KNOWN) for key in keys)


def require_acts(keys: Iterable[EntityKey], *, everything: bool = False) -> None:
    """Require that who asks may act on all entities that were selected, or on `everything`.

    Raises:
        AccessRefusedError: one is of others.
    """
    if (rights := _rights.get()) is not None:
        rights.require(((key, Needs.OWNER) for key in keys), Needs.SUPERUSER if everything else Needs.KNOWN)


def is_superuser(settings: AccessSettings, principal: Principal) -> bool:
    """Return whether somebody is a superuser, by name or by a proven group."""
    return principal.name in settings.superusers or settings.superuser_group in principal.groups


def require_local(settings: Settings, author: str | None) -> None:
    """Require that a command may change the state itself: guards against mistakes, as who reaches it is trusted.

    Raises:
        AccessRefusedError: with `authorization: acl`, the user is no superuser, or an author is chosen.
    """
    if settings.authorization is Authorization.OFF:
        return
    user = find_machine_user()
    if not is_superuser(settings.access, user):
        reason = f"With authorization: acl only superusers change the state itself, and {user.name!r} is none"
        step = "Ask a server, with --server; the setting access.superusers names them."
        raise AccessRefusedError(reason=reason, next_step=step)
    if author is not None and author != user.name:
        reason = f"With authorization: acl the author is who asks, {user.name!r}, not {author!r}"
        raise AccessRefusedError(reason=reason, next_step="Leave --author and FEED_ASSETS_AUTHOR out.")


def require_declarer(settings: Settings, principal: Principal | None) -> None:
    """Require that a change of what is declared comes from the front, if there is one: at a server of a colo as its
    user, and at the front by a request, which is None of a command on the state itself.

    Raises:
        AccessRefusedError: it does not.
    """
    if settings.colos and principal is None:
        reason = "This project is a front: a command here would leave out the servers of its colos"
        raise AccessRefusedError(reason=reason, next_step="Ask the front, with --server.")
    is_front = principal is not None and settings.front in (principal.name, principal.asked_by)
    if settings.front is not None and not is_front:
        reason = f"Here only the front declares, as {settings.front!r}: what others change is foreign"
        raise AccessRefusedError(reason=reason, next_step="Give the change to the front.")


def describe_hidden(acl: AclRecord) -> str:
    """Return what an entity is called that somebody may not read."""
    return f"an entity of {acl.whose} that you may not read"


def _declaring(key: EntityKey) -> EntityKey:
    """Return the entity that declares another: of a copy, an import or an export its feed."""
    kind, name = declared_by(key[1]) if key[0] == Kind.PROCESS or is_of_feed(key[1]) else key
    return (str(kind), name)
