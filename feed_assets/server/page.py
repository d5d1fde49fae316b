"""A page for people about the routes, made of the OpenAPI document: no scripts, and nothing from elsewhere."""

import json
import re
from collections.abc import Mapping
from html import escape
from shlex import quote
from typing import Any
from urllib.parse import urlencode

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load for the page: its own style."""
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>feed-assets</title><style>
body{font:16px/1.5 system-ui;max-width:64rem;margin:2rem auto;padding:0 1rem} pre{white-space:pre-wrap}
td{padding:0 1rem 0 0;vertical-align:top} summary{cursor:pointer}</style>
<h1>feed-assets</h1><p><a href="/ui">Pages to look at</a></p>"""
_JSON = "application/json"
_TOKEN = ' --header "Authorization: Bearer $FEED_ASSETS_TOKEN"'


def render_page(document: Mapping[str, Any], server: str, *, needs_token: bool = False) -> str:
    """Return the page of the server at a URL; the examples have a token if one is needed."""
    described = [(method, path, told) for path, each in document["paths"].items() for method, told in each.items()]
    curl, names = f"curl{_TOKEN if needs_token else ''}", [each["name"] for each in document["tags"]]
    contents = " · ".join(f'<a href="#{each}">{each}</a>' for each in names)
    lines = [_HEAD, f"<p>{_shown(document['info']['description'])}", f"<p>{contents}</p>"]
    for tag in document["tags"]:
        lines.append(f'<h2 id="{tag["name"]}">{tag["name"]}</h2><p>{_shown(tag["description"])}')
        lines.extend(_render(curl, server, *each) for each in described if tag["name"] in each[2].get("tags", ()))
    return "\n".join(lines)


def _shown(text: str) -> str:
    """Return a text with its paragraphs, in which what stands in backquotes is code, and nothing is markup."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)).replace("\n\n", "<p>")


def _render(curl: str, server: str, method: str, path: str, told: Mapping[str, Any]) -> str:
    bodies = told.get("requestBody", {}).get("content", {})
    body = bodies.get(_JSON, {"schema": {"properties": {}, "required": ()}})
    given = [(each["name"], each["schema"], each["required"]) for each in told.get("parameters", ())]
    given += [
        (name, schema, name in body["schema"]["required"]) for name, schema in body["schema"]["properties"].items()
    ]
    example = {name: name.upper() for name, _, is_needed in given if is_needed} | body.get("example", {})
    example |= {each["name"]: each["example"] for each in told.get("parameters", ()) if "example" in each}
    rows = (
        f"<tr><td><code>{name}{'*' * is_needed}</code><td>{_type_of(schema)}<td>{_shown(schema['description'])}"
        for name, schema, is_needed in given
    )
    query = f"?{urlencode(example, doseq=True)}" if example and _JSON not in bodies else ""
    sent = f" --json {quote(json.dumps(example))}" if _JSON in bodies else " --data-binary @FILE" if bodies else ""
    return f"""<details><summary><code>{method.upper()} {path}</code> {_shown(told["summary"])}</summary>
<p>{_shown(told["description"])}<p>Who asks must be one who {told["x-right"]}.</p><table>{"".join(rows)}</table>
<pre>{escape(f"{curl} {quote(server + path + query)}{sent}")}</pre></details>"""


def _type_of(schema: Mapping[str, Any]) -> str:
    one = schema.get("items", schema)
    name = "time" if "$ref" in one else " | ".join(one.get("enum", (one["type"],)))
    return escape(f"{name}, several" if "items" in schema else name)
