"""Which of the node's own keys a command is about: its files, and the setting that names them."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from postroad.cli.node_options import config_path, read_config
from postroad.cli.problems import fail
from postroad.node.first_steps.key_requests import KeyUse
from postroad.node.first_steps.key_store import KeyFileError, KeyFiles
from postroad.node.settings.config import Config
from postroad.node.settings.config_groups import is_name
from postroad.node.settings.keyring import Keyring, load_keyring


@dataclass(frozen=True, slots=True)
class OwnKey:
    """One of the node's own keys: its files, and the setting that names them, as it should be."""

    config: Config
    file: Path
    files: KeyFiles
    setting: str
    is_set: bool
    """Whether the node's file names it."""
    options: str

    def again(self, command: str) -> str:
        """A command about the same key."""
        return f"postroad key {command} -c {shlex.quote(str(self.file))}{self.options}"


def find_own_key(file: Path | None, use: KeyUse, name: str | None) -> OwnKey:
    """Find the files of a key by its use, or by a name of its own."""
    path = config_path(file)
    config = read_config(path)
    if name is not None and not is_name(name):
        fail(f"{name!r} is no name of a file. Take letters, digits, dots, dashes and underscores")
    named = _named(config, use)
    default = path.parent / "keys" / f"{_default_name(config, use)}.p12"
    folder = (named or default).parent
    files = KeyFiles(folder, name or (named or default).stem)
    setting = {
        KeyUse.ENCRYPTION: "keys.decryption",
        KeyUse.TLS: "listen[].tls.certificate",
    }.get(use, "keys.signing")
    options = f" --use {use}" if use is not KeyUse.MESSAGES else ""
    options += f" --name {name}" if name else ""
    return OwnKey(config, path, files, setting, named == files.store, options)


def _default_name(config: Config, use: KeyUse) -> str:
    if use is KeyUse.TLS:
        return "tls"
    return f"{config.node}-encryption" if use is KeyUse.ENCRYPTION else config.node


def _named(config: Config, use: KeyUse) -> Path | None:
    """The file that the configuration names for a use."""
    if use is KeyUse.TLS:
        return next((door.tls.certificate for door in config.listen if door.tls), None)
    if use is KeyUse.ENCRYPTION:
        others = [one for one in config.keys.decryption or () if one != config.keys.signing]
        return others[0] if others else None
    return config.keys.signing


def own_keyring(config: Config) -> Keyring:
    """Load the node's keys; KeyFileError where there is none yet."""
    missing = config.keys.signing
    if missing is not None and not missing.exists():
        raise KeyFileError(
            f"There is no {missing}. Make a key with postroad key new, and import its certificate"
            " with postroad key import"
        )
    return load_keyring(config)
