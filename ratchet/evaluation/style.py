"""The style of the release page: one sheet, light and dark by the reader's preference, a telephone's width, and paper.

The radio buttons before the articles choose the language: the article of the other one is not displayed.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --bg: #fbfbfa; --fg: #1d2125; --muted: #565f68; --card: #fff; --edge: #dfe2e5; --soft: #f1f3f4;
  --good: #17703f; --bad: #b3261e; --warn: #8a5a00; --link: #1d4ed8;
  --c0: #6b7280; --c1: #2563eb; --c2: #b45309; --c3: #15803d; --c4: #9333ea; --c5: #be185d;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --bg: #14171a; --fg: #e6e8ea; --muted: #a3acb5; --card: #1c2024; --edge: #343a40; --soft: #23282d;
    --good: #5dd39e; --bad: #ff8a80; --warn: #f4bf4f; --link: #9dbbff;
    --c0: #9ca3af; --c1: #7aa7ff; --c2: #f0a45d; --c3: #6bcf8e; --c4: #c79bff; --c5: #ff8fc0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 20px 16px 64px; position: relative; }
main > input { position: absolute; opacity: 0; }
main > label { float: right; margin-left: 6px; padding: 2px 12px; border: 1px solid var(--edge); border-radius: 999px;
  font-size: .85rem; cursor: pointer; color: var(--muted); background: var(--card); }
main > input:checked + label { color: var(--fg); border-color: var(--fg); font-weight: 600; }
main > input:focus-visible + label { outline: 3px solid var(--link); outline-offset: 2px; }
#language-en:checked ~ article[lang=es], #language-es:checked ~ article[lang=en] { display: none; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 1.2rem; margin: 40px 0 8px; }
h3 { font-size: 1rem; margin: 20px 0 8px; }
p { margin: 4px 0 12px; }
code { font-size: .86em; overflow-wrap: anywhere; }
td code { white-space: nowrap; }
ul { padding-left: 20px; margin: 4px 0 12px; }
.muted { color: var(--muted); font-size: .92rem; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .92rem; }
a { color: var(--link); }
.tag { display: inline-block; padding: 0 8px; border: 1px solid; border-radius: 999px; font-size: .8rem;
  font-weight: 600; line-height: 1.5; white-space: nowrap; }
.ok { color: var(--good); } .no { color: var(--bad); } .maybe { color: var(--warn); } .told { color: var(--fg); }
.verdict { border: 1px solid var(--edge); border-left: 8px solid; border-radius: 8px; background: var(--card);
  padding: 14px 18px; margin: 18px 0; }
.verdict > strong { font-size: 1.5rem; line-height: 1.3; }
.promote { border-left-color: var(--good); }
.reject { border-left-color: var(--bad); }
.review, .none { border-left-color: var(--warn); }
dl, dd { margin: 0; }
.tiles { display: grid; gap: 8px; margin: 12px 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 180px), 1fr)); }
.tile { background: var(--soft); border-radius: 8px; padding: 8px 12px; }
.tile dt { font-size: .85rem; color: var(--muted); }
.tile .big { font-size: 1.15rem; font-weight: 650; line-height: 1.35; }
.tile .words { font-weight: 600; line-height: 1.35; }
.wide { overflow-x: auto; margin: 8px 0; border: 1px solid var(--edge); border-radius: 8px; background: var(--card); }
.wide:focus-visible { outline: 3px solid var(--link); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: 6px 12px; border-bottom: 1px solid var(--edge); text-align: left; vertical-align: top; }
tbody tr:last-child > * { border-bottom: 0; }
thead th { font-weight: 600; background: var(--soft); white-space: nowrap; }
thead td { background: var(--soft); }
th[scope=row] { font-weight: 600; }
th.n, td.n { text-align: right; }
.plots { display: grid; gap: 16px; align-items: start; margin-bottom: 16px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); }
figure { margin: 0; padding: 12px; border: 1px solid var(--edge); border-radius: 8px; background: var(--card); }
figcaption { font-weight: 600; margin-bottom: 6px; }
figure ul, figure p { margin: 8px 0 0; }
svg { width: 100%; height: auto; display: block; max-width: 560px; }
svg text { fill: var(--fg); font-size: 13px; paint-order: stroke; stroke: var(--card); stroke-width: 5px; }
svg text.muted { fill: var(--muted); font-size: 13px; }
svg text.strong { font-weight: 600; }
.grid { stroke: var(--edge); } .axis { stroke: var(--fg); }
.mark { stroke: var(--warn); stroke-width: 1.5; stroke-dasharray: 4 3; }
.line { stroke: var(--c); stroke-width: 2.2; fill: none; } .bar { stroke: var(--c); stroke-width: 4; }
.dot { fill: var(--c); stroke: var(--card); stroke-width: 1.5; }
.ring { fill: none; stroke: var(--c); stroke-width: 2; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); }
.s3 { --c: var(--c3); } .s4 { --c: var(--c4); } .s5 { --c: var(--c5); }
.line.s1 { stroke-dasharray: 10 3; } .line.s2 { stroke-dasharray: 3 3; } .line.s3 { stroke-dasharray: 12 3 2 3; }
.line.s4 { stroke-dasharray: 6 6; } .line.s5 { stroke-dasharray: 1 4; }
.rules { list-style: none; padding: 0; border: 1px solid var(--edge); border-radius: 8px; background: var(--card); }
.rules > li { display: grid; gap: 4px 16px; padding: 10px 14px; border-bottom: 1px solid var(--edge);
  grid-template-columns: 150px minmax(0, 5fr) minmax(0, 4fr); }
.rules > li:last-child { border-bottom: 0; }
.rules p { margin: 0; }
.rules dl > div { display: flex; gap: 8px; font-size: .88rem; }
.rules dt { color: var(--muted); min-width: 8em; }
.rules dd { overflow-wrap: anywhere; }
.tree ul { list-style: none; margin: 4px 0; padding-left: 18px; border-left: 2px solid var(--edge); }
.tree > ul { padding-left: 0; border-left: 0; }
.tree li { margin: 4px 0; }
summary { cursor: pointer; margin: 10px 0; }
@media (max-width: 700px) {
  .rules > li { grid-template-columns: minmax(0, 1fr); }
  .wide table { width: max-content; min-width: 100%; }
  .wide td { max-width: 15rem; }
  .wide.two table { width: 100%; }
  .wide th[scope=row] { position: sticky; left: 0; background: var(--card); max-width: 42vw; }
  h1 { font-size: 1.35rem; clear: both; padding-top: 8px; }
}
@page { size: A4; margin: 14mm 12mm; }
@media print {
  :root { color-scheme: light; --bg: #fff; }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  main > label, nav { display: none; }
  .wide { overflow: visible; }
  table { font-size: 8.5pt; }
  th, td { padding: 3px 6px; }
  td code { white-space: normal; }
  .plots { grid-template-columns: 1fr 1fr; gap: 10px; }
  .rules > li { grid-template-columns: 105px minmax(0, 1fr) minmax(0, 1fr); padding: 6px 10px; gap: 4px 8px; }
  .rules dt { min-width: 7em; }
  h2, h3, summary { break-after: avoid; }
  figure, .verdict, .rules > li, tr, .tile { break-inside: avoid; }
  thead { display: table-header-group; }
  details.screen { display: none; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
  .tile, thead th, thead td { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
