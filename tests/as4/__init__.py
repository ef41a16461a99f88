"""The public AS4 conformance cases.

Each test is named after the case that it shows: `AS4_CP_`, `AS4_4CT_`, `AS4_SBDH_`, `AS4_DR_`,
`AS4_ENTSOG_` are the eDelivery AS4 test assertions v1.2, `minder` their bench, `as4net` the
integration tests that AS4.NET numbers 8.x. Two real nodes, the second and third corner, talk
through relays that record every byte; what went over the wire is read with the standard library,
lxml and cryptography, never with Postroad's own readers. Foreign and bad messages are made with the
same tools.

Not here, and why:

- AS4_CP_TA46: not testable by its own account. TA11 and TA18 are neither, but what of them can be
  seen is here.
- AS4_DS_TA01 to TA03, as4net 8.1.19 and 8.1.20: dynamic discovery, which docs/conformance.md lists.
- minder AS4_basic_two_way: AS4_CP_TA02, TA14 and TA19 show the same exchange.
- as4net 8.1.14, 8.1.15, 8.3.17 and 8.3.18: how that product is submitted to and delivers.
- as4net 8.1.16, 8.1.18, 8.3.16: pulling. 8.1.21, 8.1.22: intermediaries.
- as4net 8.2.1: whether an application may override a P-Mode is that product's own rule.
"""
