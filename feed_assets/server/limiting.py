"""What somebody may not read has no name in any answer: no cause is left out, and none is told."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from feed_assets.access.principals import NOBODY, Principal
from feed_assets.access.records import AclRecord
from feed_assets.access.rights import Rights, describe_hidden
from feed_assets.entities.common import Kind
from feed_assets.errors import FeedAssetsError
from feed_assets.server.answers import refuse
from feed_assets.server.routes import DOCUMENT, HEALTH, METRICS, PAGE
from feed_assets.server.ui.addresses import FILES, is_of_dagster
from feed_assets.server.with_dagster.asker import GRAPHQL

_OPEN = (HEALTH, DOCUMENT, PAGE, *FILES)
"""What names no entity."""
_PLAIN = re.compile(r"[\w.@+ -]+", re.ASCII)
_NOT_WORD = re.compile(r"\W+", re.ASCII)
_BLANKS = bytes(each if chr(each).isalnum() and each < 128 else 32 for each in range(256))
_ESCAPES = re.compile(rb"\\(?:[nrt]|u[0-9a-f]{4})")  # before a name in JSON
_KINDS = "|".join(Kind)
_NAMED = (  # feed 'clicks', or clicks
    rf"\b(?P<kind>{_KINDS}) (?P<quote>'|&#39;)(?P<quoted>%(names)s)(?P=quote)|(?P<word>%(names)s)(?![A-Za-z0-9-])"
)
_HINT = re.compile(r"Did you mean ([^?]{1,400})\?")
_IS_ESCAPED = re.compile(r"\\(?:[nrt]|u[0-9a-f]{4})$")
_KIND = re.compile(  # feed clicks, feeds a, b and clicks, feed/clicks, "feed": "clicks", "kind": "feed", "name": "x"
    rf"\b({_KINDS})(?:e?s)?(?:/|:? (?:[\w@-]+, )*(?:[\w@-]+ (?:and|or) )?)$"
    rf"|\"({_KINDS})\": ?\"$|\"kind\": ?\"({_KINDS})\",\s*\"name\": ?\"$"
)
_BEGINS = re.compile(r"(?:^|[^\w\s.<] ?|[\n\t]|\\(?:[nrt]|u[0-9a-f]{4}) ?|  )$")
_ENDS = re.compile(r"(?!\": ?)(?:$| ?[^\w\s.>(=!?]| \(|[\n\t]|  | \d| and | or | \w+\(| [\w-]+=|\.(?:im|ex)port\b)")
_LITERALS = ("false", "null", "true")
_NEAR = 400
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
    """Return a text without the names of what is hidden; `by_line` without the lines that have them.

    A word is a name behind its kind, or where a value or a part of a path begins and ends; no word of a sentence is.
    """
    hidden, said = rights.hidden, {*_split(_ESCAPES.sub(b" ", content))}
    told = {name: _call(acl) for (_, name), acl in hidden.items() if said.issuperset(_split(name.encode()))}
    if not told:
        return content
    shared = {name for _, name in rights.declared.keys() - hidden.keys()}
    public = {name for kind, name in rights.declared.keys() - hidden.keys() if kind == Kind.PROCESS}
    steps = {_NOT_WORD.sub("_", name): told[name] for name in told.keys() - public}  # here__clicks_east_0a1b2c3d
    clusters = {_NOT_WORD.sub("_", name) for kind, name in hidden if kind == Kind.CLUSTER}  # arrival_here

    def call(found: re.Match[str]) -> str:
        word, start, end = found["quoted"] or found["word"], found.start(), found.end()
        before = found.string[max(start - _NEAR, 0) : start]
        is_first = word in clusters and found.string.startswith("__", end)
        if word in steps and (is_first or before.endswith("_" if word in clusters else "__")):
            return steps[word]
        is_inside = before[-1:].isalnum() or before[-1:] in ("_", "-") or found.string[end : end + 1] == "_"
        if is_inside and not _IS_ESCAPED.search(before):
            return found[0]
        kind = found["kind"] or next(filter(None, (at.groups() if (at := _KIND.search(before)) else ())), "")
        if (kind, word) in hidden:
            return _call(hidden[kind, word])
        is_value = _BEGINS.search(before) and _ENDS.match(found.string, end)
        is_named = word in told and word not in shared and (kind or (is_value and word not in _LITERALS))
        return told[word] if is_named else found[0]

    named = re.compile(_NAMED % {"names": _any({*told, *steps})})

    def hint(found: re.Match[str]) -> str:
        kept = [each for each in found[1].split(" or ") if named.sub("", each).strip("&#39;'")]
        return f"Did you mean {' or '.join(kept)}?" if kept else "Correct the name."

    text = _HINT.sub(hint, content.decode("utf-8", "surrogateescape"))
    if by_line:
        text = "\n".join(each for each in text.split("\n") if named.sub(call, each) == each)
    else:
        text = named.sub(call, text)
    return text.encode("utf-8", "surrogateescape")


def _split(text: bytes) -> list[bytes]:
    return text.translate(_BLANKS).split()


def _any(names: Iterable[str]) -> str:
    """Return a pattern of any of some names, the longest first; of none if there are none."""
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"


def _call(acl: AclRecord) -> str:
    return describe_hidden(acl) if _PLAIN.fullmatch(acl.whose) else "an entity that you may not read"
