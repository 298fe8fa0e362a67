/** An item's state in one task: by the history at once, and by explain, which may run the task's query. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { now } from '../../now.js';
import { took } from '../../parts.js';
import { elapsed } from '../../words.js';
import { shown } from '../desk/display.js';
import { couldList, inWords } from '../reassign.js';
import { claim, give, letGo, reassign, redrive } from './actions.js';
import { lastKnown, moment, name, nth, verdict } from './sentences.js';

const sources = {
  shelf: t`on the list of the last run`,
  query: t`by the task’s query, which was run for it`,
  inbox: t`in the inbox`,
};

const times = { good: 'ok', busy: 'now', warn: 'half', bad: 'fifth' }; // of verdicts, as data-time has them

export class Answer {
  /**
   * Of the item in a task, as GET /tasks gives it. view: {app, signal, draw(), changed()}: changed says that something was
   * done to the item.
   */
  constructor(view, task, item) {
    this.view = view;
    this.task = task;
    this.item = item;
    this.rows = []; // of the history, newest first
    this.rowsAt = 0; // when they were read
    this.explanation = null;
    this.asking = null; // {since, stop}
    this.doing = null; // {what, since}: an action that lasts
    this.error = '';
  }

  /** The history goes on where the explanation ends: it is the newer one of the two. */
  get #overtaken() {
    const { history, at } = this.explanation;
    const newest = history.length || 1;
    const known = (rows) => JSON.stringify(rows.slice(0, newest)
      .map((w) => [w.id, w.state, w.lease_expires_at, w.available_at]));
    return this.rowsAt > at && known(this.rows) !== known(history);
  }

  /** Reports whether there was a change after the explanation. */
  get #old() {
    const { until, version } = this.explanation;
    return version !== this.task.version || (until !== null && Date.parse(until) <= now()) || this.#overtaken;
  }

  /** Moves the focus to the answer, because the focused element has disappeared. */
  #focus() { document.getElementById(`verdict-${this.task.name}`)?.focus(); }

  /** Asks why the item is or is not handed out. */
  async ask() {
    this.asking?.stop.abort();
    const stop = new AbortController();
    const asking = { since: Date.now(), stop };
    const { version } = this.task;
    this.asking = asking;
    this.error = '';
    this.view.draw();
    try {
      const { app, signal } = this.view;
      const found = await app.api.explain(this.task.name, this.item, { signal: AbortSignal.any([stop.signal, signal]) });
      const could = await inWords(found.could);
      if (this.asking !== asking) return;
      this.explanation = { ...found, could, at: now(), took: Date.now() - asking.since, version };
    } catch (e) {
      if (this.asking === asking && !stop.signal.aborted) this.error = t`It can’t be said why: ${e.message}`;
    }
    if (this.asking === asking) this.asking = null;
    this.view.draw();
  }

  /** The item's history of this task was read. A cheap explanation is asked for again. */
  known(rows, at) {
    this.rows = rows;
    this.rowsAt = at;
    if (this.explanation?.source === 'inbox' && this.#old && !this.asking) this.ask();
  }

  /** Does something to the item, and then says how it stands. lasts: it is shown for how long. */
  async #do(what, action, lasts = false) {
    this.error = '';
    if (lasts) this.doing = { what, since: Date.now() };
    this.view.draw();
    try {
      if (await action()) {
        this.view.changed();
        if (this.explanation) this.ask();
        this.#focus();
      }
    } catch (e) {
      this.error = t`${what} failed: ${e.message}.`;
    }
    this.doing = null;
    this.view.draw();
  }

  draw() {
    const { task, explanation: e } = this;
    const { kind, line } = e && !this.#overtaken ? verdict(e) : lastKnown(this.rows);
    const brief = e || kind || this.asking || this.error ? '' : 'brief';
    return html`<article class=${`paper answer ${brief}`} data-kind=${kind || (e || this.rows.length ? nothing : 'unknown')} data-time=${times[kind] ?? 'none'} aria-labelledby=${`task-${task.name}`}>
      <header>
        <h3 id=${`task-${task.name}`}><a dir="auto"
          href=${`/tasks/${encodeURIComponent(task.name)}`}>${task.title || task.name}</a></h3>
        ${task.paused ? html`<span class="tag" data-time="half">${t`paused`}</span>` : nothing}
      </header>
      <p class="verdict" id=${`verdict-${task.name}`} role="status" tabindex="-1">${line}</p>
      ${this.#state()}
      <p class="error" role="alert" dir="auto">${this.error}</p>
      ${e ? this.#facts(e) : nothing}
      ${this.#actions()}
      ${e?.details ? details(shown(task.display, this.item, e.details), this.item) : nothing}
      ${e?.details_left_out ? html`<p class="soft">${t`Its details can’t be shown: they are too large.`}</p>` : nothing}
    </article>`;
  }

  #start() {
    this.ask();
    this.#focus();
  }

  #giveUp() {
    this.asking.stop.abort();
    this.asking = null;
    this.#focus();
    this.view.draw();
  }

  /** The progress of asking, the answer's age, or the lack of an answer. */
  #state() {
    if (this.asking) {
      return html`<p class="asking">
        ${lasting(this.task.query ? t`Looking; the task’s query may have to run for it.` : t`Looking.`, this.asking.since)}
        <button type="button" class="give-up" @click=${() => this.#giveUp()}>${t`Give up`}</button></p>`;
    }
    const again = (text) => html`<button type="button" class="explain" @click=${() => this.#start()}>${text}<span
      class="sr" dir="auto">: ${this.task.title || this.task.name}</span></button>`;
    if (!this.explanation) {
      return html`<p class="asked-for"><span class="soft">${this.rows.length ? t`By its history; whether it can be handed out now is not checked yet.`
        : t`Nobody has had it for this task.`}</span> ${again(t`Check now`)}</p>`;
    }
    const { at, took: ms } = this.explanation;
    const old = this.#old;
    return html`<p class="asked-for"><span class=${old ? 'tag old' : 'soft'} data-time=${old ? 'half' : nothing}>${old
      ? t`Something has changed since ${moment(new Date(at).toISOString())}; it took ${took(ms)}.` : t`As of ${moment(new Date(at).toISOString())}; it took ${took(ms)}.`}</span> ${again(t`Check again`)}</p>`;
  }

  #facts(e) {
    const held = this.rows.filter((w) => w.state === 'held').length;
    const facts = [
      [t`Matches`, e.matches ? t`Yes, ${sources[e.source] ?? e.source}` : t`No`],
      e.rank && [t`Rank`, e.source === 'inbox' ? t`${nth(e.rank)} of what is ready` : t`${nth(e.rank)}, best first`],
      e.slots > 1 && [t`Places`, t`${held} of ${e.slots} taken`],
      e.exclusive && [t`Exclusive group`, name(e.exclusive)],
      e.could.some(({ may }) => may) && [t`Could be given to`, couldList(e.could)],
      e.barred.length > 0 && [t`Not for`, html`<ul>${e.barred.map(barred)}</ul>`],
    ];
    return html`<dl class="facts">${facts.filter(Boolean).map(([term, fact]) => html`<div>
      <dt>${term}</dt><dd dir="auto">${fact}</dd></div>`)}</dl>`;
  }

  #actions() {
    const { app, signal } = this.view;
    const { task, item, explanation: e } = this;
    if (this.doing) return html`<p class="asking">${lasting(t`${this.doing.what} …`, this.doing.since)}</p>`;
    const held = this.rows.filter((w) => w.state === 'held');
    const mine = held.some((w) => w.user === app.me.user);
    const isNever = this.rows.some((w) => w.state === 'never' && !w.available_at);
    const free = e?.available && !mine && !isNever;
    const gives = e && !isNever && (e.available || e.could.some(({ may }) => may));
    const pass = (w) => this.#do(t`Giving it to somebody else`, () => reassign(app, w, signal));
    const giveIt = () => this.#do(t`Giving it to somebody`, () => give(app, { task: task.name, item, could: e.could }, signal));
    const close = (w) => this.#do(t`Letting go`, () => letGo(app, w, signal));
    const putBack = () => this.#do(t`Putting it back`, () => redrive(app, task.name, item));
    const take = () => this.#do(t`Claiming it`, () => claim(app, task.name, item), true);
    return html`
      ${repeat(held, (w) => w.id, (w) => html`<div class="bar holder">
        <span>${name(w.user)} <span class="soft">${t`since ${moment(w.assigned_at)}`}</span></span>
        <button type="button" class="reassign" @click=${() => pass(w)}>${t`Give to somebody else …`}</button>
        <button type="button" class="let-go" @click=${() => close(w)}>${t`Let go …`}</button>
      </div>`)}
      ${isNever || free || gives ? html`<div class="bar">
        ${isNever ? html`<button type="button" class="redrive" @click=${putBack}>${t`Put it back …`}</button>` : nothing}
        ${free ? html`<button type="button" class="claim" @click=${take}>${t`Claim it for myself`}</button>` : nothing}
        ${gives ? html`<button type="button" class="give" @click=${giveIt}>${t`Give to …`}</button>` : nothing}
      </div>` : nothing}`;
  }
}

function barred({ user, instance, because, until }) {
  const who = name(instance ? `${user} (${instance})` : user);
  return html`<li>${until ? t`${who}, who ${because}, until ${moment(until)}` : t`${who}, who ${because}`}</li>`;
}

const lasting = (text, since) => html`<span class="turning" aria-hidden="true"></span>
  <span>${text} <span class="clock">${elapsed(Date.now() - since)}</span></span>`;

/** What the item is, as the desk shows it. */
function details({ title, link, fields }, item) {
  if (!fields.length) return nothing;
  return html`${title === item && !link ? nothing : html`<p class="called" dir="auto"><b>${title}</b>${link
      ? html` <a href=${link} target="_blank" rel="noopener noreferrer">${t`Open`}</a>` : nothing}</p>`}
    <dl class="details">${fields.map((f) => html`<div class=${f.strong ? 'stands' : ''} data-time=${f.strong ? 'fifth' : nothing}>
      <dt dir="auto">${f.label}</dt><dd dir="auto" title=${f.exact ?? nothing}>${f.text}</dd></div>`)}</dl>`;
}
