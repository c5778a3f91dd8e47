"""How REPORT.html looks: one style sheet, with the system's own fonts, for light, dark and paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --rule: #d5dae0; --paper: #ffffff; --panel:
  #f6f7f9;
  --line: #1f5fbf; --good: #1a7f4b; --fair: #8a5a00; --poor: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #9ba5b0; --rule: #39414a; --paper: #14171b;
  --panel: #1c2026; --line: #7fb0ff; --good: #63cf97; --fair: #e0b050; --poor: #ff8a80; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --rule: #bbb; --paper: #fff; --panel: #fff;
  --line: #1f5fbf; --good: #1a7f4b; --fair: #8a5a00; --poor: #b3261e; } .run { break-before: page; }
  figure, tr, .figures > div { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; } h2 { font-size: 1.35rem; margin: 3rem 0 .25rem; overflow-wrap:
  anywhere; }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; } p { margin: .4rem 0; } .soft { color: var(--soft); }
.grade { display: inline-block; padding: .05rem .55rem; border: 1px solid currentColor; border-radius: 1rem;
  font-size: .8rem; font-weight: 600; vertical-align: .15em; white-space: nowrap; }
.consistent, .measured { color: var(--line); } .partial, .template { color: var(--fair); }
.contradictory, .not-a-run, .error { color: var(--poor); } .warning { color: var(--fair); } .note { color:
  var(--soft); }
.label { border-left: 4px solid var(--fair); padding: .5rem .9rem; background: var(--panel); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1px; margin: .5rem 0; }
.figures > div { padding: .55rem .75rem; box-shadow: 0 0 0 1px var(--rule); }
.figures dt { color: var(--soft); font-size: .82rem; }
.figures dd { margin: 0; font-weight: 600; }
figure { margin: .5rem 0; } figcaption { color: var(--soft); font-size: .85rem; }
svg.plot { width: 100%; max-width: 44rem; height: auto; display: block; } svg text { fill: var(--soft); font-size:
  12px; }
svg .label { fill: var(--ink); font-size: 12.5px; } svg .grid { stroke: var(--rule); fill: none; stroke-width: 1; }
svg .axis { stroke: var(--soft); fill: none; stroke-width: 1; } svg .dot { fill: var(--line); }
svg .line { stroke: var(--line); fill: none; stroke-width: 1.6; stroke-linejoin: round; }
svg .whisker { stroke: var(--line); stroke-width: 1.4; fill: none; } svg.interval { width: 10rem; height: .9rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin: .4rem 0; }
th, td { text-align: left; padding: .28rem .6rem .28rem 0; border-bottom: 1px solid var(--rule); vertical-align:
  top; }
th { color: var(--soft); font-weight: 500; } .right { text-align: right; padding-right: 1.2rem; }
td.value { overflow-wrap: anywhere; } code, .hash { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  font-size: .8rem; } .hash { overflow-wrap: anywhere; color: var(--soft); }
.groups { columns: 2 22rem; column-gap: 2rem; } .groups section { break-inside: avoid; margin-bottom: 1rem; }
.groups th { width: 45%; } .groups h4 { margin: 0 0 .2rem; font-size: .9rem; } .problems li { margin: .5rem 0; }
  ul.problems { padding-left:
  1.2rem; }
"""
