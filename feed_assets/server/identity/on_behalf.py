"""On behalf of another: `doAs` of a request, for users whom the setting `server.proxy_users` allows it."""

from dataclasses import replace
from http import HTTPStatus
from urllib.parse import unquote_plus

from starlette.types import Scope

from feed_assets.access.principals import Principal
from feed_assets.clock import open_clock
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.identity.callers import Keeper, address_of
from feed_assets.server.identity.tokens import Tokens, is_person

DO_AS = "doAs"


def take_names(scope: Scope) -> list[str]:
    """Return on whose behalf a request asks; its query is without them from then on."""
    parts = [(*part.partition(b"="), part) for part in scope.get("query_string", b"").split(b"&")]
    told = [(unquote_plus(name.decode("latin-1")) == DO_AS, value, part) for name, _, value, part in parts]
    if found := [unquote_plus(value.decode("latin-1")) for is_told, value, _ in told if is_told]:
        scope["query_string"] = b"&".join(part for is_told, _, part in told if not is_told)
    return found


def ask_on_behalf(keeper: Keeper, asker: Principal, names: list[str], client: str) -> Principal:
    """Return who is asked for, with the rights of that person, as far as who asks has them. What is refused is in the
    audit, and raises RequestRefusedError. Who asks for himself asks as always.
    """
    if len(names) != 1 or not is_person(name := names[0]):
        raise RequestRefusedError(HTTPStatus.BAD_REQUEST, f"{DO_AS} is one name, of whom it is asked for.")
    if name == asker.name:
        return asker
    with keeper.database.read() as connection:
        known = Tokens(connection).find_person(name, open_clock(keeper.settings).now())
    person, rule = known or Principal(name=name), keeper.settings.server.proxy_users.get(asker.name)
    address, told = address_of(client), f"{asker.name!r} may not ask on behalf of "
    if rule is None or address is None or not any(address in each for each in rule.hosts):
        told += f"others from {client}." if rule else "others."
    elif {name, "*"}.isdisjoint(rule.users) and {*person.groups, "*"}.isdisjoint(rule.groups):
        nobody = " Nobody of this name has a valid token or is logged in, so that no group is known."
        told += f"{name!r}.{'' if known else nobody}"
    else:
        return replace(person, may=tuple(each for each in asker.may if each in person.may), asked_by=asker.name)
    keeper.note_refusal("do as", client, told, author=asker.name)
    raise RequestRefusedError(HTTPStatus.FORBIDDEN, f"{told} The setting server.proxy_users says who may.")
