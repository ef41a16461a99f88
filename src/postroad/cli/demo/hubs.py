"""The demo's hubs: two of them between buyer and seller, who each know nothing but their own."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from postroad.agreement.loading import load_pmodes
from postroad.agreement.pmode import PMode
from postroad.agreement.units import derive_units
from postroad.agreement.writing import pmode_data, pmode_yaml
from postroad.node.first_steps.initializing import Station
from postroad.node.settings.can_ship import can_ship

ORDER: Final = "orders-by-hubs.init"
_NAME: Final = "orders-by-hubs"
_RETRY: Final = {"max_retries": "unlimited", "timeout": "PT1S", "period": "PT1S"}


def address(of: Station) -> str:
    return f"http://127.0.0.1:{of.port}/msh"


def found_hubs(near: Station, far: Station, buyer: Station, seller: Station) -> None:
    """Make the folders of two hubs: no P-Mode, no key, only rules."""
    for hub, there, back in ((near, far, buyer), (far, seller, near)):
        (hub.folder / "keys").mkdir(parents=True)
        token = hub.folder / "keys/api.token"
        token.touch(0o600)
        token.write_text(secrets.token_urlsafe(32))
        settings = {
            "node": hub.name,
            "party": f"urn:example:{hub.name}",
            "listen": [{"address": f"127.0.0.1:{hub.port}"}],
            "api": {"token_file": "keys/api.token"},
            **({"journal": {"ship_to": "journal"}} if can_ship() else {}),
        }
        rules = [_rule("to the seller", seller, there), _rule("to the buyer", buyer, back)]
        (hub.folder / "postroad.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        (hub.folder / "routes.yaml").write_text(yaml.safe_dump({"routes": rules}, sort_keys=False))


def _rule(name: str, party: Station, next_msh: Station) -> dict[str, Any]:
    to = {"push": address(next_msh), "retry": _RETRY}
    return {"id": name, "match": {"to_party": f"urn:example:{party.name}"}, "to": to}


def agree(folders: Mapping[str, Path], template: str, near: Station, far: Station) -> None:
    """Derive the P-Mode of each end from the one that both have for their direct way."""
    first, last = address(near), address(far)
    for place, folder in enumerate((folders["buyer"], folders["seller"])):
        file = folder / "pmodes" / f"{template}.yaml"
        data = pmode_data(load_pmodes(file.read_text(), str(file)).pmodes[0])
        data["id"] = _NAME
        data["legs"][0]["business_info"]["action"] = "OrderByHubs"
        pmode = PMode.model_validate(data)
        unit = derive_units(pmode, initiator_hub=first, responder_hub=last)[place]
        (folder / "pmodes" / f"{unit.id}.yaml").write_text(pmode_yaml(unit))
