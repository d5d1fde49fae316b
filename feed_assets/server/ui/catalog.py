"""Pages to find entities by what is said of them."""

from feed_assets.server.ui.records import Asked, View
from feed_assets.server.ui.tables import ask_table


def show_search(asked: Asked) -> View:
    """Show the entities that a text finds, and the keys that begin with it."""
    text, scope, kind = asked.one("text"), asked.one("scope"), asked.one("target")
    offset = asked.one("offset", "0")
    given = {"text": text or "*", "scope": scope, "target": kind, "offset": offset}
    found = asked.ask("search", **given)
    keys = asked.ask("keys list", beginning=text.strip("*+ "), scope=scope)
    parts = {"text": text, "scope": scope, "target": kind, "found": found, "keys": keys}
    return View(template="search.html", title=f"Search: {text}" if text else "Search", parts=parts)


def show_keys(asked: Asked) -> View:
    """Show the keys, and how many entities have each."""
    beginning, scope = asked.one("beginning"), asked.one("scope")
    keys = asked.ask("keys list", beginning=beginning, scope=scope)
    return View(template="keys.html", title="Keys", parts={"keys": keys, "beginning": beginning, "scope": scope})


def show_key(asked: Asked) -> View:
    """Show who carries a key."""
    key, scope = asked.one("key"), asked.one("scope")
    found = asked.ask("keys show", key=key, scope=scope, limit="100")
    return View(template="key.html", title=key, parts={"key": key, "found": found, "scope": scope})


def show_entities(asked: Asked) -> View:
    """Show the entities of a kind, or of all."""
    given = {name: asked.one(name) for name in ("kind", "nameseq", "offset")}
    table = ask_table(asked, "entity list", {**given, "num_results": "50", "fields": "STATUS,TAGS,PIPELINES"})
    title = {"feed": "Feeds", "process": "Processes", "cluster": "Clusters"}.get(given["kind"], "Entities")
    return View(template="entities.html", title=title, parts={"table_": table, **given})


def show_words(asked: Asked) -> View:
    """Show what is said of a thing that is declared nowhere."""
    entity = asked.one("entity")
    return View(template="words.html", title=entity, parts=words_of(asked, entity))


def words_of(asked: Asked, entity: str) -> dict[str, object]:
    """Return the parts of a page with what is said of a thing, and with the forms to say more."""
    said = asked.ask("metadata get", entity=entity)
    return {"entity": entity, "said": said, "changes": ask_table(asked, "metadata history", {"entity": entity})}
