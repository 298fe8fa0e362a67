/** A row of the pipeline: a line, the open item, about to be closed, or lost. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { now } from '../../now.js';
import { when } from '../../parts.js';
import { fully, remaining, states } from '../../words.js';
import { details, summary } from './details.js';
import { afterHours, presets } from './presets.js';
import { becomes, held, keptUntil, letGo } from './words.js';

/** The shortcut of a button, shown in it. */
export const hint = (key) => html`<kbd aria-hidden="true">${key}</kbd>`;

/**
 * row as an element of the list: a line, and behind it the item itself if it is open. view: {open, task, left, age, item}:
 * whether it is the open one; its task if that is known; ms of its lease that are left (null: it has none), ms that it has been
 * held; and the item as shown() gives it. acts: {open(row), letGo(row, disposition, {next}), extend, fill, earlier, claim, dismiss}.
 */
export function card(row, view, acts) {
  const { work, lost } = row;
  const { open, task, left, item } = view;
  const soon = row.ends(left);
  const rest = left === null || lost ? nothing : html`<span class="rest ${soon ? 'soon' : ''}">${remaining(Math.min(left, row.lease))}</span>`;
  return html`<li id=${row.key} class="work ${open ? 'open' : 'compact'}" aria-label=${item.title}>
    <div class="line">
      <h3 dir="auto"><button type="button" class="key" aria-expanded=${open} @click=${() => acts.open(row)}>${item.title}</button></h3>
      ${open ? nothing : html`<p class="quiet summary" dir="auto">${summary(item)}</p>`}
      <p class="quiet about"><span class="of" dir="auto">${task?.title || work.task}</span> ${open ? nothing : html`${due(work)} ${rest}`}</p>
      ${open ? nothing : html`${lost || row.error ? said(row) : nothing}${lost ? again(row, acts) : nothing}`}
    </div>
    ${open ? pane(row, view, soon, acts) : nothing}
  </li>`;
}

/** The open item. */
function pane(row, { task, left, age, item }, soon, acts) {
  const { work, lost } = row;
  const key = item.title.includes(work.item) ? nothing : html`<bdi>${work.item}</bdi> · `;
  return html`<div class="pane card">
    <header>
      <div><p class="headline" dir="auto" aria-hidden="true">${item.title}</p>
        <p class="quiet since">${key}${lost ? nothing : t`held for ${html`<time datetime=${work.assigned_at} title=${fully(work.assigned_at)}>${held(age)}</time>`}`}<span class="which">${which(work, task)}</span> ${due(work)}</p></div>
      ${item.link ? html`<a class="button open-link" href=${item.link} target="_blank" rel="noopener noreferrer">${t`Open`} <span aria-hidden="true">↗</span></a>` : nothing}
    </header>
    ${left === null || lost ? nothing : lease(row, { left, soon, title: item.title }, acts)}
    ${said(row)}
    ${leftOut(row, acts)}
    ${details(row, item.fields)}
    ${earlier(row, acts)}
    ${note(row, item.title)}
    ${lost ? again(row, acts) : done(row, item.title, acts)}
  </div>`;
}

/** Why the work is lost, and errors. */
const said = ({ lost, note, error }) => html`
  <p class="why" role="status" dir="auto">${lost ? `${lost.why}${note.trim() ? ` ${t`Your note is kept.`}` : ''}` : ''}</p>
  <p class="error" role="alert" dir="auto">${error}</p>`;

/** What stands in place of details that the server left out. */
function leftOut(row, acts) {
  if (!row.work.details_left_out || row.full) return nothing;
  return html`<p class="left-out" role="status">${row.asked
    ? t`Its details can’t be shown: they are too large.`
    : html`${t`Its details are left out, since they are large.`} <button type="button" class="plain" @click=${() => acts.fill(row)}>${t`Show them`}</button>`}</p>`;
}

/** When it should be done, where that is known. */
function due({ deadline }) {
  if (!deadline) return nothing;
  return Date.parse(deadline) <= now()
    ? html`<span class="badge due" data-kind="warn">${t`late since ${when(deadline)}`}</span>`
    : html`<span class="due">${t`due ${when(deadline)}`}</span>`;
}

/** Which attempt and which place it is, where there are several. */
function which({ attempt, slot }, task) {
  const of = task?.slots > 1 && slot <= task.slots ? task.slots : 0;
  const place = of ? t`place ${slot} of ${of}` : slot > 1 ? t`place ${slot}` : '';
  return [attempt > 1 ? t`attempt ${attempt}` : '', place].map((text) => text && ` · ${text}`).join('');
}

