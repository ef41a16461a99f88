"""Dotted names, the supported table, the JSON Schema and the page about P-Modes."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from postroad.agreement.groups import Group
from postroad.agreement.loading import load_pmodes
from postroad.agreement.parameters import PARAMETERS, dotted, group_of, name_of, settings
from postroad.agreement.pmode import PMode
from postroad.agreement.supported import ALL, SUPPORTED, expand, parameter_table
from postroad.agreement.writing import pmode_schema, pmode_yaml
from postroad.cli.pmode import app

TESTS = Path(__file__).parents[1]
EVERYTHING = (TESTS / "data/pmodes/everything.yaml").read_text()
SPECIFIED = (TESTS / "data/pmodes/specified-parameters.txt").read_text().split()
PAGE = (TESTS.parent / "docs/pmodes.md").read_text()


def groups(group: type[Group] = PMode) -> Iterator[type[Group]]:
    yield group
    for info in group.model_fields.values():
        child, _ = group_of(info.annotation)
        if child is not None:
            yield from groups(child)


def everything() -> tuple[PMode, ...]:
    result = load_pmodes(EVERYTHING, "everything.yaml", supported=None)
    assert result.problems == ()
    return result.pmodes


def test_dotted_names_and_paths_are_unique() -> None:
    for names in ([p.name for p in PARAMETERS], [p.path for p in PARAMETERS]):
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_field_has_a_name_and_a_meaning() -> None:
    for group in groups():
        assert group.__doc__, group
        for field, info in group.model_fields.items():
            assert info.title is not None, f"{group.__name__}.{field}"
            assert info.description, f"{group.__name__}.{field}"


def test_every_leaf_of_the_models_is_in_the_table() -> None:
    leaves = {
        (group, field)
        for group in groups()
        for field, info in group.model_fields.items()
        if group_of(info.annotation)[0] is None
    }
    fields = {field for _, field in leaves}
    assert {parameter.path.split(".")[-1].removesuffix("[]") for parameter in PARAMETERS} == fields


@pytest.mark.parametrize("name", SPECIFIED)
def test_the_parameters_of_the_specifications_are_there(name: str) -> None:
    assert name in ALL


@pytest.mark.parametrize(
    "place",
    [
        "PMode.Initiator",
        "PMode.Responder",
        "PMode[]",
        "PMode[].ErrorHandling.Report.SenderErrorsTo",
        "PMode[].ErrorHandling.Report.ReceiverErrorsTo",
        "PMode[].Security.SendReceipt",
        "PMode[].Reliability.AtLeastOnce.Contract.AcksTo",
    ],
)
def test_addressing_stands_in_all_its_places(place: str) -> None:
    routing = "Addressing.EPR.RoutingInput"
    for name in (
        "Addressing.Address",
        "Addressing.Action",
        f"{routing}.Initiator.Party[]",
        f"{routing}.Initiator.Role",
        f"{routing}.Responder.Party[]",
        f"{routing}.Responder.Role",
        f"{routing}.BusinessInfo.Service",
        f"{routing}.BusinessInfo.Action",
        f"{routing}.BusinessInfo.Properties[].name",
        f"{routing}.BusinessInfo.MPC",
    ):
        assert f"{place}.{name}" in ALL


def test_a_file_with_everything_sets_every_parameter() -> None:
    names = {re.sub(r"\[\d+\]", "[]", name) for pmode in everything() for name, _ in dotted(pmode)}
    assert names == ALL


def test_dotted_names_of_a_pmode_are_unique_and_agree_with_its_paths() -> None:
    for pmode in everything():
        found = settings(pmode)
        assert len({setting.name for setting in found}) == len(found)
        assert all(name_of(setting.path) == setting.name for setting in found)


def test_passwords_are_masked() -> None:
    shown = dict(dotted(everything()[0]))
    assert shown["PMode.Initiator.Authorization.password"] == "********"
    assert shown["PMode[1].Security.UsernameToken.password"] == "********"
    assert "horse" not in str(shown)


def test_yaml_reads_back_to_the_same_pmode() -> None:
    for pmode in everything():
        assert load_pmodes(pmode_yaml(pmode), "again.yaml", supported=None).pmodes == (pmode,)


@given(
    st.builds(
        dict,
        id=st.text(min_size=1).filter(lambda t: t.strip() not in ("", "*")),
        legs=st.just([{}]),
    )
)
def test_any_id_survives_yaml(data: dict[str, object]) -> None:
    pmode = PMode.model_validate(data)
    try:
        text = pmode_yaml(pmode)
    except UnicodeEncodeError:
        return
    result = load_pmodes(text, "again.yaml")
    assert [p.id for p in result.pmodes] == [pmode.id]


def test_the_supported_table_names_real_parameters() -> None:
    assert SUPPORTED < ALL
    assert "PMode[].Security.X509.Signature.Pins" in SUPPORTED
    with pytest.raises(ValueError, match="is no P-Mode parameter"):
        expand("PMode[].Protocol.Adress")


def test_sample_files_are_valid_against_the_schema() -> None:
    schema = pmode_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(yaml.safe_load(EVERYTHING))
    for text in examples("yaml"):
        if "adress" not in text:
            validator.validate(yaml.safe_load(text))


def test_the_schema_refuses_unknown_keys_and_tells_meanings() -> None:
    schema = pmode_schema()
    validator = jsonschema.Draft202012Validator(schema)
    assert not validator.is_valid({"id": "a", "legs": [{"protocol": {"adress": "https://x"}}]})
    soap = schema["$defs"]["Protocol"]["properties"]["soap_version"]
    assert soap["title"] == "SOAPVersion"
    assert soap["description"]
    assert "default" not in soap


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_lists_exactly_the_parameters_of_the_models() -> None:
    table = PAGE.partition("<!-- parameters -->\n")[2].partition("<!-- end of parameters -->")[0]
    assert table == parameter_table()


def test_the_examples_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    names = re.findall(r"<!-- example: (\S+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    outputs = re.findall(r"<!-- output: (.+?) -->\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert (len(names), len(outputs)) == (7, 2)
    with chdir(tmp_path):
        for name, text in names:
            Path(name).write_text(text)
        for command, output in outputs:
            assert CliRunner().invoke(app, command.split()).output == output
        for name in ("ebxml.yaml", "named.yaml"):
            assert CliRunner().invoke(app, ["check", name]).exit_code == 0
        for name in ("invoices.yaml", "orders.yaml"):
            shown = f"$ postroad pmode check {name}\n"
            assert shown + CliRunner().invoke(app, ["check", name]).output in PAGE


@pytest.mark.req("P2-7.1-10")
@pytest.mark.parametrize(
    "place",
    [
        "PMode.Initiator",
        "PMode.Responder",
        "PMode[]",
        "PMode[].ErrorHandling.Report.SenderErrorsTo",
        "PMode[].ErrorHandling.Report.ReceiverErrorsTo",
        "PMode[].Security.SendReceipt",
    ],
)
def test_every_parameter_of_addressing_works_wherever_ebms_messages_are_routed(place: str) -> None:
    below = {name for name in ALL if name.startswith(f"{place}.Addressing.")}
    assert len(below) > 10
    assert below <= SUPPORTED
    assert "PMode[].Protocol.AddActorOrRoleAttribute" in SUPPORTED
