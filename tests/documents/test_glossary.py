"""Terms of the glossary have an order and a link each, and its states are those of the code."""

import re

from feed_assets.definitions.verbs.states import EntityState
from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
from tests.documents.markdown import ROOT, tables_of

PAGE = (ROOT / "docs/glossary.md").read_text("utf-8")
TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+?)(?=^- |^\n|\Z)", re.MULTILINE | re.DOTALL)  # - **Batch**: the events …


def test_terms_stand_in_order_and_each_leads_to_a_page() -> None:
    terms = TERM.findall(PAGE)
    assert len(terms) > 60
    names = [name.lower() for name, _ in terms]
    assert names == sorted(set(names))
    assert [name for name, meaning in terms if "](" not in meaning] == []


def test_states_are_those_of_the_code() -> None:
    told = [table.column["state"] for table in tables_of("docs/glossary.md")]
    assert told == [tuple(states) for states in (FeedInstanceStatus, ProcessInstanceStatus, EntityState)]