function lease(row, { left, soon, title }, acts) {
  const { lease_expires_at: until } = row.work;
  const kept = row.kept === until && !soon;
  return html`<div class="lease ${soon ? 'soon' : ''}">
    <p><span class="left" title=${fully(until)}>${remaining(Math.min(left, row.lease))}</span>
      <span class="warning" role="status">${soon ? t`Soon it goes back to the queue: keep it, or let go of it.` : kept ? keptUntil(until) : ''}</span></p>
    <button class="keep ${soon ? 'primary' : ''}" type="button" aria-label=${t`Keep ${title}`} aria-keyshortcuts="e"
      @click=${() => acts.extend(row)}>${t`Keep`}${hint('e')}</button>
  </div>`;
}

/** How others let go of the item before. It is read when it is opened. */
function earlier(row, acts) {
  if (!row.work.again) return nothing;
  const noted = ({ note, error }) => [note, error].filter(Boolean).map((text) => html` <q dir="auto">${text}</q>`);
  return html`<details class="earlier" @toggle=${(e) => e.target.open && acts.earlier(row)}>
    <summary>${t`Earlier`}</summary>
    ${row.earlier?.length === 0 ? html`<p class="quiet">${t`Managers alone see how it was let go of before.`}</p>` : nothing}
    <ul>${row.earlier?.map((e) => html`<li>${when(e.closed_at)} · <bdi>${e.user}</bdi> · ${states[e.state]}${noted(e)}</li>`)}</ul>
  </details>`;
}

function note(row, title) {
  const cut = row.excess;
  // `toggle` comes later, and a redraw until then would undo it.
  const unfold = (e) => { row.noting = !e.currentTarget.parentElement.open; };
  return html`<details .open=${live(row.noting)} @toggle=${(e) => { row.noting = e.target.open; }}>
    <summary @click=${unfold}>${t`Note`}${hint('o')}</summary>
    <textarea rows="2" dir="auto" aria-label=${t`Note on ${title}`} aria-invalid=${cut ? 'true' : nothing}
      aria-describedby="${row.key}-cut" .value=${live(row.note)} @input=${(e) => row.write(e.target.value)}></textarea>
    <p id="${row.key}-cut" class="error">${cut ? `${tooLong(cut)}.` : ''}</p>
  </details>`;
}

/** The message for a note that is too long by so many characters. */
export const tooLong = (cut) => t`The note is too long by about ${cut} characters`;

function done(row, title, acts) {
  const never = (e) => {
    if (row.sure) return acts.letGo(row, { outcome: 'never' });
    row.set({ sure: true });
    e.currentTarget.focus(); // not every browser focuses a clicked button, and losing the focus cancels the question
  };
  return html`<div class="done">
    <button class="complete primary" type="button" aria-keyshortcuts="c"
      @click=${() => acts.letGo(row, { outcome: 'complete' })}>${t`Complete`}${hint('c')}</button>
    <button class="next" type="button" aria-keyshortcuts="n"
      @click=${() => acts.letGo(row, { outcome: 'complete' }, { next: true })}>${t`Complete and next`}${hint('n')}</button>
    ${menu(row, title, ['return', t`Return`, 'r'], () => html`<p class="label">${t`Return ${title}`}</p>
      ${presets.map((p) => html`<button type="button" data-return=${p.id} aria-label=${t`Return ${p.text}`}
        @click=${() => back(row, p.after(), acts)}>${p.text}</button>`)}
      <button type="button" data-return="exact" aria-expanded=${row.exact} @click=${() => row.set({ exact: !row.exact })}>${t`other …`}</button>
      ${row.exact ? exact(row, acts) : nothing}
      <label><input class="others" type="checkbox" .checked=${live(row.others)}
        @change=${(e) => { row.others = e.target.checked; }}> ${t`to others only, not to me again`}</label>`)}
    ${menu(row, title, ['more', t`More`, ''], () => html`<button class="never ${row.sure ? 'sure' : ''}" type="button" aria-keyshortcuts="x" @click=${never}
      @blur=${() => { if (row.sure) row.set({ sure: false }); }}>${row.sure ? t`Really remove it?` : t`Remove from queue`}${hint('x')}</button>`)}
  </div>`;
}

