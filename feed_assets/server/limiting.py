"""What somebody may not read has no name in any answer: no cause is left out, and none is told."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from feed_assets.access.principals import NOBODY, Principal
from feed_assets.access.records import AclRecord
from feed_assets.access.rights import Rights, describe_hidden
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError
from feed_assets.issues import EntityKey
from feed_assets.server.answers import refuse
from feed_assets.server.routes import DOCUMENT, HEALTH, METRICS, PAGE
from feed_assets.server.ui.addresses import FILES
from feed_assets.server.with_dagster.asker import GRAPHQL, is_of_dagster

_OPEN = (HEALTH, DOCUMENT, PAGE, *FILES)
"""What names no entity."""
_PLAIN = re.compile(r"[\w.@+ -]+", re.ASCII)
_NOT_WORD = re.compile(r"\W+", re.ASCII)
_BLANKS = bytes(each if chr(each).isalnum() and each < 128 else 32 for each in range(256))
_QUOTE = "(?:'|&#39;)"
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
            if message["type"] == "websocket.send":
                message = {**message, "text": redact(message["text"].encode(), rights).decode()}
            if scope["type"] == "websocket":
                await send(message)
                return
            if message["type"] == "http.response.start":
                start.append(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body"):
                told = redact(bytes(body), rights, by_line=scope["path"] == METRICS)
                headers = [(name, redact(value, rights)) for name, value in start[0]["headers"] if name != _LENGTH]
                await send({**start[0], "headers": [*headers, (_LENGTH, str(len(told)).encode())]})
                await send({"type": "http.response.body", "body": told})

        has_names = scope["path"] == GRAPHQL or not is_of_dagster(scope["path"])
        await self.app(scope, receive, tell if rights.hidden and has_names else send)


def redact(content: bytes, rights: Rights, *, by_line: bool = False) -> bytes:
    """Return a text without the names of what is hidden; `by_line` without the lines that have them."""
    said = set(_split(content))
    hidden = {key: _call(acl) for key, acl in rights.hidden.items() if said.issuperset(_split(key[1].encode()))}
    if not hidden:
        return content
    text = content.decode("utf-8", "surrogateescape")
    for pattern, of in _iter_forms(hidden, rights):
        if by_line:
            text = "\n".join(each for each in text.split("\n") if not re.search(pattern, each))
        else:
            text = re.sub(pattern, partial(_replace, of), text)
    return text.encode("utf-8", "surrogateescape")


def _split(text: bytes) -> list[bytes]:
    return text.translate(_BLANKS).split()


def _replace(told: Mapping[str, str], found: re.Match[str]) -> str:
    return found[1] + told[found[2]]


def _iter_forms(hidden: Mapping[EntityKey, str], rights: Rights) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield patterns of what names something hidden, and what stands there instead: by the name, the second group."""
    shared = {name for _, name in rights.declared.keys() - rights.hidden.keys()}
    for kind in {kind for kind, _ in hidden}:
        of_kind = {name: told for (of, name), told in hidden.items() if of == kind}
        yield rf"()\b{kind} {_QUOTE}({_any(of_kind)}){_QUOTE}", of_kind
        before = rf"\b{kind}/|\"{kind}\": \"|\"kind\": \"{kind}\",\s+\"name\": \""
        yield rf"({before})({_any(of_kind.keys() & shared)})(?![\w-])", of_kind
    everything = {name: told for (_, name), told in hidden.items()}
    alone = _any(everything.keys() - shared)
    yield rf"()(?<![\w<-])(?<!</)(?<!\"kind\": \")({alone})(?![\w-])(?!\": )", everything
    steps = {_NOT_WORD.sub("_", name): told for name, told in everything.items()}  # here__clicks_east_0a1b2c3d
    clusters = _any({_NOT_WORD.sub("_", name) for kind, name in rights.declared if kind == Kind.CLUSTER})
    after = rf"(?:_(?:import|export|{clusters}))?(?:_[0-9a-f]{{8}})?"
    yield rf"()\b(?:check_quality_)?(?:{clusters})__({_any(steps)}){after}\b", steps


def _any(names: Iterable[str]) -> str:
    """Return a pattern of any of some names, the longest first; of none if there are none."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"


def _call(acl: AclRecord) -> str:
    return describe_hidden(acl) if _PLAIN.fullmatch(acl.whose) else "an entity that you may not read"
