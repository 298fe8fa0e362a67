/** The item in hand: a sheet of paper with what it is, its time, what was written before, its facts, and how it may end. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { now } from '../../now.js';
import { face, icon, span, when } from '../../parts.js';
import { fully, remaining, states, value } from '../../words.js';
import { details } from './details.js';
import { afterHours, laters, presets } from './presets.js';
import { hint } from './tray.js';
import { becomes, held, keptUntil, milliseconds } from './words.js';

/** A time's state: how much of a span is left. */
export const timeOf = (left, whole) => (left === null ? 'none' : left > whole / 2 ? 'ok' : left > whole / 5 ? 'half' : 'fifth');

/** What ends first, lease or deadline: {left, whole, time} in ms; null if neither is there. left: of the lease. */
export function edge(row, left) {
  const { deadline, assigned_at: since } = row.work;
  const due = deadline ? Date.parse(deadline) - now() : null;
  const ends = [];
  if (left !== null && !row.lost) ends.push({ left, whole: row.lease, time: row.ends(left) ? 'fifth' : timeOf(left, row.lease) });
  if (due !== null) {
    const whole = Math.max(1, Date.parse(deadline) - Date.parse(since));
    ends.push({ left: Math.max(0, due), whole, time: due <= 0 ? 'fifth' : timeOf(due, whole) });
  }
  return ends.sort((a, b) => a.left - b.left)[0] ?? null;
}

/**
 * row's sheet. view: {task, left, age, item, then, later}: its task if that is known; ms of its lease that are left (null: it has none),
 * ms that it has been held; the item as shown() gives it; whether the next is asked for when it ends, and whether the user may put it aside.
 * acts: as desk.js has them.
 */
export function sheet(row, view, acts) {
  const { work, lost } = row;
  const { task, left, age, item } = view;
  const soon = row.ends(left);
  const end = edge(row, left);
  const key = item.title.includes(work.item) ? nothing : html`<bdi>${work.item}</bdi> · `;
  return html`<article class="sheet paper" aria-labelledby="item" data-time=${end?.time ?? 'none'} data-row=${row.key}>
    ${end ? html`<progress max="1" value=${Math.min(1, end.left / end.whole).toFixed(4)} aria-label=${t`The time that is left`} aria-valuetext=${remaining(end.left)}></progress>` : nothing}
    <header>
      <div class="bar"><p class="soft about" dir="auto">${task?.title || work.task}</p>
        ${item.link ? html`<a class="open-link" href=${item.link} target="_blank" rel="noopener noreferrer">${t`Open`} ${icon('external-link')}</a>` : nothing}</div>
      <h1 id="item" class="headline" tabindex="-1" dir="auto">${item.title}</h1>
      <p class="soft since">${key}${lost ? nothing : t`held for ${html`<time datetime=${work.assigned_at} title=${fully(work.assigned_at)}>${held(age)}</time>`}`}<span class="which">${which(work, task)}</span>${work.from ? html` · <span class="from">${t`completed before, and here once more`}</span>` : nothing}${
        work.later_until && Date.parse(work.later_until) > now() ? html` · <span class="put-off">${t`put aside until ${when(work.later_until)}`}</span>` : nothing}</p>
    </header>
    ${time(row, { left, soon, title: item.title }, acts)}
    ${said(row)}
    ${earlier(row, task)}
    ${leftOut(row, acts)}
    ${details(row, item.fields)}
    ${lost ? again(row, item.title, acts) : finish(row, view, acts)}
  </article>`;
}

