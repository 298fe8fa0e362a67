/** Where work comes from: the next of all tasks, and the list of tasks in groups that fold. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { icon } from '../../parts.js';
import { clock } from '../../words.js';
import { all, likely, said } from './next.js';
import { counts, mayCome, outcome, ran, things, yours } from './words.js';

const choices = 5; // larger numbers are typed
const patience = '1h'; // how long a lingering request waits
const unfolded = 18; // so many rows are open at first: with the headings of the groups, thirty tasks fit a screen 1080 px high

/** The shortcut of a button, shown in it. */
export const hint = (key) => html`<kbd aria-hidden="true">${key.toUpperCase()}</kbd>`;

/** How many items a user who holds so many may ask for now: at least 1, so that the server can say why there is none. */
export const mayAsk = ({ max_request: most, max_open: limit }, held) => (limit ? Math.max(1, Math.min(most, limit - held)) : most);

/** What of a task is there to do, as far as is known. */
export const left = ({ backlog, shelf }) => Math.max(backlog?.free ?? 0, shelf ?? 0);

/** The user's favourites, and which groups they have folded. They stay in this browser. */
export class Shelf {
  query = ''; // what is searched for
  #key;
  #kept;

  constructor(user) {
    this.#key = `getwork.shelf.${user}`;
    try {
      this.#kept = JSON.parse(localStorage.getItem(this.#key)) ?? {};
    } catch {
      this.#kept = {};
    }
    this.#kept = { favourites: [], folded: {}, ...this.#kept };
  }

