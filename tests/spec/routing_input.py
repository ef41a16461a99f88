"""A grammar of ebint:RoutingInput, written from sections 2.6.3 and 2.7.1 of the Advanced Features.

It needs no file beside the project: RELAX NG, in which order and number of elements are exact.
"""

from typing import Any, Final

from lxml import etree

from tests.spec.kit import NAMESPACES

_GRAMMAR: Final = """
<grammar xmlns="http://relaxng.org/ns/structure/1.0"
    datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes"
    xmlns:eb="http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
    xmlns:ebint="{ebint}" xmlns:wsa="{wsa}" xmlns:wsu="{wsu}" xmlns:s11="{s11}" xmlns:s12="{s12}">
  <start><element name="ebint:RoutingInput">
    <attribute name="wsa:IsReferenceParameter"><data type="boolean"/></attribute>
    <optional><attribute name="wsu:Id"><data type="ID"/></attribute></optional>
    <choice>
      <group><attribute name="s12:mustUnderstand"><data type="boolean"/></attribute>
        <attribute name="s12:role"><data type="anyURI"/></attribute></group>
      <group><attribute name="s11:mustUnderstand"><choice><value>0</value><value>1</value></choice>
        </attribute><attribute name="s11:actor"><data type="anyURI"/></attribute></group>
    </choice>
    <element name="ebint:UserMessage">
      <optional><attribute name="mpc"><data type="anyURI"/></attribute></optional>
      <element name="eb:PartyInfo">
        <element name="eb:From"><ref name="party"/></element>
        <element name="eb:To"><ref name="party"/></element>
      </element>
      <element name="eb:CollaborationInfo">
        <optional><element name="eb:AgreementRef"><ref name="typed"/></element></optional>
        <element name="eb:Service"><ref name="typed"/></element>
        <element name="eb:Action"><ref name="text"/></element>
        <element name="eb:ConversationId"><data type="token"/></element>
      </element>
      <optional><element name="eb:MessageProperties"><oneOrMore>
        <element name="eb:Property"><attribute name="name"/><ref name="typed"/></element>
      </oneOrMore></element></optional>
    </element>
  </element></start>
  <define name="party">
    <oneOrMore><element name="eb:PartyId"><ref name="typed"/></element></oneOrMore>
    <element name="eb:Role"><ref name="text"/></element>
  </define>
  <define name="typed"><optional><attribute name="type"/></optional><ref name="text"/></define>
  <define name="text"><data type="token"><param name="minLength">1</param></data></define>
</grammar>
"""
_VALIDATOR: Final = etree.RelaxNG(etree.fromstring(_GRAMMAR.format(**NAMESPACES)))


def assert_valid(routing_input: Any) -> None:
    """Check an ebint:RoutingInput as it stands in a message."""
    _VALIDATOR.assertValid(etree.fromstring(etree.tostring(routing_input)))