/** When it is due, and until when it is the user's. */
function time(row, { left, soon, title }, acts) {
  const { deadline, assigned_at: since, lease_expires_at: until } = row.work;
  const leased = left !== null && !row.lost;
  if (!deadline && !leased) return nothing;
  const rest = deadline ? Date.parse(deadline) - now() : null;
  const state = rest === null ? 'none' : rest <= 0 ? 'fifth' : timeOf(rest, Date.parse(deadline) - Date.parse(since));
  const kept = row.kept === until && !soon;
  return html`<section class="due" data-time=${state} aria-label=${t`Time`}>
    ${deadline ? html`<p><b>${rest > 0 ? t`Due in ${span(rest)}` : t`Late for ${span(-rest)}`}</b><br><span class="soft">${when(deadline)}</span></p>` : nothing}
    ${leased ? html`<div class="lease num ${soon ? 'soon' : ''}" data-time=${soon ? 'fifth' : 'none'}>
      <p><span class="left time" title=${fully(until)}>${remaining(Math.min(left, row.lease))}</span>
        <span class="warning small" role="status">${soon ? t`Soon it goes back to the queue: keep it, or let go of it.` : kept ? keptUntil(until) : ''}</span></p>
      <button class="keep ${soon ? 'primary' : ''}" type="button" aria-label=${t`Keep ${title}`} aria-keyshortcuts="e" @click=${() => acts.extend(row)}>${t`Keep`}${hint('e')}</button></div>` : nothing}
  </section>`;
}

/** Why the work is lost, and errors. */
export const said = ({ lost, note, error }) => html`
  <p class="why" role="status" dir="auto">${lost ? `${lost.why}${note.trim() ? ` ${t`Your note is kept.`}` : ''}` : ''}</p>
  <p class="error" role="alert" dir="auto">${error}</p>`;

/** What stands in place of details that the server left out. */
function leftOut(row, acts) {
  if (!row.work.details_left_out || row.full) return nothing;
  return html`<p class="left-out" role="status">${row.asked
    ? t`Its details can’t be shown: they are too large.`
    : html`${t`Its details are left out, since they are large.`} <button type="button" class="plain" @click=${() => acts.fill(row)}>${t`Show them`}</button>`}</p>`;
}

/** Which attempt and which place it is, where there are several. */
function which({ attempt, slot }, task) {
  const of = task?.slots > 1 && slot <= task.slots ? task.slots : 0;
  const place = of ? t`place ${slot} of ${of}` : slot > 1 ? t`place ${slot}` : '';
  return [attempt > 1 ? t`attempt ${attempt}` : '', place].map((text) => text && ` · ${text}`).join('');
}

/** What others wrote when they let go of the item before; it is read as soon as the sheet is shown. */
function earlier(row, task) {
  if (!row.work.again && !row.work.from && !row.earlier?.length) return nothing;
  const some = row.earlier ?? [];
  const named = (code) => task?.outcomes?.find((o) => o.code === code)?.label ?? code;
  return html`<section class="earlier" aria-labelledby="notes">
    <h2 id="notes" class="minor">${t`What was written before`}</h2>
    ${row.earlier?.length === 0 ? html`<p class="soft small">${t`Managers alone see how it was let go of before.`}</p>` : nothing}
    ${row.earlier ? nothing : html`<p class="soft small">${t`One moment …`}</p>`}
    <ol>${some.map((e) => html`<li>${face(e.user)}<p class="small"><b><bdi>${e.user}</bdi></b> <span class="soft">${when(e.closed_at)} · ${e.code ? html`<bdi>${named(e.code)}</bdi>` : states[e.state]}</span></p>
      ${[e.note, e.error].filter(Boolean).map((text) => html`<blockquote dir="auto">${text}</blockquote>`)}</li>`)}</ol>
  </section>`;
}

/** The message for a note that is too long by so many characters. */
export const tooLong = (cut) => t`The note is too long by about ${cut} characters`;

/** The ways in which an item of a task may end, in order: [{code, label, does, note}]; without codes, as the API has it. */
export const endings = (task) => (task?.outcomes?.length
  ? task.outcomes.map((o) => ({ ...o, does: o.do === 'complete' ? t`Done` : o.do === 'never' ? t`Nobody gets it any more` : o.after && o.after !== '0s' ? t`Back in ${span(milliseconds(o.after))}` : t`Goes back` }))
  : [{ label: t`Complete`, does: t`It is done`, do: 'complete' }, { label: t`Remove from queue`, does: t`Nobody gets it any more`, do: 'never' }]);

