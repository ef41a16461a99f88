"""The report's style: calm, light or dark as the reader has it, on a phone and on paper."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #faf8f4; --card: #ffffff; --ink: #23282d; --soft: #5d656d; --hair: #e2ddd3;
  --good: #2f7d6b; --doubt: #b27416; --bad: #b23b4a; --waiting: #8b939b; --road: #3d6f94;
  --shade: #f1ede5; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15181b; --card: #1c2024; --ink: #e7e4de; --soft: #a3abb3; --hair: #31373d;
  --good: #5cb8a1; --doubt: #e0a94a; --bad: #ea7d88; --waiting: #7f8890; --road: #77abd0;
  --shade: #242a2f; } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif }
main, header, footer { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem }
header { padding-top: 2.5rem }
.brand { letter-spacing: .14em; text-transform: uppercase; font-size: .78rem; color: var(--soft);
  margin: 0 }
h1 { font: 600 2rem/1.2 Georgia, "Times New Roman", serif; margin: .3rem 0 .4rem }
h2 { font: 600 1.25rem/1.3 Georgia, "Times New Roman", serif; margin: 0 0 .3rem }
h3 { font: 600 1.05rem/1.3 Georgia, "Times New Roman", serif; margin: 1.4rem 0 .2rem }
p { margin: .3rem 0 .8rem; max-width: 44rem }
.soft, figcaption, caption { color: var(--soft) }
.lead { font-size: 1.1rem }
section { margin: 1.25rem 0; padding: 1.25rem; background: var(--card);
  border: 1px solid var(--hair); border-radius: 12px }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0;
  list-style: none }
.tiles li { flex: 1 1 8.5rem; padding: .8rem 1rem; background: var(--card);
  border: 1px solid var(--hair); border-radius: 12px }
.tiles b { display: block; font: 600 1.5rem/1.2 Georgia, serif; font-variant-numeric: tabular-nums }
.tiles span { color: var(--soft); font-size: .88rem }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1.25rem; margin: 1.25rem 0 }
.pair section { margin: 0 }
.picture svg { display: block; width: 100%; height: auto; overflow: visible }
.picture.wide { overflow-x: auto }
.picture.wide svg { min-width: 44rem }
.defs { position: absolute }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink) }
svg .mark, svg .small, svg .number { fill: var(--soft); font-size: 12.5px;
  font-variant-numeric: tabular-nums }
svg .station { font-size: 13px } svg .relay { font: 600 14px Georgia, serif }
.start { text-anchor: start } .middle { text-anchor: middle } .end { text-anchor: end }
.grid { stroke: var(--hair) } .axis { stroke: var(--soft) }
.area.acknowledged { fill: var(--good) } .area.failed { fill: var(--bad) }
.area.in_doubt { fill: url(#hatch-doubt) } .area.waiting { fill: url(#hatch-waiting) }
.pale { opacity: .35 } .doubt.pale { fill: var(--doubt) } .waiting.pale { fill: var(--waiting) }
.drawn { fill: none; stroke-width: 1.4 }
.doubt.drawn { stroke: var(--doubt) } .waiting.drawn { stroke: var(--waiting) }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
.line.received { stroke: var(--road); stroke-dasharray: 1 4 }
.line.rate { stroke: var(--good) }
.line.p50 { stroke: var(--good) } .line.p95 { stroke: var(--road); stroke-dasharray: 6 4 }
.line.p99 { stroke: var(--bad); stroke-dasharray: 1.5 4 }
.dot.rate, .dot.p50 { fill: var(--good) } .dot.p99 { fill: var(--bad) }
.dot.p95, .dot.received { fill: var(--road) }
.road { fill: none; stroke: var(--road); opacity: .42 } .road:hover { opacity: .85 }
.stop { fill: var(--road) } .box { fill: var(--shade); stroke: var(--road) }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .5rem 0 0; padding: 0;
  list-style: none; font-size: .88rem; color: var(--soft) }
.legend svg { width: 1.5rem; height: .8rem; vertical-align: -.05rem; margin-right: .35rem }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .45rem .8rem;
  align-items: center; margin: .6rem 0 0 }
.bars dt { font-weight: 600 } .bars dd { margin: 0 }
.bars .track { height: .85rem; background: var(--shade); border-radius: 4px; overflow: hidden }
.bars .track i { display: block; height: 100%; width: var(--part); min-width: 2px;
  background: var(--tone, var(--road)) }
.bars .number { text-align: right; font-variant-numeric: tabular-nums }
.bars .why { grid-column: 1 / -1; margin: -.35rem 0 .35rem; color: var(--soft); font-size: .88rem }
.good { --tone: var(--good) } .bad { --tone: var(--bad) } .doubtful { --tone: var(--doubt) }
.idle { --tone: var(--waiting) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .92rem }
caption { text-align: left; padding-bottom: .4rem }
th, td { text-align: left; padding: .38rem .8rem .38rem 0; border-bottom: 1px solid var(--hair);
  vertical-align: top }
th { font-weight: 600; white-space: nowrap } tr:last-child td { border-bottom: 0 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.id { font: .8rem/1.5 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere;
  min-width: 13rem }
td.when { white-space: nowrap; font-variant-numeric: tabular-nums }
td.name { overflow-wrap: anywhere; min-width: 8rem }
td small { display: block; color: var(--soft) }
td.why { min-width: 13rem }
.flag { color: var(--bad); font-weight: 600 }
details { margin-top: .8rem } summary { cursor: pointer; color: var(--soft) }
summary:focus-visible, .picture:focus-visible, .scroll:focus-visible {
  outline: 2px solid var(--road); outline-offset: 3px; border-radius: 4px }
footer { padding-bottom: 3rem; color: var(--soft); font-size: .88rem }
@media (max-width: 40rem) { h1 { font-size: 1.6rem } section { padding: 1rem }
  main, header, footer { padding-left: .8rem; padding-right: .8rem } }
@media print { :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --hair: #ccc;
    --good: #2f7d6b; --doubt: #b27416; --bad: #b23b4a; --waiting: #777; --road: #3d6f94;
    --shade: #eee }
  body { font-size: 10.5pt } section, .tiles li { break-inside: avoid; border-color: #ccc }
  * { print-color-adjust: exact } .scroll, .picture.wide { overflow: visible }
  .picture.wide svg { min-width: 0 } }
"""
