"""What rounds ask of senders: to hand one letter to a receiver, and to say how that ended."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any
from urllib.parse import quote

from feed_assets.alerts.delivery.words import write_lines, write_subject
from feed_assets.json_form import render_document
from feed_assets.log.messages.records import OutboxMessage


class Verdict(StrEnum):
    """How a receiver has answered.

    REFUSED says that it will never take this letter, FAILED that it has not taken it now. AWAY says that it does not
    answer at all, so that other letters need not be tried.
    """

    DELIVERED = "delivered"
    REFUSED = "refused"
    FAILED = "failed"
    AWAY = "away"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as it leaves: the `document` for programs; `subject`, `text` and `html` for people. Without secrets.

    Each is written when a sender asks for it. `webserver` is the URL of Dagster's, for links.
    """

    message: OutboxMessage
    webserver: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The JSON for programs."""
        return render_document(self.message)

    @property
    def subject(self) -> str:
        """The subject of a mail: what has happened."""
        return write_subject(self.message)

    @property
    def text(self) -> str:
        """The plain text of a mail: the subject, and a line for each thing that is said."""
        lines = (f"{name}: {text}" for name, text in write_lines(self.message, self.webserver))
        return "\n".join([self.subject, "", *lines, ""])

    @property
    def html(self) -> str:
        """The same as a table."""
        said = write_lines(self.message, self.webserver)
        rows = (f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in said)
        return f"<html><body><p>{escape(self.subject)}</p><table>{''.join(rows)}</table></body></html>"

    @property
    def key(self) -> str:
        """The key by which a receiver recognises a repeat, percent-encoded: paths may have any character."""
        return quote(self.message.idempotency_key, safe="/:@+,=#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer to a letter, and why it was not taken."""

    verdict: Verdict
    error: str | None = None


DELIVERED = Outcome(verdict=Verdict.DELIVERED)


class Sender(ABC):
    """A connection with a receiver. Each thread has its own.

    `send` returns within about `exchange.SECONDS`, raises nothing that a receiver can cause, and may be called again
    after any outcome. A letter may reach the receiver although the outcome says otherwise.
    """

    @abstractmethod
    def send(self, letter: Letter) -> Outcome:
        """Hand over a letter."""

    def close(self) -> None:
        """End the connection. The sender is not used any more."""
        return
