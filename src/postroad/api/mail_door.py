"""The door for mail: an SMTP server in front of a node."""

from pathlib import Path

from postroad.api.door_tls import DoorTls
from postroad.api.listener_limits import address_rules, listener_incidents
from postroad.api.serving import ServeError
from postroad.node.node import Node
from postroad.node.settings.config import Config
from postroad.node.settings.config_groups import split_address
from postroad.transport.smtp_server import MailDoor, MailLimits, read_users


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
        users=_users(mail.users_file),
        limits=MailLimits(
            message_bytes=mail.max_size,
            connections=mail.connections,
            connections_per_address=mail.connections_per_address,
            address_rules=address_rules(config),
            seconds=mail.timeout.total_seconds(),
        ),
        incidents=listener_incidents(node, "mail"),
    )


def _users(file: Path | None) -> dict[str, str] | None:
    """Who may hand in mail; None: nobody has to log in."""
    if file is None:
        return None
    try:
        return read_users(file.read_text())
    except (OSError, ValueError) as error:
        raise ServeError(f"{file}: {error}; write a line name:password for each") from None
