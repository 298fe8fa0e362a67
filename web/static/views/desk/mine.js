/** What lies on the user's desk: slips for what is held, and lines for what is put aside, lost or done. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { guard } from '../../lib/lit-html/directives/guard.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { now } from '../../now.js';
import { span, when } from '../../parts.js';
import { clock } from '../../words.js';
import { summary } from './details.js';
import { edge, keptBecause, wanted } from './sheet.js';
import { hint } from './tray.js';
import { letGo } from './words.js';

const shown = 8; // of today's closed work

/** Whether the user has put a row aside for now. */
export const isLater = ({ work: { later_until: until }, lost }) => !lost && Boolean(until) && Date.parse(until) > now();

/**
 * rows by what has become of them: {held, later, lost, going}. entry(row): the outbox's.
 */
export function sorted(rows, entry) {
  const out = { held: [], later: [], lost: [], going: [] };
  for (const row of rows) out[row.lost ? 'lost' : entry(row) ? 'going' : isLater(row) ? 'later' : 'held'].push(row);
  out.later.sort((a, b) => Date.parse(a.work.later_until) - Date.parse(b.work.later_until));
  return out;
}

/** view: {known: whether the pipeline was read, opened, many, item(row), left(row), task(row), entry(row), title(work), told, holds, recent, at}. */
export function mine({ held, later, lost, going }, view, acts) {
  const label = (row, before) => (row.work.task === before?.work.task ? '' : view.task(row)?.title || row.work.task);
  const unread = !view.known && !going.length; // on a phone the sheet would push it down
  return html`<div class="mine ${unread ? 'unread' : ''}">
    <section aria-labelledby="pipeline-title"><div class="head"><h2 id="pipeline-title" tabindex="-1">${t`On my desk`} <span id="held" class="count">${view.holds || ''}</span></h2>
      <p id="told" class="small soft" role="status" dir="auto" title=${view.told}>${view.told}</p></div>
      <ul id="coming">${view.coming}</ul>
      <ul class="pile ${view.many ? 'many' : ''}">${repeat(held, (row) => row.key, (row) => slip(row, label(row, held[held.indexOf(row) - 1]), view, acts))}</ul></section>
    ${later.length ? part('later', t`Later`, later.length, repeat(later, (row) => row.key, (row) => guard([row.revision, row === view.opened, view.title(row.work)], () => line(row, view, html`<span class="soft">${
      clock(row.work.later_until)}</span>`, acts)))) : nothing}
    ${lost.length ? part('lost', t`Lost`, lost.length, repeat(lost, (row) => row.key, (row) => line(row, view, html`<span class="soft" title=${row.lost.why}>${
      row.lost.again ? html`<button class="again plain" type="button" aria-disabled=${row.claiming ? 'true' : nothing} aria-label=${t`Claim ${view.title(row.work)} again`}
        @click=${() => acts.claim(row)}>${row.claiming ? t`Claiming …` : t`Claim`}</button>` : nothing}<button class="dismiss plain" type="button" aria-label=${t`Put ${view.title(row.work)} away`}
        @click=${() => acts.dismiss(row)}>${t`Put away`}</button></span>`, acts))) : nothing}
    ${going.length || view.recent.length ? part('done', t`Done##today`, Math.max(view.done, view.recent.length) + going.length, html`${
      repeat(going, (row) => row.key, (row) => leaving(row, view, acts))}`, html`<ul id="recent">${closed(view.recent)}</ul>`) : nothing}
  </div>`;
}

const part = (id, title, n, lines, more = nothing) => html`<section aria-labelledby="${id}-title"><h2 id="${id}-title" class="minor">${title} <span class="count">${n}</span></h2><ul id=${id}>${lines}</ul>${more}</section>`;

/** What is held. */
function slip(row, label, view, acts) {
  const left = view.left(row);
  const item = view.item(row);
  const end = edge(row, left);
  const open = row === view.opened;
  const rest = end ? end.left > 0 ? span(end.left) : t`late` : '';
  return guard([row.revision, open, label, rest, end?.time, item.title, summary(item)], () => html`<li id=${row.key} class="work ${open ? 'open' : 'compact'}" aria-label=${item.title}>
    ${label ? html`<p class="pile-of small soft of" dir="auto">${label}</p>` : nothing}
    <div class="slip" aria-current=${open ? 'true' : nothing} data-time=${end?.time ?? 'none'}><strong dir="auto"><button type="button" class="key" aria-expanded=${open} @click=${() => acts.open(row)}>${item.title}</button></strong>
      <span class="time small rest">${rest}</span><small class="summary" dir="auto">${row.error || summary(item)}&nbsp;</small></div></li>`);
}

/** What is put aside, or lost. */
const line = (row, view, end, acts) => html`<li id=${row.key} class="work line ${row === view.opened ? 'open' : ''}" aria-label=${view.title(row.work)}>
  <span dir="auto"><button type="button" class="key" aria-expanded=${row === view.opened} @click=${() => acts.open(row)}>${view.title(row.work)}</button></span>${end}</li>`;

/** What was let go of just now, and can be undone. */
function leaving(row, view, acts) {
  const entry = view.entry(row);
  const { state, elsewhere, next } = entry;
  const title = view.title(row.work);
  const seconds = Math.max(0, Math.ceil((entry.due - view.at) / 1000));
  const what = {
    sending: '',
    kept: keptBecause(entry),
    waiting: elsewhere ? t`In another tab.` : next ? t`Then the next is asked for.` : '',
  }[state];
  return guard([entry, state, entry.busy, seconds, title], () => html`<li id=${row.key} class="work line going" aria-label=${title}>
    <p><b dir="auto">${title}</b>: <span class="became">${letGo(wanted(entry))}.</span> <span class="quiet">${what}</span></p>
    ${state === 'waiting' ? html`<span class="acts">
      ${next ? html`<button class="now plain" type="button" @click=${() => acts.now(row)}>${t`Send now`}</button>` : nothing}
      <button class="undo" type="button" aria-keyshortcuts="u" aria-label=${t`Undo: ${title}`} @click=${() => acts.undo(row)}>${t`Undo`}
        <span class="count">${seconds}</span>${hint('u')}</button></span>` : nothing}
  </li>`);
}

/** Today's closed work. */
const closed = (all) => html`${repeat(all.slice(0, shown), (w) => w.id, (w) => html`<li class="line recent"><span dir="auto">${w.title ?? w.item}</span>
  <span class="soft" title=${letGo(w)}>${w.state === 'completed' ? nothing : html`<span class="became">${letGo(w)}</span> · `}${when(w.closed_at)}</span></li>`)}
  ${all.length > shown ? html`<li class="line soft small">${t`and ${all.length - shown} before.`}</li>` : nothing}`;
