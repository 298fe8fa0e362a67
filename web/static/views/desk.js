/** The desk, where people work: tasks, Get Work, and the pipeline. */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { t } from '../lang.js';
import { every, onceAFrame, when } from '../parts.js';
import { Reader, keepListed } from '../reader.js';
import { states } from '../words.js';
import { askToRing, badge, mayRing, ring } from './desk/bell.js';
import { also, pending } from './desk/coming.js';
import { day, midnight } from './desk/day.js';
import { shown } from './desk/display.js';
import { Drafts } from './desk/drafts.js';
import { focusIn, leaveField, notTwice } from './desk/focus.js';
import { noTasks, noWork } from './desk/hints.js';
import { keys } from './desk/keys.js';
import { leave } from './desk/leaving.js';
import { mine, sorted } from './desk/mine.js';
import { Supply, all, likely } from './desk/next.js';
import { Nexts } from './desk/nexts.js';
import { Outbox } from './desk/outbox.js';
import { Pipeline } from './desk/pipeline.js';
import { Recent } from './desk/recent.js';
import { Said } from './desk/said.js';
import { keptBecause, sheet, tooLong, wanted } from './desk/sheet.js';
import { Tasks } from './desk/tasks.js';
import { Shelf, getNext, list, mayAsk, sums } from './desk/tray.js';
import { letGo, outcome } from './desk/words.js';

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
  #app; #client; #drafts; #outbox; #pipeline; #recent; #tasks; #nexts; #supply; #shelf;
  #place = null; // where it is shown
  #redraw = () => {};
  #open = null; // the open row
  #at = 0; // where it stands in the list
  #day = null; // what the server says of the user's day
  #then; // whether the next is asked for when an item ends
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
    this.#shelf = new Shelf(app.me.user);
    this.#then = localStorage.getItem(`getwork.then.${app.me.user}`) === 'yes';
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
      tell: (row, text) => { if (row !== this.#open || !row.lost) this.#said.tell(`${this.#called(row.work)}: ${text}`); }, // the sheet says it, too
      arrived: (works) => this.#arrived(works),
    }, this.#drafts.notes);
    this.#pipeline.sync(client.known); // the pipeline may have been read before
    app.leaving.add(() => leave(this.#outbox));
    client.addEventListener('change', () => this.#pipeline.sync(true));
    client.addEventListener('gone', (e) => this.#pipeline.lose(e.detail));
    client.addEventListener('reviewed', (e) => this.#reviewed(e.detail));
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
    on(document, 'pointerdown', (e) => this.#closeMenu(e));
    on(element, 'keydown', leaveField);
    every(1000, () => this.#tick(), signal);
    const list = new Reader(() => this.#tasks.load(), () => { if (!this.#day) this.#dayAgain(); }, { signal });
    keepListed(this.#client, () => list.again(), signal);
    const read = new Reader(() => this.#readDay(), this.#redraw, { least: 2000, signal });
    this.#dayAgain = () => read.again();
    on(this.#client, 'reread', this.#dayAgain);
    this.#app.keys(keys({
      rows: () => this.#rows(),
      opened: () => this.#opened(),
      cards: () => this.#shelf.order(this.#tasks.cards),
      next: () => this.#next(),
      then: () => this.#acts.then(!this.#then),
      endAs: (row, n) => document.querySelectorAll(n ? '.outcomes button' : '.outcomes .complete')[Math.max(0, n - 1)]?.click(),
      cancel: () => this.#cancel(),
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
    letGo: (row, disposition) => this.#letGo(row, disposition, { next: this.#then && disposition.outcome !== 'return' }),
    later: (row, until) => this.#client.later(row.work.id, until).then(
      () => {
        row.set({ menu: '', error: '' });
        if (until && this.#open === row) this.#open = null;
        this.#said.hear(until ? t`${this.#called(row.work)}: put aside.` : t`${this.#called(row.work)}: on top again.`);
      },
      (e) => row.set({ menu: '', error: e.message }),
    ),
    then: (yes) => {
      this.#then = yes;
      localStorage.setItem(`getwork.then.${this.#app.me.user}`, yes ? 'yes' : 'no');
      this.#redraw();
    },
    bell: () => askToRing(true).then(() => this.#redraw()),
    draw: () => this.#draw(),
    undo: (row) => this.#undo(row),
    now: (row) => this.#outbox.now(row.work.id),
    dismiss: (row) => this.#pipeline.dismiss(row),
    claim: (row) => this.#claim(row),
    supply: () => {
      this.#supply.save();
      this.#tick();
    },
  };

  #dayAgain = () => {};

  /** The user's day since midnight, from a server that has it. */
  async #readDay() {
    const { cards } = this.#tasks;
    const knows = [...cards.values()].some(({ task }) => task.done_today !== undefined);
    if (knows) this.#day = await this.#app.api.day({ since: new Date(midnight()).toISOString() }).catch((e) => {
      if (e.status === 404) return null;
      throw e;
    });
  }

  /** Escape while a query is awaited. */
  #cancel() {
    const [card] = this.#waiting;
    if (!card || this.#opened() || document.querySelector(':popover-open')) return false;
    this.#tasks.cancel(card.request.task);
    return true;
  }

  #next() {
    if (this.#tasks.all.request) this.#app.say(t`You wait for the next work already.`);
    else this.#ask(all, 1);
  }

  #ask(name, count, options) {
    askToRing();
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
    row.set({ sure: false, menu: '' });
    this.#draw();
    document.getElementById('note')?.focus();
    this.#app.say(t`${this.#called(row.work)} is not let go of. ${tooLong(row.excess)}: shorten it.`);
  }

  /** The row after one that is closed; after the last one, the row before it. */
  #successor(row) {
    const { held } = this.#sorted();
    const rows = this.#rows();
    const i = rows.indexOf(row);
    const stays = (r) => r !== row && held.includes(r);
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
    this.#dayAgain();
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
    const idle = at === document.body || at === this.#title || at?.closest?.('.going') || at?.closest?.('.pending');
    const [first] = request.work ?? [];
    if (!first || !idle || !this.#place?.isConnected) return; // a user who is busy elsewhere keeps the focus
    this.#draw();
    this.#focus(this.#row(first.id));
  }

  #arrived(works) {
    const names = works.slice(0, 5).map((w) => this.#called(w)).join('; ');
    const still = () => works.every(({ id }) => this.#client.work.has(id) && !this.#outbox.of(id));
    const text = works.length > 5 ? t`New: ${names} and ${works.length - 5} more.` : t`New: ${names}.`;
    this.#said.tell(text, still);
    if (!document.hidden) return;
    this.#fresh += works.length;
    ring(text);
    this.#tick();
  }

  /** What the user completed went on to another task, and somebody has let go of it there. */
  #reviewed(work) {
    const [{ user, state, code, note }] = work.earlier;
    const text = t`${this.#called(work)}, which you completed: ${user} let go of it as ${code ?? states[state]}.`;
    this.#said.tell(note ? `${text} “${note}”` : text);
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
    badge(this.#fresh);
    if (this.#place?.isConnected) document.title = `${this.#fresh ? `${t`${this.#fresh} new`} · ` : ''}${soon ? '⏳ ' : ''}${this.#app.me.user} · getwork`;
    this.#redraw();
  }

  // Drawing.

  get #title() { return this.#place?.querySelector('#pipeline-title'); }

  #choose(row) {
    this.#open = row;
    this.#redraw();
  }

  #closeMenu({ target }) {
    for (const row of this.#pipeline.rows.values()) {
      if (row.menu && !target.closest?.('.sheet .menu')) row.set({ menu: '' });
    }
  }

  /** The rows in the order in which they lie on the desk. */
  #rows() {
    const { held, later, lost, going } = this.#sorted();
    return [...held, ...later, ...lost, ...going];
  }

  #sorted() { return sorted(this.#pipeline.rows.values(), (row) => this.#outbox.of(row.work.id)); }

  /** The row in hand: the chosen one, or where that is gone, what now stands in its place. */
  #opened() {
    const { held, later, lost } = this.#sorted();
    if (![...held, ...later, ...lost].includes(this.#open)) this.#open = held[Math.min(this.#at, held.length - 1)] ?? null;
    const at = held.indexOf(this.#open);
    if (at >= 0) this.#at = at;
    return this.#open;
  }

  /** What the user knows a work's item by. */
  #called({ task, item, details }) { return shown(this.#tasks.cards.get(task)?.task?.display, item, details, this.#pipeline.columns(task)).title; }

  /** The same, in the room that the line of the day has. */
  #short(work) { return this.#called(work).split(',')[0].slice(0, 24); }

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
    const opened = this.#opened();
    if ((opened?.work.again || opened?.work.from) && !opened.earlier && opened.asking !== opened.work.id) this.#readEarlier(opened);
    render(this.#template(opened), this.#place);
    if (!li || at.isConnected) return;
    const i = all.indexOf(li);
    const near = [li, ...all.slice(i), ...all.slice(0, i).reverse()].find((e) => e.isConnected);
    if (!focusIn(near)) this.#title.focus();
  }

  /** What was written before. */
  #readEarlier(row) {
    row.asking = row.work.id;
    this.#app.api.showWork(row.work.id).then(
      (work) => row.set({ earlier: work.earlier ?? [] }),
      (e) => row.set({ error: e.message }),
    );
  }

  get #waiting() { return [this.#tasks.all, ...this.#tasks.cards.values()].filter((c) => c.request); }

  #template(opened) {
    const { cards, loaded, error } = this.#tasks;
    const now = Date.now();
    const waiting = this.#waiting;
    const rows = this.#sorted();
    const holds = this.#holds;
    const manages = this.#app.me.role === 'manager';
    const recent = this.#recent.list();
    const total = sums(cards);
    const completed = recent.filter((w) => w.state === 'completed');
    const done = Math.max(this.#day?.done ?? 0, completed.length);
    const item = (row) => this.#item(row);
    const left = (row) => this.#client.left(row.work);
    const full = this.#full ? t`You hold ${this.#client.work.size} of ${this.#most}, over all tasks. Finish or return something before you get more.` : '';
    const first = !opened && waiting.length ? waiting[0] : null;
    const told = loaded || Boolean(error); // before a task says how its items are shown, the sheet would change its height
    const inHand = told ? opened : null;
    return html`${inHand || first || loaded ? nothing : html`<h1 class="sr">${t`Desk`}</h1>`}<div class="desk">
      ${day({ done, ended: this.#day?.ended.filter((w) => w.state === 'completed') ?? completed.map((w) => ({ at: w.closed_at })), ...total }, this.#flags(rows))}
      <div id="work"><div class="hand">${repeat(inHand ? [inHand] : [], (row) => row.key + row.work.id, (row) => sheet(row, {
        task: this.#tasks.cards.get(row.work.task)?.task, left: left(row), age: now + this.#client.ahead - row.since, item: item(row), then: this.#then, later: this.#app.me.role !== 'agent',
      }, this.#acts))}
        ${first ? pending(first, now, mayRing(), this.#acts) : nothing}
        ${!opened && !first && loaded && this.#client.state.name !== 'connecting' ? noWork({
          tasks: cards.size > 0, done, best: likely(cards)?.title, back: rows.later.length ? when(rows.later[0].work.later_until) : null,
        }, this.#supply, this.#acts) : nothing}
        <p id="heard" class="sr" role="status" dir="auto">${this.#said.heard}</p></div>
      ${mine(rows, {
        known: told && this.#client.known, opened, item, left, holds, recent, done, at: now,
        many: rows.held.length > many,
        told: this.#said.told,
        task: (row) => cards.get(row.work.task)?.task,
        entry: (row) => this.#outbox.of(row.work.id),
        title: (work) => this.#called(work),
        coming: waiting.filter((c) => c !== first).map((c) => also(c, now, this.#acts)),
      }, this.#acts)}</div>
      <section class="tray" aria-label=${t`Where work comes from`}>
        ${cards.size ? getNext(this.#tasks.all, this.#shelf, { ...this.#nextView(cards), cards, full, holds, held: (name) => this.#pipeline.held(name) }, this.#acts) : nothing}
        <div class="tasks">
          <p id="tasks-error" class="error" role="alert">${error}</p>
          <p id="full" class="sr" role="status">${full}</p>
          ${loaded && cards.size === 0 ? noTasks(manages) : nothing}
          ${cards.size ? list(cards, this.#shelf, this.#supply, {
            now, why: manages, held: (name) => this.#pipeline.held(name), putOff: (name) => this.#recent.putOff(name),
          }, this.#acts) : html`<div id="tasks"></div>`}
        </div>
      </section>
    </div>`;
  }

  /** What stands out on the line of the day: what is due, and what comes back. */
  #flags({ held, later }) {
    const due = held.filter(({ work }) => work.deadline).map(({ work }) => ({ at: Date.parse(work.deadline), time: 'half', name: t`${this.#short(work)} due` }));
    const back = later.map(({ work }) => ({ at: Date.parse(work.later_until), time: 'now', name: t`${this.#short(work)} back` }));
    return [...due, ...back];
  }

  /** How many items the user holds, without those that are being let go of. */
  get #holds() {
    let out = 0;
    for (const id of this.#client.work.keys()) if (this.#outbox.of(id)) out++;
    return this.#client.work.size - out;
  }

  #nextView(cards) {
    const { ended } = this.#tasks.all;
    return { from: ended ? cards.get(ended.task)?.task.title || ended.task : '' };
  }

  /** A row's item as it is shown. */
  #item({ work, full }) {
    return shown(this.#tasks.cards.get(work.task)?.task?.display, work.item, full ?? work.details, this.#pipeline.columns(work.task));
  }
}
