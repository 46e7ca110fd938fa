"""The style of the release page: one sheet, light and dark by the reader's preference, legible in print."""

STYLE = """
:root {
  color-scheme: light dark;
  --bg: #fbfbfa; --fg: #1d2125; --muted: #5d666f; --card: #fff; --edge: #dfe2e5;
  --good: #1a7f4b; --bad: #b3261e; --warn: #8a5a00;
  --c0: #6b7280; --c1: #2563eb; --c2: #b45309; --c3: #15803d; --c4: #9333ea; --c5: #be185d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #14171a; --fg: #e6e8ea; --muted: #9aa3ac; --card: #1c2024; --edge: #343a40;
    --good: #5dd39e; --bad: #ff8a80; --warn: #f4bf4f;
    --c0: #9ca3af; --c1: #7aa7ff; --c2: #f0a45d; --c3: #6bcf8e; --c4: #c79bff; --c5: #ff8fc0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.6rem; margin: 0 0 4px; }
h2 { font-size: 1.15rem; margin: 36px 0 8px; }
p { margin: 4px 0 12px; }
code { font-size: .86em; overflow-wrap: anywhere; }
td code { white-space: nowrap; }
ul { padding-left: 20px; }
.muted { color: var(--muted); }
.verdict { border: 1px solid var(--edge); border-left: 8px solid; border-radius: 8px; background: var(--card);
  padding: 14px 18px; margin: 18px 0; }
.verdict strong { font-size: 1.3rem; }
.promote { border-left-color: var(--good); }
.reject { border-left-color: var(--bad); }
.review, .none { border-left-color: var(--warn); }
.wide { overflow-x: auto; border: 1px solid var(--edge); border-radius: 8px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: 7px 12px; border-bottom: 1px solid var(--edge); text-align: left; vertical-align: top; }
tr:last-child td, tbody tr:last-child th { border-bottom: 0; }
th[scope=row] { font-weight: 600; }
th.n, td.n { text-align: right; }
@media (max-width: 700px) { .wide table { min-width: 660px; } }
.ok { color: var(--good); } .no { color: var(--bad); } .maybe { color: var(--warn); }
.plots { display: grid; gap: 16px; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
figure { margin: 0; padding: 12px; border: 1px solid var(--edge); border-radius: 8px; background: var(--card); }
figcaption { font-weight: 600; margin-bottom: 6px; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--fg); font-size: 14px; }
svg text.muted { fill: var(--muted); font-size: 13px; }
.grid { stroke: var(--edge); } .axis { stroke: var(--fg); }
.line { stroke: var(--c); } .dot { fill: var(--c); }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); }
.s3 { --c: var(--c3); } .s4 { --c: var(--c4); } .s5 { --c: var(--c5); }
@media print { body { background: #fff; } .wide, figure, .verdict { break-inside: avoid; } }
"""
