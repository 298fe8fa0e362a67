/** The desk of somebody who works: tasks, Get Work, and the pipeline. */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { guard } from '../lib/lit-html/directives/guard.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { ask } from '../dialog.js';
import { every, onceAFrame, when } from '../parts.js';
import { Reader, keepListed } from '../reader.js';
import { held, letGo, outcome, remaining } from '../words.js';
import { card, keptBecause, line, tooLong, wanted } from './desk/card.js';
import { Drafts } from './desk/drafts.js';
import { Outbox } from './desk/outbox.js';
import { mayAsk, panel } from './desk/panel.js';
import { Pipeline } from './desk/pipeline.js';
import { Recent } from './desk/recent.js';
import { Tasks } from './desk/tasks.js';

const dense = [6, 12]; // with more rows than the second they are closed, with no more than the first they are open again
const many = 60; // with more rows than these, those that are out of sight are not laid out
const shown = 8; // of what was let go of

const always = () => true;

let desk; // what is typed, or about to be sent, outlasts a look at another view

export function open(app, place) {
  wake(app);
  return desk.open(place);
}

/** Has it do what nobody has to look at: it sends what the page before could not. */
export function wake(app) {
  desk ??= new Desk(app);
}

class Desk {
  #app; #client; #drafts; #outbox; #pipeline; #recent; #tasks;
  #place = null; // where it is shown
  #redraw = () => {};
  #dense = false;
  #fresh = 0; // how much has arrived while nobody looked
  #nexts = new Set(); // requests made by "complete and next"
  #owed = new Map(); // by task: how many "complete and next" still wants
  #told = { at: -Infinity, lines: [] };
  #heard = { text: '', still: always };
  #active = 0; // when somebody last did something