  has(name) { return this.#kept.favourites.includes(name); }

  turn(name) {
    const { favourites } = this.#kept;
    this.#kept.favourites = this.has(name) ? favourites.filter((n) => n !== name) : [...favourites, name];
    this.#save();
  }

  isOpen(group, otherwise) { return this.query !== '' || !(this.#kept.folded[group] ?? !otherwise); }

  fold(group, folded) {
    if (this.query) return;
    this.#kept.folded[group] = folded;
    this.#save();
  }

  #save() {
    try {
      localStorage.setItem(this.#key, JSON.stringify(this.#kept));
    } catch { /* a full or forbidden storage: it is kept in memory */ }
  }

  /** The cards in groups, [[group, [{card, name}]]]: the favourites, then by what stands before a colon in their titles, then the others. */
  groups(cards) {
    const out = new Map([[t`Favourites`, []]]);
    const rest = [];
    const wanted = this.query.trim().toLocaleLowerCase(locale);
    for (const card of cards.values()) {
      const title = card.task.title || card.task.name;
      if (wanted && !`${title} ${card.task.name}`.toLocaleLowerCase(locale).includes(wanted)) continue;
      const [, group, name] = title.match(/^([^:]{1,40}):\s+(.+)$/u) ?? [];
      if (this.has(card.task.name)) out.get(t`Favourites`).push({ card, name: title });
      else if (group) out.set(group, [...out.get(group) ?? [], { card, name }]);
      else rest.push({ card, name: title });
    }
    return [...out, [out.size > 1 || out.get(t`Favourites`).length ? t`Other tasks` : '', rest]].filter(([, some]) => some.length);
  }

  /** The cards in the order in which they are shown. */
  order(cards) { return this.groups(cards).flatMap(([, some]) => some.map(({ card }) => card)); }
}

/** Opens a task's row at how many items are asked for. */
function several(name, shelf, cards, acts) {
  shelf.query = '';
  cards.get(name).open = true;
  acts.draw();
  const field = [...document.getElementsByName(`count-${name}`)].find((f) => f.checked || f.type === 'number');
  const group = field.closest('.group');
  if (group) group.open = true;
  field.focus();
}

/** view: {cards, from, full, holds, held(name)}: the tasks' cards; as said() needs it; why there can be no more; how many items are held. */
export function getNext(card, shelf, { cards, from, full, holds, held }, acts) {
  const { busy, request, ended, error } = card;
  const best = likely(cards);
  const words = request ? t`Asked for at ${new Date(card.since).toLocaleTimeString(locale)}.`
    : full ? full
      : best ? html`${best.shelf ? t`Now most likely: one of ${html`<b dir="auto">${best.title || best.name}</b>`}, at once.`
        : t`Now most likely: one of ${html`<b dir="auto">${best.title || best.name}</b>`}, after its query.`}`
        : t`Nothing is known to be there now; a query may find something.`;
  return html`<form class="next get-next" aria-label=${t`Get next work`} @submit=${(e) => { e.preventDefault(); if (!request) acts.ask(all, 1); }}>
    <button class="primary" type="submit" aria-disabled=${busy || request ? 'true' : nothing} aria-keyshortcuts="n">${request ? t`On its way …` : t`Get next work`}${request ? nothing : hint('n')}</button>
    ${holds ? html`<button class="button" type="button" @click=${() => document.getElementById('how')?.scrollIntoView({ block: 'start' })}>${t`Finish this`}</button>` : nothing}
    <p class="soft small there">${words}${best && !request && !full && mayAsk(best, held(best.name)) > 1
      ? html` <button class="several plain" type="button" @click=${() => several(best.name, shelf, cards, acts)}>${t`Get 2, 3, 5 …`}</button>` : nothing}</p>
    <p class="soft small ended" dir="auto" role="status">${ended && !busy ? said(ended, from) : ''}</p>
    <p class="error small" role="alert" dir="auto">${error}</p>
  </form>`;
}

/** The list. view: {now, why, held(name), putOff(name)}; focusable: the name of the task that is the list's one Tab stop. */
export function list(cards, shelf, supply, view, acts) {
  const groups = shelf.groups(cards);
  const order = groups.flatMap(([, some]) => some.map(({ card }) => card));
  let shown = 0;
  const of = ([group, some]) => {
    const rows = html`<ul>${repeat(some, ({ card }) => card.task.name, ({ card, name }) => row(card, name, {
      ...view, number: order.indexOf(card) + 1, held: view.held(card.task.name), putOff: view.putOff(card.task.name),
    }, shelf, acts))}</ul>`;
    shown += some.length;
    if (!group) return rows;
    const sum = some.reduce((n, { card }) => n + left(card.task), 0);
    const late = some.reduce((n, { card }) => n + (card.task.late || 0), 0);
    const open = shelf.isOpen(group, shown <= unfolded || cards.size <= unfolded);
    const count = open ? sum.toLocaleString(locale) : plural(some.length, '{0} task · {1}', '{0} tasks · {1}', sum.toLocaleString(locale));
    return html`<details class="group" .open=${live(open)} @toggle=${(e) => { if (e.target.open !== open) { shelf.fold(group, !e.target.open); acts.draw(); } }}>
      <summary tabindex="-1">${icon('chevron-right')}<span dir="auto">${group}</span>${
        late && !open ? html`<span class="tag" data-time="half">${t`${late} late`}</span>` : nothing}<b>${count}</b></summary>${rows}</details>`;
  };
  return html`
    <div class="search">${icon('search')}<input id="find" type="search" aria-label=${t`Find a task`} placeholder=${t`Find a task`} aria-keyshortcuts="/"
      .value=${live(shelf.query)} @input=${(e) => { shelf.query = e.target.value; acts.draw(); }} @keydown=${(e) => down(e)}><kbd aria-hidden="true">/</kbd></div>
    <div id="tasks" @keydown=${arrows} @focusin=${stop}>${groups.map(of)}</div>
    ${shelf.query && !groups.length ? html`<p class="empty">${t`No task of that name.`}</p>` : nothing}
    <label class="supply soft small">${t`Keep me supplied with ${html`<input type="number" min="0" max="20" .value=${live(String(supply.n))}
      @change=${(e) => { supply.n = Math.min(20, Math.max(0, Math.trunc(e.target.valueAsNumber) || 0)); acts.supply(); }}>`} items`}</label>`;
}

/** From the field down into the list. */
function down(e) {
  if (e.key !== 'ArrowDown' && e.key !== 'Enter') return;
  e.preventDefault();
  e.target.closest('.tasks').querySelector('#tasks .name')?.focus();
}

/** The list is one Tab stop: the row that had the focus last. */
function stop({ currentTarget, target }) {
  if (!target.matches('.name')) return;
  for (const name of currentTarget.querySelectorAll('.name')) name.tabIndex = name === target ? 0 : -1;
}

function arrows(e) {
  const at = e.target.closest('.name, summary, .get');
  const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[e.key];
  const li = e.target.closest('.task');
  let to;
  if (!at || e.altKey || e.ctrlKey || e.metaKey) return;
  if (step) {
    const stops = [...e.currentTarget.querySelectorAll('.name,summary')].filter((s) => s.checkVisibility());
    const i = stops.indexOf(li ? li.querySelector('.name') : at);
    to = stops[Math.min(stops.length - 1, Math.max(0, i + step))];
  } else if (e.key === 'ArrowRight') to = li?.querySelector('.get');
  else if (e.key === 'ArrowLeft') to = li?.querySelector('.name');
  if (!to) return;
  e.preventDefault();
  e.stopPropagation();
  to.focus();
}

/** A task's row; what is known of it opens below it. */
function row(card, name, view, shelf, acts) {
  const { task, ended, open, request } = card;
  const title = task.title || task.name;
  const failing = task.failures > 0;
  const n = left(task);
  const count = Math.min(card.count, mayAsk(task, view.held));
  const off = task.paused || failing;
  const run = off ? null : card.running(view.now);
  const time = failing ? 'fifth' : task.paused ? 'half' : request || card.run?.since ? 'now' : task.late ? 'half' : nothing;
  return html`<li class="task ${off ? 'off' : ''} ${request ? 'asked' : ''}" aria-label=${title} data-time=${time}>
    <button class="name" type="button" aria-expanded=${open} tabindex=${view.number === 1 ? nothing : -1} dir="auto" @click=${() => { card.open = !open; acts.draw(); }}>${name}</button>
    ${tag(card)}
    <span class="n ${n && !off ? '' : 'none'}">${n && !off ? n.toLocaleString(locale) : '–'}</span>
    <button class="get primary" type="button" tabindex="-1" aria-disabled=${card.busy || request ? 'true' : nothing} aria-label=${t`Get Work: ${title}`}
      aria-description=${things(count, task.display)} aria-keyshortcuts=${view.number < 10 ? `g ${view.number}` : nothing}
      @click=${() => { if (!request) acts.ask(task.name, card.count); }}>${count > 1 ? t`Get ${count}` : t`Get##work`}</button>
    ${run === null ? nothing : html`<span class="tag run">${ran(run, card.usual)}</span>`}
    ${request ? html`<progress max="1" value=${card.due === null ? nothing : (card.bar(view.now) ?? 0).toFixed(3)} aria-label=${t`The query of ${title} runs`}></progress>` : nothing}
    ${open || ended || card.error ? under(card, view, shelf, acts) : nothing}
  </li>`;
}

/** A state that stays for a while. A run, which comes and goes, stands where the count is: here it would move the name under the pointer. */
function tag({ task }) {
  if (task.failures > 0) return html`<span class="tag">${icon('circle-alert')}${t`broken`}</span>`;
  if (task.paused) return html`<span class="tag">${icon('pause')}${t`paused`}</span>`;
  return task.late ? html`<span class="tag">${t`${task.late} late`}</span>` : nothing;
}

function under(card, view, shelf, acts) {
  const { task, ended, open, busy } = card;
  const title = task.title || task.name;
  const mine = shelf.has(task.name);
  return html`<div class="under small ${!open && !card.error && ended?.state === 'assigned' && !ended.stale ? 'sr' : ''}">
    ${open ? html`
      ${task.description ? html`<p class="soft description" dir="auto">${task.description}</p>` : nothing}
      ${task.max_open ? html`<p class="soft">${t`You hold ${view.held} of at most ${task.max_open}.`}</p>` : nothing}
      <form @submit=${(e) => { e.preventDefault(); if (!card.request) acts.ask(task.name, card.count); }}>${number(card, view)}</form>
      <p class="soft counts">${counts(task)}</p>
      <p><button class="plain favourite" type="button" aria-pressed=${mine} @click=${() => { shelf.turn(task.name); acts.draw(); }}>${icon('star')}${
        mine ? t`No favourite any more` : t`Make it a favourite`}</button></p>
      ${task.failures > 0 && !(ended?.state === 'failed') ? html`<p class="soft">${t`Its query fails; nothing new can be handed out. Your managers can see this on the floor.`}</p>` : nothing}` : nothing}
    <p class="ended" dir="auto" role=${ended?.state === 'assigned' ? nothing : 'status'}>${ended && !busy ? endedText(card, view) : ''}</p>
    ${ended?.state === 'failed' && !busy ? failure(card, view) : nothing}
    ${ended?.stale && !busy ? html`<p class="soft aged">${t`The list was made at ${html`<time datetime=${ended.ranked_at}>${
      clock(ended.ranked_at)}</time>`}, so it is older than usual. A newer one is on its way.`}</p>` : nothing}
    ${ended && mayCome(ended) && !busy ? html`<p><button class="linger" type="button" aria-label=${t`Wait for ${title}, up to ${patience.replace('h', ' h')}`}
      @click=${() => acts.ask(task.name, ended.wanted, { linger: patience })}>${t`Wait for it, up to ${patience.replace('h', ' h')}`}</button></p>` : nothing}
    <p class="error" role="alert" dir="auto">${card.error}</p>
  </div>`;
}

function failure({ ended, task }, { why }) {
  return html`<details class="why-failed"><summary>${t`Details`}</summary>
    <p class="soft">${t`The task’s query failed at ${clock(ended.completed_at ?? ended.created_at)}.`} ${why
      ? html`<a href="/tasks/${encodeURIComponent(task.name)}">${t`Look at the task`}</a>` : t`Managers see why on the floor.`}</p>
    ${ended.error && why ? html`<pre class="cause" dir="auto">${ended.error}</pre>` : nothing}</details>`;
}

function endedText({ ended, task, full }, { putOff, held }) {
  const text = outcome(ended, task, held, full);
  const mine = ended.state === 'none' && ['all_held', 'rules', 'no_match'].includes(ended.reason) && putOff.length;
  return mine ? `${text} ${yours(putOff)}` : text;
}

function number(card, { held }) {
  const most = mayAsk(card.task, held);
  return most > choices ? typed(card, most) : chosen(card, most);
}

function chosen(card, most) {
  const { name } = card.task;
  const choice = (n) => html`<label><input type="radio" name="count-${name}" value=${n} .checked=${live(Math.min(card.count, most) === n)}
    @change=${() => { card.count = n; }}><span>${n}</span></label>`;
  return html`<fieldset class="choose"><legend>${t`How many`}</legend><div class="choices">${
    Array.from({ length: most }, (_, i) => choice(i + 1))}</div></fieldset>`;
}

function typed(card, most) {
  return html`<label class="how-many">${t`How many, up to ${most}`} <input type="number" name="count-${card.task.name}" min="1" max=${most} required
    .value=${live(String(Math.min(card.count, most)))} @input=${(e) => { card.count = e.target.valueAsNumber || 1; }}></label>`;
}

/** What the tasks have to do together, for a server that has no day. */
export function sums(cards) {
  const tasks = [...cards.values()].map(({ task }) => task);
  return {
    left: tasks.reduce((n, task) => n + left(task), 0),
    late: tasks.reduce((n, task) => n + (task.late ?? 0), 0),
    tasks: tasks.length,
  };
}

