"""The style and the script of an explanation's page."""

STYLE = """
:root {
  --ground: #fcfcfb; --text: #1c1d1f; --quiet: #5d6166; --line: #dcddde; --shade: #f1f1ef;
  --accent: #1f6f63; --track: #d9dcda; --focus: #1558c0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #151618; --text: #e6e6e3; --quiet: #9da2a8; --line: #34373b; --shade: #1d1f22;
    --accent: #58b8a6; --track: #3a3e42; --focus: #7fb0ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.5rem; max-width: 96rem; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
}
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
h3 { font-size: .85rem; margin: 1rem 0 .3rem; color: var(--quiet); font-weight: 600; }
p { margin: .2rem 0 .8rem; color: var(--quiet); }
code, pre { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1px; margin: 1.2rem 0 0; padding: 0;
  list-style: none; background: var(--line); border: 1px solid var(--line);
}
.tiles li { background: var(--ground); padding: .7rem .9rem; display: flex; flex-direction: column; }
.tiles strong { font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; } #places { width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; vertical-align: top; }
thead th { border-bottom: 1px solid var(--text); font-weight: 600; white-space: nowrap; }
tr.place > td, section > table > tbody > tr > td, table.plainly > tbody > tr > td {
  border-bottom: 1px solid var(--line);
}
tbody tr.place:hover { background: var(--shade); }
td.text { min-width: 11rem; } td.text:first-child { min-width: 0; } td code { overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th button, td button.open {
  font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; white-space: nowrap;
}
th button::after { content: "\\2195"; color: var(--quiet); padding-left: .3em; }
th[aria-sort=ascending] button::after { content: "\\2191"; color: var(--text); }
th[aria-sort=descending] button::after { content: "\\2193"; color: var(--text); }
td button.open { font-weight: 600; }
td button.open::before { content: "\\25B8"; display: inline-block; width: 1.1em; color: var(--quiet); }
td button.open[aria-expanded=true]::before { content: "\\25BE"; }
button:focus-visible, summary:focus-visible, pre:focus-visible { outline: 2px solid var(--focus); outline-offset: 2px; }
.bar { display: inline-block; width: 5rem; height: .5rem; background: var(--track); vertical-align: middle; }
.bar i { display: block; height: 100%; background: var(--accent); }
.share { display: inline-block; min-width: 6em; padding-left: .6em; }
.detail > td { background: var(--shade); padding: .2rem 1.1rem 1rem; border-bottom: 1px solid var(--line); }
.detail > td > div { width: 0; min-width: 100%; } /* long lines scroll, they do not widen the table */
.bytes .bar { width: 22rem; max-width: 50vw; } .bytes th { font-weight: 400; }
details { margin: .25rem 0; } summary { cursor: pointer; }
pre { margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
details pre {
  white-space: pre; overflow: auto; max-height: 32rem; padding: .7rem .9rem; background: var(--ground);
  border: 1px solid var(--line);
}
.plain { padding: 0; list-style: none; } .plain li { padding: .4rem 0; border-bottom: 1px solid var(--line); }
footer { margin-top: 2.5rem; color: var(--quiet); font-size: .85rem; max-width: 70ch; }
"""

SCRIPT = """
const table = document.getElementById("places");
if (table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const numeric = head.classList.contains("number");
    const first = numeric ? "descending" : "ascending";
    const second = numeric ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    const key = body => body.rows[0].cells[column].dataset.key;
    const compare = (a, b) => numeric ? key(a) - key(b) : key(a).localeCompare(key(b));
    heads.forEach(other => other.setAttribute("aria-sort", other === head ? order : "none"));
    table.append(...[...table.tBodies].sort((a, b) => sign * compare(a, b)));
  }));
  table.addEventListener("click", event => {
    const button = event.target.closest("button.open");
    if (!button) return;
    const detail = document.getElementById(button.getAttribute("aria-controls"));
    detail.hidden = !detail.hidden;
    button.setAttribute("aria-expanded", String(!detail.hidden));
    if (!detail.hidden) detail.querySelectorAll("details.ir, details.cuda").forEach(part => part.open = true);
  });
}
"""
