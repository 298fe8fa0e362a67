/** The desk, where people work: tasks, Get Work, and the pipeline. */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { guard } from '../lib/lit-html/directives/guard.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { t } from '../lang.js';
import { every, onceAFrame } from '../parts.js';
import { Reader, keepListed } from '../reader.js';
import { remaining } from '../words.js';
import { card, fitMenu, keptBecause, line, tooLong, wanted } from './desk/card.js';
import { pending } from './desk/coming.js';
import { shown } from './desk/display.js';
import { Drafts } from './desk/drafts.js';
import { focusIn, leaveField, notTwice } from './desk/focus.js';
import { closedToday, noTasks, noWork } from './desk/hints.js';
import { keys } from './desk/keys.js';
import { leave } from './desk/leaving.js';
import { Supply, all, next } from './desk/next.js';
import { Nexts } from './desk/nexts.js';
import { Outbox } from './desk/outbox.js';
import { mayAsk, panel } from './desk/panel.js';
import { Pipeline } from './desk/pipeline.js';
import { Recent } from './desk/recent.js';
import { Said } from './desk/said.js';
import { Tasks } from './desk/tasks.js';
import { arrived, held, letGo, outcome } from './desk/words.js';

const narrow = matchMedia('(max-width: 50rem)'); // tasks and pipeline are two tabs
const many = 60; // above this number of rows, those out of sight are not laid out

let desk; // kept while other views are shown, with input and dispositions that wait

export function open(app, place) {
  wake(app);
  return desk.open(place);
}

/** Makes the desk work unseen: it sends dispositions that the former page could not send. */
export function wake(app) {
  desk ??= new Desk(app);
}

class Desk {
  #app; #client; #drafts; #outbox; #pipeline; #recent; #tasks; #nexts; #supply;
  #place = null; // where it is shown
  #redraw = () => {};
  #open = null; // the open row
  #at = 0; // where it stands in the list
  #tab = ''; // on a narrow screen: tasks or pipeline; '': the pipeline is not known yet
  #news = []; // works that arrived while the tab of tasks was shown
  #fresh = 0; // items that arrived while the page was hidden
  #said = new Said(() => this.#redraw());
  #most = null; // how many items the user may hold over all tasks; null: no limit is known
  #active = 0; // the time of the user's last input