/** A button with a menu behind it, which Escape, a click elsewhere and leaving it close. */
function menu(row, title, [name, text, key], choices) {
  const open = row.menu === name;
  const close = () => row.set({ menu: '' });
  const turn = ({ currentTarget: button }) => {
    row.set({ menu: open ? '' : name });
    requestAnimationFrame(() => button.nextElementSibling?.scrollIntoView({ block: 'nearest' })); // after it is drawn
  };
  const left = (e) => { if (open && e.relatedTarget && !e.currentTarget.contains(e.relatedTarget)) close(); };
  const escape = (e) => {
    if (e.key !== 'Escape' || !open) return;
    e.stopPropagation();
    close();
    e.currentTarget.firstElementChild.focus();
  };
  return html`<div class="menu" data-menu=${name} @focusout=${left} @keydown=${escape}>
    <button type="button" aria-expanded=${open} aria-controls=${open ? `${row.key}-${name}` : nothing} aria-keyshortcuts=${key || nothing}
      @click=${turn}>${text} <span aria-hidden="true">▾</span>${key ? hint(key) : nothing}</button>
    ${open ? html`<div class="choices-of ${name}" id="${row.key}-${name}" role="group" aria-label="${text} ${title}">${choices()}</div>` : nothing}
  </div>`;
}

/** A menu that was opened just now, and has no room below its button, stands above it. If that has none either, the page scrolls. */
export function fitMenu(menu) {
  if (!menu || menu.seen) return;
  menu.seen = true;
  const { bottom, height } = menu.getBoundingClientRect();
  menu.toggleAttribute('data-up', bottom > window.innerHeight && menu.previousElementSibling.getBoundingClientRect().top > height);
}

const back = (row, after, acts) => acts.letGo(row, { outcome: 'return', after, to: row.others ? 'others' : 'all' });

function exact(row, acts) {
  const submit = (e) => {
    e.preventDefault();
    const after = afterHours(row.hours);
    if (after !== undefined) return back(row, after, acts);
    row.set({ error: t`It can be returned for 0 to 72 hours: type a number such as 1.5.` });
    e.target.querySelector('input').focus();
  };
  return html`<form class="exact" novalidate @submit=${submit}>
    <label>${t`for ${html`<input inputmode="decimal" size="4" aria-label=${t`Hours, from 0 to 72`} .value=${live(row.hours)}
      @input=${(e) => { row.hours = e.target.value; }}>`} hours`}</label>
    <button type="submit" aria-label=${t`Return for the hours typed`}>${t`Return`}</button>
  </form>`;
}

function again(row, acts) {
  return html`<div class="lost">
    ${row.lost.again ? html`<button class="again primary" type="button" aria-disabled=${row.claiming}
      @click=${() => acts.claim(row)}>${row.claiming ? t`Claiming …` : t`Claim it again`}</button>` : nothing}
    <button class="dismiss" type="button" @click=${() => acts.dismiss(row)}>${t`Put away`}</button>
  </div>`;
}

/** Why an entry of the outbox is not sent yet. */
export const keptBecause = ({ busy }) => (busy
  ? t`The server can’t take it now; it is sent as soon as it can be.`
  : t`The server can’t be reached now; it is sent as soon as it can be.`);

/** The line for work that was let go of. view: {seconds, title}: until it is sent; what its item is called. */
export function line(row, entry, { seconds, title }, acts) {
  const { state, elsewhere, next } = entry;
  const what = {
    sending: '',
    kept: keptBecause(entry),
    waiting: elsewhere ? t`In another tab.` : next ? t`Then the next is asked for.` : '',
  }[state];
  return html`<li id=${row.key} class="work going" aria-label=${title}>
    <p><b dir="auto">${title}</b>: <span class="became">${letGo(wanted(entry))}.</span> <span class="quiet">${what}</span></p>
    ${state === 'waiting' ? html`<span class="toolbar">
      ${next ? html`<button class="now" type="button" @click=${() => acts.now(row)}>${t`Send now`}</button>` : nothing}
      <button class="undo" type="button" aria-keyshortcuts="u" aria-label=${t`Undo: ${title}`} @click=${() => acts.undo(row)}>${t`Undo`}
        <span class="count">${seconds}</span>${hint('u')}</button></span>` : nothing}
  </li>`;
}

const hoursOf = /^(\d+)([hs])$/;

/** The work of an entry as it will be, as far as that is known. */
export function wanted({ disposition: { outcome, after, to }, due }) {
  const [, n, unit] = after?.match(hoursOf) ?? [];
  return {
    state: becomes[outcome],
    available_at: n && now() + due - Date.now() + n * (unit === 'h' ? 3_600_000 : 1000),
    to_others: to === 'others',
  };
}