  constructor(app) {
    const { client } = app;
    this.#app = app;
    this.#client = client;
    this.#drafts = new Drafts(app.me.user);
    this.#recent = new Recent(app.me.user);
    this.#tasks = new Tasks(client, () => this.#redraw());
    this.#outbox = new Outbox(client, {
      changed: () => this.#pipeline.sync(),
      sent: (entry, work) => this.#sent(entry, work),
      kept: (entry) => this.#kept(entry),
      failed: (entry, error) => this.#failed(entry, error),
    }, this.#drafts.kept);
    this.#pipeline = new Pipeline(client, this.#outbox, {
      changed: () => this.#changed(),
      tell: (text) => this.#tell(text),
      arrived: (works) => this.#arrived(works),
    }, this.#drafts.notes);
    this.#pipeline.sync(client.known); // which may have been read before this came to be
    app.leaving.add(() => this.#leave());
    client.addEventListener('change', () => this.#pipeline.sync(true));
    client.addEventListener('gone', (e) => this.#pipeline.lose(e.detail));
    client.addEventListener('request', (e) => this.#request(e.detail));
    client.addEventListener('run', (e) => this.#tasks.ran(e.detail));
    client.addEventListener('task', (e) => this.#tasks.update(e.detail));
    client.addEventListener('hello', () => this.#tasks.forgetRuns());
  }

  #changed() {
    const left = this.#client.state.reason === 'closed'; // logged out: nothing stays
    if (!left) this.#drafts.save(this.#pipeline.notes, this.#outbox.unanswered);
    this.#redraw();
  }

  open({ element, signal }) {
    const on = (target, type, f, options) => target.addEventListener(type, f, { signal, ...options });
    this.#place = element;
    this.#redraw = onceAFrame(() => this.#draw(), signal);
    signal.addEventListener('abort', () => this.#outbox.flush());
    on(this.#client, 'state', this.#redraw);
    // Who is at the page keeps what he holds. Not `scroll`: that comes of what the page does itself, too; whoever scrolls
    // uses a wheel, a finger, a key or the pointer.
    for (const type of ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchmove']) {
      on(document, type, (e) => this.#keep(e), { capture: true, passive: true });
    }
    on(document, 'visibilitychange', () => this.#seen());
    on(element, 'click', notTwice, { capture: true });
    on(element, 'keydown', leaveField);
    every(1000, () => this.#tick(), signal);
    const list = new Reader(() => this.#tasks.load(), () => {}, { signal });
    keepListed(this.#client, () => list.again(), signal);
    this.#app.keys(this.#keys(), signal);
    this.#draw();
    this.#tick();
    return list.again();
  }

  // What somebody does.

  #acts = {
    ask: (name, count, options) => this.#ask(name, count, options),
    cancel: (name) => this.#tasks.cancel(name),
    extend: (row) => this.#client.extend(row.work.id).catch((e) => row.set({ error: row.lost ? '' : e.message })),
    letGo: (row, disposition, options) => this.#letGo(row, disposition, options),
    undo: (row) => this.#undo(row),
    now: (row) => this.#outbox.now(row.work.id),
    dismiss: (row) => this.#pipeline.dismiss(row),
    claim: (row) => this.#claim(row),
  };

  #ask(name, count, options) {
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
    const later = next && limit && this.#pipeline.held(work.task) >= limit;
    const successor = this.#successor(row);
    row.set({ sure: false, error: '' });
    this.#outbox.add(work, note ? { ...disposition, note } : disposition, later);
    if (this.#dense && row.open && successor) successor.open = true;
    const undoable = () => this.#outbox.of(work.id)?.state === 'waiting';
    this.#hear(`${work.item}: ${letGo(wanted(this.#outbox.of(work.id)))}. It can be undone for five seconds.`, undoable);
    this.#draw();
    this.#focus(successor ?? row);
    if (next && !later) this.#next(work.task);
  }

  #tooLong(row) {
    row.set({ noting: true, open: true, sure: false });
    this.#draw();
    document.querySelector(`#${row.key} textarea`)?.focus();
    this.#app.say(`${row.work.item} is not let go of. ${tooLong(row.excess)}: shorten it.`);
  }

  /** The row after one that is let go of; where it was the last, the one before it. */
  #successor(row) {
    const rows = [...this.#pipeline.rows.values()];
    const i = rows.indexOf(row);
    const stays = (r) => r !== row && !this.#outbox.of(r.work.id);
    return rows.slice(i).find(stays) ?? rows.slice(0, i).findLast(stays);
  }

  #undo(row) {
    if (!this.#outbox.undo(row.work.id)) return;
    this.#hear(`${row.work.item}: still yours.`);
    this.#draw();
    this.#focus(row);
  }

  #sent({ work, next }, closed) {
    this.#recent.add(closed);
    if (next) this.#next(work.task);
    this.#pipeline.sync();
  }

  #kept(entry) {
    const text = `${entry.work.item}: ${keptBecause(entry)}`;
    this.#hear(text);
    if (!this.#place?.isConnected) this.#app.say(text);
  }

  #failed({ work }, error) {
    const row = this.#row(work.id);
    if (row && !this.#client.work.has(work.id)) this.#pipeline.lose(row.work); // which waited for this answer
    if (row && !row.lost) row.set({ error: error.message });
    const text = `${work.item} was not let go of: ${row?.lost?.why ?? error.message}`;
    this.#tell(text);
    if (!this.#place?.isConnected) this.#app.say(text);
  }

  /** Somebody logs out, and what waits is sent. false: some of it can't be, and he would rather stay. */
  async #leave() {
    await Promise.race([this.#outbox.leave(), new Promise((done) => setTimeout(done, 3000))]);
    const { unsent } = this.#outbox;
    return !unsent.length || ask({
      title: 'Log out before all is sent?',
      text: `The server can’t be told now what you did with: ${unsent.join(', ')}. Who stays logged in has it sent as soon as it can be; `
        + 'if you log out, it stays yours, and your notes on it are lost.',
      yes: 'Log out all the same',
      no: 'Stay',
      danger: true,
    });
  }

  /** Asks for what "complete and next" wants; what comes to that meanwhile is asked for when the task is free again. */
  async #next(name, more = 1) {
    const owed = (this.#owed.get(name) ?? 0) + more;
    if (owed > 0) this.#owed.set(name, owed);
    const card = this.#tasks.cards.get(name);
    if (!owed || !card || card.busy || card.request) return;
    this.#owed.delete(name);
    const request = await this.#tasks.ask(name, Math.min(owed, card.task.max_request));
    if (card.error) this.#tell(`There is no next: ${card.error}`);
    if (!request) return;
    this.#nexts.add(request.id);
    const ended = request.state === 'pending' ? card.ended : request; // a push may have overtaken the answer
    if (ended?.id === request.id) this.#nextEnded(ended);
    this.#next(name, 0);
  }

  async #claim(row) {
    if (row.claiming) return;
    const { lost } = row;
    row.set({ claiming: true, error: '' }); // the query may have to run for it
    try {
      const work = await this.#client.claim(row.work.task, row.work.item);
      this.#tell(`${work.item}: yours again.`);
    } catch (e) {
      if (row.lost === lost) row.set({ error: `It can’t be claimed: ${e.message}.` });
    } finally {
      row.set({ claiming: false });
    }
  }

  #keep(e) {
    const now = performance.now();
    const still = e.type === 'pointermove' && !e.movementX && !e.movementY; // the page moved, under a hand that did not
    if (document.hidden || still || now - this.#active < 200) return;
    this.#active = now;
    this.#pipeline.renew();
  }

  // What happens.

  #request(request) {
    this.#tasks.show(request);
    if (this.#nexts.has(request.id) && request.state !== 'pending') this.#nextEnded(request);
    this.#next(request.task, 0);
  }

  #nextEnded(request) {
    this.#nexts.delete(request.id);
    if (request.assigned === 0) this.#owed.delete(request.task);
    const { task } = this.#tasks.cards.get(request.task) ?? {};
    if (request.assigned === 0) this.#tell(`There is no next: ${outcome(request, task?.max_open, this.#pipeline.held(request.task))}`);
    const at = document.activeElement;
    const idle = at === document.body || at === this.#title || at?.closest?.('.going');
    const [first] = request.work ?? [];
    if (!first || !idle || !this.#place?.isConnected) return; // who is busy elsewhere is left alone
    this.#draw();
    this.#focus(this.#row(first.id));
  }

  #arrived(works) {
    if (document.hidden) {
      this.#fresh += works.length;
      this.#tick();
    }
    const names = works.slice(0, 5).map((w) => w.item).join(', ');
    const still = () => works.every(({ id }) => this.#client.work.has(id) && !this.#outbox.of(id));
    this.#tell(`New: ${names}${works.length > 5 ? ` and ${works.length - 5} more` : ''}.`, still);
  }

  #seen() {
    if (document.hidden) return;
    this.#fresh = 0;
    this.#tick();
  }

  /** Says something about the pipeline, for as long as it is true. What is told at the same time stands together. */
  #tell(text, still = always) {
    const now = performance.now();
    const line = { text, still };
    this.#told = { at: now, lines: now - this.#told.at < 1000 ? [...this.#told.lines, line].slice(-5) : [line] };
    this.#redraw();
  }

  /** The same, of what everybody else sees at once. */
  #hear(text, still = always) {
    this.#heard = { text, still };
    this.#redraw();
  }

  /** What changes with time alone. */
  #tick() {
    let soon = false;
    for (const row of this.#pipeline.rows.values()) {
      const left = this.#client.left(row.work);
      if (left === null || row.lost) continue;
      soon ||= row.ends(left);
      if (left === 0) this.#pipeline.look(row);
    }
    document.title = `${this.#fresh ? `${this.#fresh} new · ` : ''}${soon ? '⏳ ' : ''}${this.#app.me.user} · getwork`;
    this.#redraw();
  }

  // What is seen.

  get #title() { return this.#place?.querySelector('#pipeline-title'); }

  /** On a phone the tasks stand before the pipeline. */
  #jump = (e) => {
    e.preventDefault();
    this.#title.focus();
    this.#title.scrollIntoView();
  };

  #row(id) { return [...this.#pipeline.rows.values()].find((r) => r.work.id === id); }

  #focus(row) { focusIn(document.getElementById(row?.key)) || this.#title?.focus(); }

  /** Draws, and finds a place for a focus that was lost by it: in the same card, the next, or the one before. */
  #draw() {
    const at = document.activeElement;
    const li = this.#place.contains(at) ? at.closest('li') : null;
    const all = li ? [...li.parentElement.children] : [];
    render(this.#template(), this.#place);
    if (!li || at.isConnected) return;
    const i = all.indexOf(li);
    const near = [li, ...all.slice(i), ...all.slice(0, i).reverse()].find((e) => e.isConnected);
    if (!focusIn(near)) this.#title.focus();
  }

  #template() {
    const { cards, loaded, error } = this.#tasks;
    const { rows } = this.#pipeline;
    const now = Date.now();
    this.#dense = rows.size > dense[this.#dense ? 0 : 1];
    let out = 0;
    for (const id of this.#client.work.keys()) if (this.#outbox.of(id)) out++;
    const holds = this.#client.work.size - out;
    if (!this.#heard.still()) this.#heard = { text: '', still: always };
    this.#told.lines = this.#told.lines.filter(({ still }) => still());
    return html`<h1 class="visually-hidden">Work</h1>
    <div class="desk">
      ${holds ? html`<a class="jump" href="#pipeline-title" @click=${this.#jump}>Your pipeline <span class="count">${holds}</span></a>` : nothing}
      <section class="tasks" aria-labelledby="tasks-title">
        <h2 id="tasks-title">Tasks</h2>
        <p id="tasks-error" class="error" role="alert">${error}</p>
        ${loaded && cards.size === 0 ? this.#noTasks() : nothing}
        <ul id="tasks" class="cards">${repeat(cards, ([name]) => name, ([name, c], i) => panel(c, {
          now, number: i + 1, held: this.#pipeline.held(name), putOff: this.#recent.putOff(name, now + this.#client.ahead),
        }, this.#acts))}</ul>
      </section>
      <section class="pipeline" aria-labelledby="pipeline-title">
        <h2 id="pipeline-title" tabindex="-1">Your pipeline <span id="held" class="count">${holds || ''}</span></h2>
        <p id="told" class="said" role="status" dir="auto">${this.#told.lines.map(({ text }) => text).join('\n')}</p>
        <p id="heard" class="visually-hidden" role="status" dir="auto">${this.#heard.text}</p>
        ${rows.size === 0 && this.#client.state.name !== 'connecting' ? empty(cards.size) : nothing}
        <ul id="work" class="cards ${this.#dense ? 'dense' : ''} ${rows.size > many ? 'many' : ''}">${
          repeat(rows.values(), (row) => row.key, (row) => this.#item(row, now))}</ul>
      </section>
      ${this.#letGoOf()}
    </div>`;
  }

  /** A row's element, drawn anew only when something that is seen of it has changed. */
  #item(row, now) {
    const { work } = row;
    const entry = this.#outbox.of(work.id);
    if (entry && !row.lost) {
      const seconds = Math.max(0, Math.ceil((entry.due - now) / 1000));
      return guard([row.key, entry, entry.state, entry.busy, seconds], () => line(row, entry, seconds, this.#acts));
    }
    const left = this.#client.left(work);
    const age = now + this.#client.ahead - row.since;
    const task = this.#tasks.cards.get(work.task)?.task;
    const columns = this.#pipeline.columns(work.task);
    const open = row.open ?? !this.#dense;
    const texts = [task?.title, task?.slots, left === null ? '' : remaining(left), held(age)];
    const seen = [row.key, row.revision, open, row.ends(left), columns, ...texts];
    return guard(seen, () => card(row, { open, task, left, age, columns }, this.#acts));
  }

  #noTasks() {
    return html`<p id="no-tasks" class="empty">There are no tasks yet. ${this.#app.me.role === 'manager'
      ? html`<a href="/tasks">Create the first one</a>, or use <code>getwork task create</code>.`
      : html`A manager makes them; come back when yours has, and they are here.`}</p>`;
  }

  #letGoOf() {
    const all = this.#recent.list();
    if (all.length === 0) return nothing;
    const ahead = this.#client.ahead;
    return html`<section class="recent" aria-labelledby="recent-title">
      <h2 id="recent-title">Let go of today <span class="count">${all.length}</span></h2>
      <ul id="recent">${repeat(all.slice(0, shown), (w) => w.id, (w) => html`<li>
        <b dir="auto">${w.item}</b> <span class="quiet">${when(new Date(Date.parse(w.closed_at) - ahead).toISOString())}</span>
        <span class="became">${letGo(w)}</span></li>`)}</ul>
      ${all.length > shown ? html`<p class="quiet">and ${all.length - shown} before.</p>` : nothing}
    </section>`;
  }

  // Keys. They act on the card that has the focus.

  #keys() {
    const at = () => {
      const { id } = document.activeElement?.closest('#work > li') ?? {};
      return [...this.#pipeline.rows.values()].find((r) => r.key === id);
    };
    const onRow = (f) => () => {
      const row = at();
      if (!row) this.#app.say('Choose an item first, with j and k.');
      else f(row);
    };
    const inCard = (selector, act) => onRow((row) => {
      if (row.lost || this.#outbox.of(row.work.id)) return;
      row.set({ open: true });
      this.#draw();
      act(document.querySelector(`#${row.key} ${selector}`), row);
    });
    const move = (step, within) => () => {
      const rows = [...this.#pipeline.rows.values()];
      const row = at();
      if (within && !row) return false; // the page scrolls
      const to = rows[row ? rows.indexOf(row) + step : step > 0 ? 0 : rows.length - 1];
      if (to) this.#focus(to);
    };
    const numbered = (n) => [...this.#tasks.cards.values()][n - 1];
    const get = (c) => {
      if (!c || c.request) this.#app.say(c ? 'You wait for work of this task already.' : 'There is no such task.');
      else this.#acts.ask(c.task.name, c.count);
    };
    const key = (name, does, run, repeated) => ({ key: name, does, run, repeat: repeated });
    const extend = (row) => { if (row.work.lease_expires_at && !row.lost) this.#acts.extend(row); };
    const write = (field, row) => {
      row.set({ noting: true });
      this.#draw();
      field?.focus();
    };
    const never = (button) => {
      button?.focus();
      button?.click();
    };
    return [
      key('j', 'Next item', move(1), true),
      key('k', 'Item before', move(-1), true),
      key('ArrowDown', undefined, move(1, true), true),
      key('ArrowUp', undefined, move(-1, true), true),
      key('Enter', 'Open or close an item'), // as of any button
      key('c', 'Complete', onRow((row) => this.#letGo(row, { outcome: 'complete' }))),
      key('n', 'Complete and next', onRow((row) => this.#letGo(row, { outcome: 'complete' }, { next: true }))),
      key('r', 'Return: then Tab to for how long, and Enter', inCard('.return button', (button) => button?.focus())),
      key('x', 'Never again; twice, to be sure', inCard('.never', never)),
      key('e', 'Keep: the lease begins anew', onRow(extend)),
      key('o', 'Write a note', inCard('textarea', write)),
      key('Escape', 'Leave a field'),
      key('u', 'Undo', () => this.#undoLast(at())),
      key('w', 'Get work of the item’s task, or the first', () => get(this.#tasks.cards.get(at()?.work.task) ?? numbered(1))),
      key('g 1', 'Get work of the first task; g 2 of the second …', () => get(numbered(1))),
      ...[2, 3, 4, 5, 6, 7, 8, 9].map((n) => key(`g ${n}`, undefined, () => get(numbered(n)))),
    ];
  }

  #undoLast(row) {
    const entry = row && this.#outbox.of(row.work.id);
    const last = entry?.state === 'waiting' ? row : this.#row(this.#outbox.last);
    if (last) this.#undo(last);
    else this.#app.say('There is nothing to undo.');
  }
}

function empty(tasks) {
  return html`<div id="empty" class="empty"><p>You hold nothing. ${tasks ? 'Choose a task, and get work.' : ''}</p>
    ${tasks ? html`<ol>
      <li>Say how many items you want, and press <b>Get Work</b>. The best that there is comes here, for you alone.</li>
      <li>Do what there is to do. Then <b>Complete</b> it, or <b>Return</b> it: for some hours, or until tomorrow.</li>
      <li>What you did by mistake can be undone for five seconds.</li>
    </ol>` : nothing}</div>`;
}

/** Gives the focus to the first thing in a card that can be used; false: there is none. */
function focusIn(element) {
  const to = element?.querySelector('.key, .undo') ?? element?.querySelector('button');
  to?.focus();
  return Boolean(to);
}

/** The second click of a double one is no click on what has come to stand there, nor an answer to "Really never?". */
function notTwice(e) {
  if (e.detail < 2 || !e.target.closest('.done button')) return;
  e.preventDefault();
  e.stopPropagation();
}

/** Escape in a field goes back to its card, where keys act on it. */
function leaveField(e) {
  if (e.key === 'Escape' && e.target.matches('input, textarea')) focusIn(e.target.closest('li'));
}
