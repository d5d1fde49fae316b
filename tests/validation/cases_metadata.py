"""For the rules about what files say of entities and columns: what they accept, and what they refuse with this text."""

from tests.validation.cases import Case

CLICKS = "feed clicks"
METADATA_CASES = (
    Case(
        code="metadata-name",
        good={
            f"{CLICKS}/metadata": {"properties": {"quality-tier": "gold: see https://wiki/tiers"}, "tags": ["public"]}
        },
        bad={f"{CLICKS}/metadata": {"properties": {"data owner": "ann"}}},
        text="feed 'clicks': property 'data owner': a name has 1 to 50 letters of the alphabet, digits, '-' and '_'. "
        "Write it like 'data-owner'.",
    ),
    Case(
        code="metadata-name",
        name="tag",
        bad={"process daily/metadata": {"tags": ["checked", "a b"]}},
        text="process 'daily': tag 'a b': a name has 1 to 50 letters of the alphabet, digits, '-' and '_'. "
        "Write it like 'a-b'.",
    ),
    Case(
        code="metadata-name",
        name="reserved",
        bad={"datasource shop/metadata": {"properties": {"Tags": "x"}}},
        text="datasource 'shop': property 'Tags': the name is reserved for tags. Choose another name, or add a tag.",
    ),
    Case(
        code="metadata-tag",
        good={"cluster primary/tags": {"owner": "ops"}},
        bad={"cluster primary/tags": {"größe": "groß"}},
        text="cluster 'primary': its tag is no metadata, and search does not find it: property 'größe': a name has 1 "
        "to 50 letters of the alphabet, digits, '-' and '_'. Write it like 'checked'.",
    ),
    Case(
        code="metadata-twice",
        good={f"{CLICKS}/tags": {"owner": "ops"}, f"{CLICKS}/metadata": {"tags": ["owner"]}},
        bad={f"{CLICKS}/tags": {"owner": "ops"}, f"{CLICKS}/metadata": {"properties": {"owner": "ann"}}},
        text="feed 'clicks': property 'owner' is written twice. Write it once.",
    ),
    Case(
        code="metadata-column",
        good={
            f"{CLICKS}/schema": "id bigint, country string",
            f"{CLICKS}/metadata": {"columns": {"country": {"tags": ["iso"]}}},
        },
        bad={
            f"{CLICKS}/schema": "id bigint, country string",
            f"{CLICKS}/metadata": {"columns": {"contry": {"tags": ["iso"]}}},
        },
        text="feed 'clicks': its schema has no column 'contry'. Did you mean 'country'?",
    ),
    Case(
        code="metadata-column",
        name="process",
        bad={"process daily/metadata": {"columns": {"country": {"tags": ["iso"]}}}},
        text="process 'daily': a process has no columns. Write them at the feed.",
    ),
    Case(
        code="metadata-size",
        bad={f"{CLICKS}/metadata": {"properties": {f"note{number}": "x" * 4096 for number in range(16)}}},
        text="feed 'clicks': what is said of it has 65,622 bytes, more than 65,536. Remove what nobody needs.",
    ),
)
