"""Send letters to people by electronic mail, over one connection with the mail server."""

import hashlib
import smtplib
import ssl
from email.message import EmailMessage

from feed_assets.alerts.delivery.exchange import BoundedMail, BoundedSecureMail, Exchange
from feed_assets.alerts.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.masking import mask
from feed_assets.receivers import MailSecurity, MailSettings

KEY_HEADER = "X-Feed-Assets-Key"

_FOR_EVER = 500
_CLOSING = 421


class MailSender(Sender):
    """Sends to an address. What a repeat has in common with the first mail is its `Message-ID`."""

    def __init__(self, address: str, mail: MailSettings) -> None:
        self._to = address
        self._mail = mail
        self._exchange = Exchange()
        self._server: BoundedMail | None = None

    def send(self, letter: Letter) -> Outcome:
        self._exchange.begin()
        return self._send(self._compose(letter))

    def _send(self, message: EmailMessage) -> Outcome:
        was_open = self._server is not None
        try:
            if self._server is None:
                self._server = self._open()
            self._server.send_message(message, from_addr=self._mail.sender, to_addrs=[self._to])
        except smtplib.SMTPRecipientsRefused as exc:
            return self._judge(*exc.recipients[self._to])
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as exc:
            return self._judge(exc.smtp_code, exc.smtp_error)
        except (OSError, smtplib.SMTPException, ValueError) as exc:  # a ValueError: of words that cannot be coded
            self.close()
            if was_open and isinstance(exc, smtplib.SMTPServerDisconnected) and not self._exchange.is_spent:
                return self._send(message)
            return Outcome(verdict=Verdict.AWAY, error=mask(f"{type(exc).__name__}: {exc}"))
        return DELIVERED

    def _judge(self, code: int, said: bytes | str) -> Outcome:
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        error = mask(f"the mail server answers {code} {text}")
        if code == _CLOSING:
            self.close()
            return Outcome(verdict=Verdict.AWAY, error=error)
        return Outcome(verdict=Verdict.REFUSED if code >= _FOR_EVER else Verdict.FAILED, error=error)

    def _open(self) -> BoundedMail:
        mail = self._mail
        if mail.security is MailSecurity.TLS:
            server: BoundedMail = BoundedSecureMail(self._exchange, mail.host, mail.port, context=self._trust())
        else:
            server = BoundedMail(self._exchange, mail.host, mail.port)
        try:
            if mail.security is MailSecurity.STARTTLS:
                server.starttls(context=self._trust())
            if mail.user is not None:
                server.login(mail.user, mail.password or "")
        except BaseException:
            server.close()
            raise
        return server

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._mail.ca_file is not None:
            context.load_verify_locations(self._mail.ca_file)
        return context

    def _compose(self, letter: Letter) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._mail.sender, self._to, letter.subject
        message["Date"] = letter.message.recorded_at
        digest = hashlib.sha256(letter.key.encode()).hexdigest()[:32]
        message["Message-ID"] = f"<{digest}@feed-assets>"
        message[KEY_HEADER] = letter.key
        message.set_content(letter.text)
        message.add_alternative(letter.html, subtype="html")
        return message

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
