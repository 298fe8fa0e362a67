/** An item's details: those that are shown at once, and those on demand; long texts are folded. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { plural, t } from '../../lang.js';

const isLong = (text) => text.length > 240 || text.split('\n').length > 6;

/** row's details as lists of terms. fields: as shown() gives them. A folded value that stands out is not hidden. */
export function details(row, fields) {
  const { note } = row.work;
  const all = note ? [...fields, { column: '', label: t`Note`, text: note }] : fields;
  const folded = all.filter((f) => f.folded && !f.strong);
  const first = all.filter((f) => !folded.includes(f));
  const unfold = (e) => { row.more = !e.currentTarget.parentElement.open; }; // `toggle` comes later, and a redraw until then would undo it
  return html`${first.length ? list(row, first) : nothing}
    ${folded.length ? html`<details class="more" .open=${live(row.more)} @toggle=${(e) => { row.more = e.target.open; }}>
      <summary @click=${unfold}>${plural(folded.length, '{0} more detail', '{0} more details')}</summary>${list(row, folded)}</details>` : nothing}`;
}

const list = (row, fields) => html`<dl class="facts">${fields.map((f) => detail(row, f))}</dl>`;

function detail(row, { column, label: name, text, exact, strong, href, colour }) {
  const long = isLong(text);
  const whole = row.whole.has(column);
  const unfold = () => {
    if (!row.whole.delete(column)) row.whole.add(column);
    row.set({});
  };
  const kind = `${long || text.length > 60 ? 'whole' : text.length > 24 ? 'long' : ''} ${strong ? 'stands' : ''}`;
  return html`<div class=${kind} data-time=${strong ? 'fifth' : nothing}><dt dir="auto">${name}</dt><dd dir="auto" title=${exact ?? nothing}>${long
    ? html`<span class=${whole ? '' : 'folded'}>${text}</span><button type="button" class="plain" aria-expanded=${whole}
        aria-label=${whole ? t`Less of ${name}` : t`More of ${name}`} @click=${unfold}>${whole ? t`less` : t`more`}</button>`
    : href ? html`<a href=${href} target="_blank" rel="noopener noreferrer">${text}</a>`
      : colour ? html`<span class="tag" data-time=${{ good: 'ok', warn: 'half', bad: 'fifth', busy: 'now' }[colour] ?? 'none'}>${text}</span>` : text}</dd></div>`;
}

/** The first few of an item's details, in one line; those that stand out first. A figure says nothing without its name. */
export function summary({ fields, title }) {
  const some = fields.filter((f) => !f.folded && !title.includes(f.text) && f.yes !== false);
  const first = [...some.filter((f) => f.strong), ...some.filter((f) => !f.strong)].slice(0, 4);
  return first.map((f) => (f.yes ? f.label : f.strong || f.figure ? `${f.label}: ${f.text}` : f.text).slice(0, 60)).join(' · ');
}