/** Ends an item in one of these ways; asks first before it is gone for good, and for what the task wants written. */
export function endAs(row, way, task, acts, button) {
  if (way.note === 'must' && !row.note.trim()) {
    row.set({ error: t`“${way.label}” needs a note: say why.` });
    document.getElementById('note')?.focus();
    return;
  }
  const result = typed(row, task);
  if (result?.error) {
    row.set({ error: result.error });
    return;
  }
  if (way.do === 'never' && !way.code && !row.sure) {
    row.set({ sure: true });
    button?.focus(); // not every browser focuses a clicked button, and losing the focus cancels the question
    return;
  }
  const disposition = way.code ? { outcome: way.do, code: way.code } : { outcome: way.do };
  if (way.do === 'return' && !way.code) Object.assign(disposition, { after: way.after ?? '0s', to: way.to ?? 'all' });
  if (result && way.do === 'complete') disposition.result = result.value;
  acts.letGo(row, disposition);
}

/** What was typed for the result; error: what is missing. */
function typed(row, task) {
  const fields = task?.result ?? [];
  if (!fields.length) return null;
  const out = {};
  for (const { name, type, required } of fields) {
    const v = row.result[name] ?? '';
    if (v === '' && required) return { error: t`Fill in ${name} first.` };
    if (v !== '') out[name] = type === 'number' ? Number(String(v).replace(',', '.')) : type === 'boolean' ? v === true || v === 'true' : v;
  }
  return { value: out };
}

function results(row, fields) {
  const put = (name) => (e) => { row.result[name] = e.target.value; };
  const field = ({ name, type, enum: some, min, max, required }) => {
    const id = `result-${name}`;
    const choice = some ?? (type === 'boolean' ? ['true', 'false'] : null);
    return html`<div class="field"><label for=${id} translate="no">${name}</label>${choice
      ? html`<select id=${id} ?required=${required} .value=${live(row.result[name] ?? '')} @change=${put(name)}><option value=""></option>${choice.map((v) => html`<option value=${v}>${
        type === 'boolean' ? value(v === 'true') : v}</option>`)}</select>`
      : html`<input id=${id} type=${type === 'date' ? 'date' : 'text'} inputmode=${type === 'number' ? 'decimal' : nothing} min=${min ?? nothing} max=${max ?? nothing} ?required=${required}
        .value=${live(row.result[name] ?? '')} @input=${put(name)}>`}</div>`;
  };
  return html`<div class="halves">${fields.map(field)}</div>`;
}

