/** An item's details: any columns, with long texts folded. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { exactly, label, value } from '../../words.js';

const isLong = (text) => text.length > 240 || text.split('\n').length > 6;

/** row's details as a list of terms. decimals: a Map by column. */
export function details(row, decimals) {
  const columns = Object.entries(row.work.details ?? {});
  if (row.work.note) columns.push(['note', row.work.note]);
  if (columns.length === 0) return nothing;
  return html`<dl>${columns.map(([column, v]) => detail(row, column, value(v, decimals?.get(column)), exactly(v)))}</dl>`;
}

function detail(row, column, text, exact) {
  const long = isLong(text);
  const whole = row.whole.has(column);
  const unfold = () => {
    if (!row.whole.delete(column)) row.whole.add(column);
    row.set({});
  };
  const name = label(column);
  const wide = long || text.length > 60 ? 'long' : '';
  return html`<div class=${wide}><dt dir="auto">${name}</dt><dd dir="auto" title=${exact ?? nothing}>${long
    ? html`<span class=${whole ? '' : 'folded'}>${text}</span><button type="button" class="plain" aria-expanded=${whole}
        aria-label="${whole ? 'Less' : 'More'} of ${name}" @click=${unfold}>${whole ? 'less' : 'more'}</button>`
    : text}</dd></div>`;
}

/** The first few of an item's details, in one line. */
export function summary({ details: all }, decimals) {
  const first = Object.entries(all ?? {}).slice(0, 4);
  return first.map(([column, v]) => value(v, decimals?.get(column)).slice(0, 60)).join(' · ');
}
