"""A mail server in a process of its own, which sometimes hangs up: `python -m milepost.cli.demo.mail`.

It speaks SMTP on a free port of 127.0.0.1 and notes each mail in its ledger. Some mails it takes and then closes the
connection without the word that it took them. Mail knows neither keys nor questions: a client that hears nothing, or
dies while it waits, cannot find out what became of its mail. That is why a mail is an irreversible effect, and why an
unknown one waits for a person.
"""

import asyncio
from collections.abc import Sequence
from email import message_from_bytes, policy
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from milepost.cli.demo.faults import mail_behaviour
from milepost.cli.demo.ledgers import Mail, MailLedger, unix_ms
from milepost.cli.demo.service import LOOPBACK, announce, arguments, end_with_stdin
from milepost.cli.demo.tickets import TICKET_HEADER

_UNTIL_KILLED = 3_600


class Mailbox:
    """Takes mails; aiosmtpd calls it."""

    def __init__(self, ledger: MailLedger, seed: int) -> None:
        self._ledger = ledger
        self._seed = seed

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: ARG002, N802
        """Note the mail and then say so, or hang up.

        When the client dies while this sleeps, aiosmtpd cancels it: a mail whose sender died early is not taken.
        """
        mail = _mail(envelope)
        behaviour = mail_behaviour(self._seed, mail.ticket, self._ledger.received_so_far(mail.ticket) + 1)
        await asyncio.sleep(behaviour.before_ms / 1_000)
        self._ledger.add_mail(mail._replace(dropped=behaviour.drops), unix_ms())
        await asyncio.sleep(behaviour.after_ms / 1_000)
        if behaviour.drops and isinstance(server.transport, asyncio.WriteTransport):
            server.transport.abort()
            await asyncio.sleep(_UNTIL_KILLED)  # the lost connection cancels this: no answer is ever written
        return "250 OK"


def _mail(envelope: Envelope) -> Mail:
    message = message_from_bytes(envelope.original_content or b"", policy=policy.default)
    return Mail(
        seq=0,
        ticket=str(message.get(TICKET_HEADER, "")),
        message_id=str(message.get("Message-ID", "")),
        recipient=",".join(envelope.rcpt_tos),
        subject=str(message.get("Subject", "")),
        dropped=False,
    )


async def _serve(options: Any) -> None:
    mailbox = Mailbox(MailLedger(options.ledger), options.seed)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mailbox, hostname="desk.example", loop=loop), LOOPBACK, 0)
    announce(options.port_file, server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    options = arguments("A mail server that sometimes hangs up on purpose.").parse_args(argv)
    if options.end_with_stdin:
        end_with_stdin()
    asyncio.run(_serve(options))


if __name__ == "__main__":
    main()