  constructor(app) {
    const { client } = app;
    this.#app = app;
    this.#client = client;
    this.#most = app.me.max_open ?? null;
    this.#drafts = new Drafts(app.me.user);
    this.#recent = new Recent(app.me.user);
    this.#supply = new Supply(app.me.user);
    this.#tasks = new Tasks(client, () => this.#redraw());
    this.#nexts = new Nexts(this.#tasks, {
      failed: (why) => this.#said.tell(t`There is no next: ${why}`),
      ended: (request) => this.#nextEnded(request),
    });
    this.#outbox = new Outbox(client, {
      changed: () => this.#pipeline.sync(),
      sent: (entry, work) => this.#sent(entry, work),
      kept: (entry) => this.#kept(entry),
      failed: (entry, error) => this.#failed(entry, error),
    }, this.#drafts.kept);
    this.#pipeline = new Pipeline(client, this.#outbox, {
      changed: () => this.#changed(),
      tell: (work, text) => this.#said.tell(`${this.#called(work)}: ${text}`),
      arrived: (works) => this.#arrived(works),
    }, this.#drafts.notes);
    this.#pipeline.sync(client.known); // the pipeline may have been read before
    app.leaving.add(() => leave(this.#outbox));
    client.addEventListener('change', () => this.#pipeline.sync(true));
    client.addEventListener('gone', (e) => this.#pipeline.lose(e.detail));
    client.addEventListener('request', (e) => this.#request(e.detail));
    client.addEventListener('run', (e) => this.#tasks.ran(e.detail));
    client.addEventListener('task', (e) => this.#tasks.update(e.detail));
    client.addEventListener('hello', () => this.#tasks.forgetRuns());
  }

  #changed() {
    const left = this.#client.state.reason === 'closed'; // after a log-out nothing is kept
    if (!left) this.#drafts.save(this.#pipeline.notes, this.#outbox.unanswered);
    this.#redraw();
  }

  open({ element, signal }) {
    const on = (target, type, f, options) => target.addEventListener(type, f, { signal, ...options });
    this.#place = element;
    this.#fresh = 0;
    this.#tab = '';
    this.#redraw = onceAFrame(() => this.#draw(), signal);
    signal.addEventListener('abort', () => this.#outbox.flush());
    on(this.#client, 'state', this.#redraw);
    // Leases are renewed while the user is active. `scroll` does not count: the page scrolls by itself, too, and a user
    // scrolls with a wheel, a finger, a key or the pointer.
    for (const type of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchmove']) {
      on(document, type, (e) => this.#keep(e), { capture: true, passive: true });
    }
    on(document, 'visibilitychange', () => this.#seen());
    on(element, 'click', notTwice, { capture: true });
    on(element, 'reveal', () => this.#show('pipeline')); // the skip link leads there
    on(narrow, 'change', this.#redraw);
    on(document, 'pointerdown', (e) => this.#closeMenu(e));
    on(element, 'keydown', leaveField);
    every(1000, () => this.#tick(), signal);
    const list = new Reader(() => this.#tasks.load(), () => {}, { signal });
    keepListed(this.#client, () => list.again(), signal);
    this.#app.keys(keys({
      rows: () => [...this.#pipeline.rows.values()],
      cards: () => this.#tasks.cards,
      next: () => this.#next(),
      outbox: this.#outbox,
      acts: this.#acts,
      say: (text) => this.#app.say(text),
      draw: () => this.#draw(),
      focus: (row) => this.#focus(row),
    }), signal);
    this.#draw();
    this.#tick();
    return list.again();
  }

  // The user's actions.

  #acts = {
    ask: (name, count, options) => this.#ask(name, count, options),
    cancel: (name) => this.#tasks.cancel(name),
    open: (row) => this.#choose(row),
    extend: (row) => this.#client.extend(row.work.id).then(
      (work) => row.set({ kept: work.lease_expires_at }),
      (e) => row.set({ error: row.lost ? '' : e.message }),
    ),
    fill: (row) => this.#app.api.showWork(row.work.id).then(
      (work) => row.set({ asked: true, full: work.details_left_out ? null : work.details }),
      (e) => row.set({ error: e.message }),
    ),
    earlier: (row) => row.earlier || this.#app.api.showWork(row.work.id).then(
      (work) => row.set({ earlier: work.earlier ?? [] }),
      (e) => row.set({ error: e.message }),
    ),
    letGo: (row, disposition, options) => this.#letGo(row, disposition, options),
    undo: (row) => this.#undo(row),
    now: (row) => this.#outbox.now(row.work.id),
    dismiss: (row) => this.#pipeline.dismiss(row),
    claim: (row) => this.#claim(row),
    supply: () => {
      this.#supply.save();
      this.#tick();
    },
  };

  #next() {
    if (this.#tasks.all.request) this.#app.say(t`You wait for the next work already.`);
    else this.#ask(all, 1);
  }

  #ask(name, count, options) {
    if (name === all) return this.#tasks.ask(all, count, options);
    const { task } = this.#tasks.cards.get(name);
    return this.#tasks.ask(name, Math.min(count, mayAsk(task, this.#pipeline.held(name))), options);
  }

  #letGo(row, disposition, { next = false } = {}) {
    const { work } = row;
    if (row.lost || this.#outbox.of(work.id)) return;
    if (row.excess) {
      this.#tooLong(row);
      return;
    }
    const note = row.note.trim();
    const limit = this.#tasks.cards.get(work.task)?.task.max_open;
    const later = next && (limit && this.#pipeline.held(work.task) >= limit || this.#full);
    const successor = this.#successor(row);
    row.set({ sure: false, error: '', menu: '' });
    this.#outbox.add(work, note ? { ...disposition, note } : disposition, later);
    if (this.#open === row) this.#open = successor ?? null;
    const undoable = () => this.#outbox.of(work.id)?.state === 'waiting';
    this.#said.hear(t`${this.#called(work)}: ${letGo(wanted(this.#outbox.of(work.id)))}. It can be undone for five seconds.`, undoable);
    this.#draw();
    this.#focus(successor ?? row);
    if (next && !later) this.#nexts.ask(work.task);
  }

  #tooLong(row) {
    this.#open = row;
    row.set({ noting: true, sure: false, menu: '' });
    this.#draw();
    document.querySelector(`#${row.key} textarea`)?.focus();
    this.#app.say(t`${this.#called(row.work)} is not let go of. ${tooLong(row.excess)}: shorten it.`);
  }

  /** The row after one that is closed; after the last one, the row before it. */
  #successor(row) {
    const rows = [...this.#pipeline.rows.values()];
    const i = rows.indexOf(row);
    const stays = (r) => r !== row && !this.#outbox.of(r.work.id);
    return rows.slice(i).find(stays) ?? rows.slice(0, i).findLast(stays);
  }

  #undo(row) {
    if (!this.#outbox.undo(row.work.id)) return;
    this.#open = row;
    this.#said.hear(t`${this.#called(row.work)}: still yours.`);
    this.#draw();
    this.#focus(row);
  }

  #sent({ work, next }, closed) {
    this.#recent.add({ ...closed, title: this.#called(work) });
    if (next) this.#nexts.ask(work.task);
    this.#pipeline.sync();
  }

  #kept(entry) {
    const text = `${this.#called(entry.work)}: ${keptBecause(entry)}`;
    this.#said.hear(text);
    if (!this.#place?.isConnected) this.#app.say(text);
  }

  #failed({ work }, error) {
    const row = this.#row(work.id);
    if (row && !this.#client.work.has(work.id)) this.#pipeline.lose(row.work); // it waited for this answer
    if (row && !row.lost) row.set({ error: error.message });
    const text = t`${this.#called(work)} was not let go of: ${row?.lost?.why ?? error.message}`;
    this.#said.tell(text);
    if (!this.#place?.isConnected) this.#app.say(text);
  }

  async #claim(row) {
    if (row.claiming) return;
    const { lost } = row;
    row.set({ claiming: true, error: '' }); // the task's query may have to run
    try {
      const work = await this.#client.claim(row.work.task, row.work.item);
      this.#said.tell(t`${this.#called(work)}: yours again.`);
    } catch (e) {
      if (row.lost === lost) row.set({ error: t`It can’t be claimed: ${e.message}.` });
    } finally {
      row.set({ claiming: false });
    }
  }

  #keep(e) {
    const now = performance.now();
    const still = e.type === 'pointermove' && !e.movementX && !e.movementY; // the page moved under the pointer
    if (document.hidden || still || now - this.#active < 200) return;
    this.#active = now;
    this.#pipeline.renew();
  }

  // Events.

  #request(request) {
    this.#tasks.show(request);
    if (request.tasks && request.state !== 'pending') this.#supply.heard(request);
    this.#nexts.heard(request);
    if (request.state !== 'pending' && (this.#most !== null || request.reason === 'at_limit')) this.#readLimit(request);
  }

  get #full() { return this.#most !== null && this.#client.work.size >= this.#most; }

  /** The limit over all tasks may be another by now. */
  async #readLimit(request) {
    const { open, max_open: most = null } = await this.#app.api.me().catch(() => ({ open: 0, max_open: this.#most }));
    this.#most = most;
    const card = this.#tasks.cards.get(request.task);
    if (request.reason === 'at_limit' && most !== null && open >= most && card?.ended?.id === request.id) card.full = { open, most };
    this.#redraw();
  }

  #nextEnded(request) {
    const { task } = this.#tasks.cards.get(request.task) ?? {};
    if (request.assigned === 0) this.#said.tell(t`There is no next: ${outcome(request, task, this.#pipeline.held(request.task))}`);
    const at = document.activeElement;
    const idle = at === document.body || at === this.#title || at?.closest?.('.going');
    const [first] = request.work ?? [];
    if (!first || !idle || !this.#place?.isConnected) return; // a user who is busy elsewhere keeps the focus
    this.#draw();
    this.#focus(this.#row(first.id));
  }

  #arrived(works) {
    if (narrow.matches && this.#tab === 'tasks') this.#news.push(...works);
    if (document.hidden) {
      this.#fresh += works.length;
      this.#tick();
    }
    const names = works.slice(0, 5).map((w) => this.#called(w)).join('; ');
    const still = () => works.every(({ id }) => this.#client.work.has(id) && !this.#outbox.of(id));
    this.#said.tell(works.length > 5 ? t`New: ${names} and ${works.length - 5} more.` : t`New: ${names}.`, still);
  }

  #seen() {
    if (document.hidden) return;
    this.#fresh = 0;
    this.#tick();
  }

  /** Updates what changes with time alone. */
  #tick() {
    let soon = false;
    for (const row of this.#pipeline.rows.values()) {
      const left = this.#client.left(row.work);
      if (left === null || row.lost) continue;
      soon ||= row.ends(left);
      if (left === 0) this.#pipeline.look(row);
    }
    if (this.#client.known && this.#client.state.name === 'live') {
      this.#supply.look(this.#tasks.all, this.#holds, this.#active, (...asked) => this.#ask(...asked));
    }
    if (this.#place?.isConnected) document.title = `${this.#fresh ? `${t`${this.#fresh} new`} · ` : ''}${soon ? '⏳ ' : ''}${this.#app.me.user} · getwork`;
    this.#redraw();
  }

  // Drawing.

  get #title() { return this.#place?.querySelector('#pipeline-title'); }

  #choose(row) {
    this.#open = row;
    this.#redraw();
  }

  /** Shows a tab on a narrow screen. */
  #show(tab) {
    this.#tab = tab;
    if (tab === 'pipeline') this.#news = [];
    this.#draw();
  }

  #closeMenu({ target }) {
    for (const row of this.#pipeline.rows.values()) {
      if (row.menu && !target.closest?.(`#${row.key} .menu`)) row.set({ menu: '' });
    }
  }

  /** The open row: the chosen one, or where that is gone, what now stands in its place. */
  #opened() {
    const rows = [...this.#pipeline.rows.values()];
    const stays = (row) => row && !this.#outbox.of(row.work.id);
    if (!rows.includes(this.#open) || !stays(this.#open)) {
      const near = [...rows.slice(this.#at), ...rows.slice(0, this.#at).reverse()];
      this.#open = near.find(stays) ?? null;
    }
    this.#at = Math.max(0, rows.indexOf(this.#open));
    return this.#open;
  }

  /** What the user knows a work's item by. */
  #called({ task, item, details }) { return shown(this.#tasks.cards.get(task)?.task?.display, item, details, this.#pipeline.columns(task)).title; }

  #row(id) { return [...this.#pipeline.rows.values()].find((r) => r.work.id === id); }

  /** Focuses a row, which opens it. */
  #focus(row) {
    if (row && row !== this.#open && !this.#outbox.of(row.work.id)) {
      this.#open = row;
      this.#draw();
    }
    focusIn(document.getElementById(row?.key)) || this.#title?.focus();
  }

  /** Draws. A focus that was lost by it goes to the same card, the next, or the one before. */
  #draw() {
    const at = document.activeElement;
    const li = this.#place.contains(at) ? at.closest('li') : null;
    const all = li ? [...li.parentElement.children] : [];
    render(this.#template(), this.#place);
    this.#place.querySelector('#work').style.setProperty('--rows', this.#pipeline.rows.size);
    fitMenu(this.#place.querySelector('.choices-of'));
    if (!li || at.isConnected) return;
    const i = all.indexOf(li);
    const near = [li, ...all.slice(i), ...all.slice(0, i).reverse()].find((e) => e.isConnected);
    if (!focusIn(near)) this.#title.focus();
  }

  #template() {
    const { cards, loaded, error } = this.#tasks;
    const { rows } = this.#pipeline;
    const now = Date.now();
    const opened = this.#opened();
    const holds = this.#holds;
    const waiting = [this.#tasks.all, ...cards.values()].filter((c) => c.request);
    if (!narrow.matches) this.#tab = '';
    if (!this.#tab && this.#client.known) this.#tab = rows.size || waiting.length ? 'pipeline' : 'tasks';
    const tab = this.#tab || 'tasks';
    this.#news = this.#news.filter(({ id }) => this.#client.work.has(id));
    return html`<h1 class="visually-hidden">${t`Work`}</h1>
    <div class="desk" data-tab=${tab}>
      ${narrow.matches ? this.#tabs(tab, cards.size, holds) : nothing}
      <section class="tasks" aria-labelledby="tasks-title">
        <h2 id="tasks-title">${t`Tasks`}</h2>
        <p id="tasks-error" class="error" role="alert">${error}</p>
        <p id="full" class="quiet" role="status">${this.#full ? t`You hold ${this.#client.work.size} of ${this.#most}, over all tasks. Finish or return something before you get more.` : ''}</p>
        ${loaded && cards.size === 0 ? noTasks(this.#app.me.role === 'manager') : nothing}
        ${cards.size ? next(this.#tasks.all, this.#nextView(cards), this.#supply, this.#acts) : nothing}
        <ul id="tasks" class=${cards.size ? 'card' : ''}>${repeat(cards, ([name]) => name, ([name, c], i) => panel(c, {
          now, number: i + 1, why: this.#app.me.role === 'manager', held: this.#pipeline.held(name), putOff: this.#recent.putOff(name),
        }, this.#acts))}</ul>
      </section>
      <section class="pipeline" aria-labelledby="pipeline-title">
        <div class="heading"><h2 id="pipeline-title" tabindex="-1">${t`Your pipeline`} <span id="held" class="count">${holds || ''}</span></h2>
          <p id="told" class="said" role="status" dir="auto">${this.#said.told}</p></div>
        <p id="heard" class="visually-hidden" role="status" dir="auto">${this.#said.heard}</p>
        <ul id="coming" class="cards">${repeat(waiting, (c) => c.request.id, (c) => pending(c, now, this.#acts))}</ul>
        ${rows.size === 0 && waiting.length === 0 && this.#client.state.name !== 'connecting' ? noWork(cards.size > 0) : nothing}
        <ul id="work" class=${rows.size > many ? 'many' : ''}>${
          repeat(rows.values(), (row) => row.key, (row) => this.#item(row, now, opened))}</ul>
      </section>
      ${closedToday(this.#recent.list())}
      <p class="notice" role="status">${narrow.matches && tab === 'tasks' && this.#news.length ? html`<button type="button" class="primary"
        @click=${() => this.#toNews()}>${this.#newsText()}</button>` : nothing}</p>
    </div>`;
  }

  /** How many items the user holds, without those that are being let go of. */
  get #holds() {
    let out = 0;
    for (const id of this.#client.work.keys()) if (this.#outbox.of(id)) out++;
    return this.#client.work.size - out;
  }

  #nextView(cards) {
    const { ended } = this.#tasks.all;
    const ready = [...cards.values()].reduce((n, { task }) => n + (task.paused ? 0 : task.shelf), 0);
    return { ready, from: ended ? cards.get(ended.task)?.task.title || ended.task : '' };
  }

  #toNews() {
    const [{ id }] = this.#news;
    this.#show('pipeline');
    this.#focus(this.#row(id));
  }

  #newsText() {
    const [{ task }] = this.#news;
    const same = this.#news.every((w) => w.task === task);
    return arrived(this.#news.length, same ? this.#tasks.cards.get(task)?.task?.display : null);
  }

  /** The tabs of a narrow screen. */
  #tabs(chosen, tasks, holds) {
    const move = (e) => {
      if (!['ArrowLeft', 'ArrowRight'].includes(e.key)) return;
      e.preventDefault();
      this.#show(chosen === 'tasks' ? 'pipeline' : 'tasks');
      this.#place.querySelector('.tabs [aria-selected=true]').focus();
    };
    const tab = (id, text, n) => html`<button type="button" role="tab" id="tab-${id}" aria-selected=${chosen === id} tabindex=${chosen === id ? 0 : -1}
      @click=${() => this.#show(id)}>${text} <span class="count">${n || ''}</span></button>`;
    return html`<div class="tabs" role="tablist" aria-label=${t`Work`} @keydown=${move}>${tab('tasks', t`Tasks`, tasks)}${tab('pipeline', t`Pipeline`, holds)}</div>`;
  }

  /** A row's element, drawn anew only if something visible has changed. */
  #item(row, now, opened) {
    const { work } = row;
    const entry = this.#outbox.of(work.id);
    if (entry && !row.lost) {
      const seconds = Math.max(0, Math.ceil((entry.due - now) / 1000));
      return guard([row.key, entry, entry.state, entry.busy, seconds], () => line(row, entry, { seconds, title: this.#called(work) }, this.#acts));
    }
    const left = this.#client.left(work);
    const age = now + this.#client.ahead - row.since;
    const task = this.#tasks.cards.get(work.task)?.task;
    const places = this.#pipeline.columns(work.task);
    const open = row === opened;
    const texts = [task?.title, task?.slots, task?.version, left === null ? '' : remaining(left), held(age)];
    const seen = [row.key, row.revision, open, row.ends(left), places, ...texts];
    return guard(seen, () => card(row, { open, task, left, age, item: shown(task?.display, work.item, row.full ?? work.details, places) }, this.#acts));
  }
}
