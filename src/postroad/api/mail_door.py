"""The door for mail: an SMTP server in front of a node."""

from pathlib import Path

from postroad.api.door_tls import DoorTls
from postroad.api.serving import ServeError
from postroad.node.config import Config
from postroad.node.config_groups import split_address
from postroad.node.node import Node
from postroad.transport.smtp_server import MailDoor, MailLimits


def mail_door(config: Config, node: Node, tls: DoorTls | None) -> MailDoor | None:
    """The door of a configuration; None where it has none."""
    mail = config.mail
    if mail is None or mail.listen is None:
        return None
    host, port = split_address(mail.listen)
    return MailDoor(
        node.mail_in.take,
        recipients=mail.taken_for,
        host=host,
        port=port,
        name=mail.hello,
        tls=tls.context if tls is not None else None,
        require_tls=mail.require_tls,
        users=None if mail.users_file is None else _users(mail.users_file),
        limits=MailLimits(
            message_bytes=mail.max_size,
            connections=mail.connections,
            seconds=mail.timeout.total_seconds(),
        ),
    )


def _users(file: Path) -> dict[str, str]:
    """Names and passwords, a line each."""
    users = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip():
            continue
        name, colon, password = line.partition(":")
        if not colon or not name or not password:
            raise ServeError(f"{file}:{number}: write name:password")
        users[name] = password
    return users
