"""The public AS4 conformance cases, as far as One-Way/Push can show them.

Each test is named after the case that it shows: `AS4_CP_`, `AS4_4CT_`, `AS4_DR_`, `AS4_ENTSOG_` are
the eDelivery AS4 test assertions v1.2, `minder` their bench, `as4net` the integration tests that
AS4.NET numbers 8.x. Two real nodes, the second and third corner, talk through a relay that records
every byte; what went over the wire is read with the standard library, lxml and cryptography, never
with Postroad's own readers. Foreign and bad messages are made with the same tools.

Not here, and why:

- AS4_CP_TA02, TA14, TA19, minder AS4_basic_two_way: Two-Way/Push-and-Push.
- AS4_CP_TA09, TA15, minder OneWayRetry: retries and their time-out (reception awareness).
  Of TA10 the half without retries is here: the same message twice, one delivery, one receipt.
- AS4_CP_TA11, TA18, TA46: not testable by their own account. TA18 is easy to see, so it is here.
- AS4_CP_TA39, TA41, TA42: in tests/transport; TA40 and TA43 also here, between whole nodes.
- AS4_SBDH_TA01, TA02: what is inside payloads is the application's.
- AS4_DS_TA01 to TA03, as4net 8.1.19 and 8.1.20: dynamic discovery.
- AS4_ENTSOG_TA02 to TA05, TA07, TA11, TA12: what a trading community puts into its P-Modes.
- as4net 8.1.14, 8.1.15, 8.3.17 and 8.3.18: how that product is submitted to and delivers.
- as4net 8.1.16, 8.1.18, 8.3.16: pulling. 8.1.21, 8.1.22: intermediaries.
- as4net 8.2.1: whether an application may override a P-Mode is that product's own rule.
"""
