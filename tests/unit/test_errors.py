"""The error table of Core, AS4 and Part 2."""

import pytest

from postroad.wire.errors import EBXML, ERRORS, Category, EbmsError, Severity, canonical_code

PART_2 = {
    "EBMS:0020": ("RoutingFailure", "failure", "Processing"),
    "EBMS:0021": ("MPCCapacityExceeded", "failure", "Processing"),
    "EBMS:0022": ("MessagePersistenceTimeout", "failure", "Processing"),
    "EBMS:0023": ("MessageExpired", "warning", "Processing"),
    "EBMS:0030": ("BundlingError", "failure", "Content"),
    "EBMS:0031": ("RelatedMessageFailed", "failure", "Processing"),
    "EBMS:0040": ("BadFragmentGroup", "failure", "Content"),
    "EBMS:0041": ("DuplicateMessageSize", "failure", "Content"),
    "EBMS:0042": ("DuplicateFragmentCount", "failure", "Content"),
    "EBMS:0043": ("DuplicateMessageHeader", "failure", "Content"),
    "EBMS:0044": ("DuplicateAction", "failure", "Content"),
    "EBMS:0045": ("DuplicateCompressionInfo", "failure", "Content"),
    "EBMS:0046": ("DuplicateFragment", "failure", "Content"),
    "EBMS:0047": ("BadFragmentStructure", "failure", "Unpackaging"),
    "EBMS:0048": ("BadFragmentNum", "failure", "Content"),
    "EBMS:0049": ("BadFragmentCount", "failure", "Content"),
    "EBMS:0050": ("FragmentSizeExceeded", "warning", "Unpackaging"),
    "EBMS:0051": ("ReceiveIntervalExceeded", "failure", "Unpackaging"),
    "EBMS:0052": ("BadProperties", "warning", "Unpackaging"),
    "EBMS:0053": ("HeaderMismatch", "failure", "Unpackaging"),
    "EBMS:0054": ("OutOfStorageSpace", "failure", "Unpackaging"),
    "EBMS:0055": ("DecompressionError", "failure", "Processing"),
    "EBMS:0060": ("ResponseUsingAlternateMEP", "warning", "Processing"),
}
CORE_AND_AS4 = (
    "0001 0002 0003 0004 0005 0006 0007 0008 0009 0010 0011 0101 0102 0103 0201 0202 0301 0302 0303"
)


def test_the_table_holds_every_code_and_no_other():
    ebms = {code for code, kind in ERRORS.items() if kind.origin != EBXML}
    assert ebms == {f"EBMS:{number}" for number in CORE_AND_AS4.split()} | set(PART_2)


@pytest.mark.parametrize("code", PART_2)
def test_part_2_codes_are_as_its_appendix_says(code):
    kind = ERRORS[code]
    assert (kind.short_description, kind.severity, kind.category) == PART_2[code]


def test_origin_tells_the_module():
    assert ERRORS["EBMS:0101"].origin == "security"
    assert ERRORS["EBMS:0202"].origin == "reliability"
    assert ERRORS["EBMS:0006"].severity is Severity.WARNING
    assert ERRORS["EBMS:0007"].category is Category.UNPACKAGING


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ("EBMS:0044", "EBMS:0044"),
        ("EBSMS:0044", "EBMS:0044"),
        ("EBMS0021", "EBMS:0021"),
        ("ebms:0004", "EBMS:0004"),
        ("PEPPOL:NOT_SERVICED", "PEPPOL:NOT_SERVICED"),
        ("EBMS:44", "EBMS:44"),
    ],
)
def test_spellings_in_print_and_in_the_field_come_to_one_form(found, meant):
    assert canonical_code(found) == meant


def test_an_error_tells_code_name_place_and_sentence():
    error = EbmsError("EBMS:0007", "no such part", location="cid:a", ref="m@x")
    assert str(error) == "EBMS:0007 MimeInconsistency at cid:a: no such part"
    assert (error.severity, error.ref) == (Severity.FAILURE, "m@x")
    assert EbmsError("EBMS:0007", "x", severity=Severity.WARNING).severity is Severity.WARNING
