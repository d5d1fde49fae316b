"""What somebody may not read has no name in any answer: no cause is left out, and none is told."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from feed_assets.access.principals import NOBODY, Principal
from feed_assets.access.records import AclRecord
from feed_assets.access.rights import Rights, describe_hidden
from feed_assets.errors import FeedAssetsError
from feed_assets.server.answers import refuse
from feed_assets.server.routes import DOCUMENT, HEALTH, METRICS, PAGE
from feed_assets.server.ui.addresses import FILES
from feed_assets.server.with_dagster.asker import GRAPHQL, is_of_dagster

_OPEN = (HEALTH, DOCUMENT, PAGE, *FILES)
"""What names no entity."""
_PLAIN = re.compile(r"[\w.@+ -]+", re.ASCII)
_LENGTH = b"content-length"


@dataclass(frozen=True, slots=True)
class Limiting:
    """An application before another one, which finds what who asks may do, and leaves names out of what is answered:
    those of entities that are hidden. A name that others have, too, is left out where its kind stands beside it.
    """

    app: ASGIApp
    find_rights: Callable[[Principal], Rights]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, without the names."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in _OPEN:
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        try:
            who = state.get("principal") or NOBODY
            rights = state["rights"] = await to_thread.run_sync(self.find_rights, who)
        except FeedAssetsError as exc:
            refused = refuse(exc) if scope["type"] == "http" else WebSocketClose()
            await refused(scope, receive, send)
            return
        start, body = list[Message](), bytearray()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.append(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                told = redact(bytes(body), rights, by_line=scope["path"] == METRICS)
                headers = [(name, redact(value, rights)) for name, value in start[0]["headers"] if name != _LENGTH]
                await send({**start[0], "headers": [*headers, (_LENGTH, str(len(told)).encode())]})
                await send({"type": "http.response.body", "body": told})

        has_names = scope["type"] == "http" and (scope["path"] == GRAPHQL or not is_of_dagster(scope["path"]))
        await self.app(scope, receive, tell if rights.hidden and has_names else send)


def redact(content: bytes, rights: Rights, *, by_line: bool = False) -> bytes:
    """Return a text without the names of what is hidden; `by_line` without the lines that have them."""
    hidden = rights.hidden
    shared = {name for _, name in rights.declared.keys() - hidden.keys()}
    said = {name: _call(acl) for (_, name), acl in hidden.items()}
    alone = sorted(said.keys() - shared, key=len, reverse=True)
    quote = "(?:'|&#39;)"
    forms = [rf"()(?<![\w<-])(?<!</)(?<!\"kind\": \")({'|'.join(alone)})(?![\w-])(?!\": )"] if alone else []
    for kind in {kind for kind, _ in hidden}:
        names = "|".join(name for of, name in hidden if of == kind)
        some = "|".join(name for of, name in hidden if of == kind and name in shared)
        forms.insert(0, rf"()\b{kind} {quote}({names}){quote}")
        before = rf"\b{kind}/|\"{kind}\": \"|\"kind\": \"{kind}\",\s+\"name\": \""
        forms += [rf"({before})({some})(?![\w-])"] if some else []
    text = content.decode("utf-8", "surrogateescape")
    if by_line:
        is_told = re.compile("|".join(forms)).search
        text = "\n".join(each for each in text.split("\n") if not is_told(each))
    else:
        for form in forms:
            text = re.sub(form, lambda found: found[1] + said[found[2]], text)
    return text.encode("utf-8", "surrogateescape")


def _call(acl: AclRecord) -> str:
    return describe_hidden(acl) if _PLAIN.fullmatch(acl.whose) else "an entity that you may not read"