function finish(row, { task, item, then, later }, acts) {
  const { title } = item;
  const ways = endings(task);
  const cut = row.excess;
  const name = (way) => `${way.do === 'complete' ? 'complete' : way.do}${way.do === 'never' && row.sure ? ' sure' : ''}`;
  const mayWait = later && task?.outcomes !== undefined; // of a server that knows Later
  return html`<section class="finish done" aria-labelledby="how">
    <div class="bar"><h2 id="how" class="minor">${t`How did it end?`}</h2>
      <label class="push small"><input class="then" type="checkbox" aria-keyshortcuts="x" .checked=${live(then)} @change=${(e) => acts.then(e.target.checked)}> ${t`and then the next one`} ${hint('x')}</label></div>
    ${task?.result?.length ? results(row, task.result) : nothing}
    <div class="outcomes">${ways.map((way, i) => html`<button type="button" class=${name(way)} data-code=${way.code ?? nothing}
      aria-label=${way.code ? `${way.label}: ${way.does}` : way.do === 'never' && row.sure ? t`Really remove it?` : way.label} aria-keyshortcuts=${i < 9 ? i + 1 : nothing}
      @click=${(e) => endAs(row, way, task, acts, e.currentTarget)} @blur=${() => { if (row.sure) row.set({ sure: false }); }}>${i < 9 ? hint(String(i + 1)) : nothing}<span>${
        way.do === 'never' && row.sure ? t`Really remove it?` : way.label}<small>${way.does}${way.note === 'must' ? t`, with a note` : ''}</small></span></button>`)}</div>
    <p id="cut" class="error small">${cut ? `${tooLong(cut)}.` : ''}</p>
    <div class="bar"><textarea id="note" rows="1" dir="auto" aria-label=${t`Note on ${title}`} placeholder=${t`A note for whoever has it next`} aria-keyshortcuts="o" aria-invalid=${cut ? 'true' : nothing}
        aria-describedby="cut" .value=${live(row.note)} @input=${(e) => row.write(e.target.value)}></textarea>
      ${mayWait ? menu(row, title, ['later', t`Later`, 'l', 'clock'], () => html`<p class="label soft small">${t`Keep it, and put it aside`}</p>
        ${laters.map((p) => html`<button type="button" data-later=${p.id} @click=${() => acts.later(row, p.until())}>${p.text}</button>`)}
        ${row.work.later_until ? html`<button type="button" data-later="now" @click=${() => acts.later(row, null)}>${t`No longer`}</button>` : nothing}`) : nothing}
      ${task?.require_code ? nothing : menu(row, title, ['return', t`Give back`, 'r', 'undo-2'], () => html`<p class="label soft small">${t`Return ${title}`}</p>
        ${presets.map((p) => html`<button type="button" data-return=${p.id} aria-label=${t`Return ${p.text}`}
          @click=${() => back(row, p.after(), acts)}>${p.text}</button>`)}
        <button type="button" data-return="exact" aria-expanded=${row.exact} @click=${() => row.set({ exact: !row.exact })}>${t`other …`}</button>
        ${row.exact ? exact(row, acts) : nothing}
        <label><input class="others" type="checkbox" .checked=${live(row.others)}
          @change=${(e) => { row.others = e.target.checked; }}> ${t`to others only, not to me again`}</label>`)}</div>
  </section>`;
}

/** A button with a menu behind it, which Escape, a click elsewhere and leaving it close. */
function menu(row, title, [name, text, key, sign], choices) {
  const open = row.menu === name;
  const close = () => row.set({ menu: '' });
  const turn = ({ currentTarget: button }) => {
    row.set({ menu: open ? '' : name });
    requestAnimationFrame(() => fitMenu(button.nextElementSibling)); // after it is drawn
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
      @click=${turn}>${icon(sign)}${text}${key ? hint(key) : nothing}</button>
    ${open ? html`<div class="choices-of ${name}" id="${row.key}-${name}" role="group" aria-label="${text} ${title}">${choices()}</div>` : nothing}
  </div>`;
}

/** A menu that was opened just now, and has no room below its button, stands above it. If that has none either, the page scrolls. */
function fitMenu(menu) {
  if (!menu) return;
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

/** Lost work: the note that was typed on it is still there to be read and copied. */
function again(row, title, acts) {
  return html`<div class="lost">
    ${row.note ? html`<textarea rows="2" dir="auto" aria-label=${t`Note on ${title}`} .value=${live(row.note)} @input=${(e) => row.write(e.target.value)}></textarea>` : nothing}
    ${row.lost.again ? html`<button class="again primary" type="button" aria-disabled=${row.claiming}
      @click=${() => acts.claim(row)}>${row.claiming ? t`Claiming …` : t`Claim it again`}</button>` : nothing}
    <button class="dismiss" type="button" @click=${() => acts.dismiss(row)}>${t`Put away`}</button>
  </div>`;
}

/** Why an entry of the outbox is not sent yet. */
export const keptBecause = ({ busy }) => (busy
  ? t`The server can’t take it now; it is sent as soon as it can be.`
  : t`The server can’t be reached now; it is sent as soon as it can be.`);

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
