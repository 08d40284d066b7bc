"""A mail server: `python -m milepost.testing.world.mail_service`. It needs aiosmtpd (`milepost[demo]`).

A mail is applied when the server has taken it, before it says so. Its account is in `X-Account`, the tool in `X-Tool`,
its arguments in `X-Args` as JSON, key and attempt in `X-Effect-Key` and `X-Effect-Attempt`. Mail knows neither keys
nor questions: the headers only go into the ledger.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from email import message_from_bytes, policy
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from milepost.testing.world import ledger as books
from milepost.testing.world import rules
from milepost.testing.world.process import LOOPBACK, announce, arguments, end_with_stdin


class Mailbox:
    """Takes mails; aiosmtpd calls it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = books.Ledger(folder / "mail.ledger")

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: ARG002, N802
        """Note the mail, and then say so."""
        message = message_from_bytes(envelope.original_content or b"", policy=policy.default)
        account = str(message.get("X-Account", ""))
        how = rules.read(self.folder, account)
        key, attempt = str(message.get("X-Effect-Key", "")), int(str(message.get("X-Effect-Attempt", "0")))
        to = ",".join(envelope.rcpt_tos)
        self.ledger.asked(account, books.Request(f"MAIL {to}", key, attempt, how.now()))
        args = json.loads(str(message.get("X-Args", "{}")))
        line = books.Line(0, str(message.get("X-Tool", "mail")), to, key, attempt, how.now(), args)
        self.ledger.apply(account, "mail", line)
        return "250 OK"


async def run(folder: Path, port_file: Path) -> None:
    """Serve until killed."""
    mailbox = Mailbox(folder)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mailbox, hostname="mail.example", loop=loop), LOOPBACK, 0)
    announce(port_file, server.sockets[0].getsockname()[1])
    await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the parent ends."""
    options = arguments("A mail server with a ledger.").parse_args(argv)
    end_with_stdin()
    asyncio.run(run(options.folder, options.port_file))


if __name__ == "__main__":
    main()
