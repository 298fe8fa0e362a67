/** The pipeline: a row for each item that is held, about to be closed, or lost, with the input in it. */

import { decimals } from '../../words.js';
import { becomes, gone, mayComeBack, milliseconds } from './words.js';

const longest = 4096; // bytes of a note, in UTF-8
const utf8 = new TextEncoder();
let serial = 0;

/** A row is drawn anew when its revision has changed. */
export class Row {
  key = `work-${++serial}`; // the id of its element
  revision = 0;
  note = '';
  result = {}; // what was typed for the task's result
  asking = ''; // the work whose earlier endings are being read
  menu = ''; // the open one: later or return
  more = false; // folded details are shown
  asked = false; // details that had been left out were read
  earlier = null; // how others let go of the item before, once it was read
  full = null; // those details
  kept = null; // the lease's end that the user asked for
  others = false; // a return is to others only
  exact = false; // hours are typed
  hours = '';
  sure = false; // never was asked for once
  whole = new Set(); // columns whose long text is unfolded
  lost = null; // {why, again}: it is no longer held; again: claiming it makes sense
  claiming = false;
  error = '';

  constructor(work, changed) {
    this.changed = changed;
    this.hold(work);
  }

  set(what) {
    Object.assign(this, what);
    this.revision++;
    this.changed();
  }

  /** By about how many characters the note is too long. */
  get excess() {
    const text = this.note.trim();
    const { length } = utf8.encode(text);
    return Math.ceil((Math.max(0, length - longest) * text.length) / (length || 1));
  }

  /** The note is being written. */
  write(note) {
    const before = this.excess;
    this.note = note;
    if (this.excess !== before) this.revision++;
    this.changed();
  }

  /** The work is held: it is new, is another's of the same item, or its lease has changed. */
  hold(work) {
    if (this.work?.id !== work.id) {
      this.since = Date.parse(work.assigned_at);
      this.tried = -Infinity; // when its lease was last renewed by itself
      this.looked = null; // the lease's end at which it was looked for
      this.lost = null;
      this.earlier = null;
      this.error = '';
    }
    this.work = work;
    this.lease = milliseconds(work.lease);
    this.revision++;
  }

  /** Whether a lease with so much left (ms; null: there is none) is about to run out. */
  ends(left) { return left !== null && !this.lost && (this.work.expiring || left <= this.lease / 5); }
}

const named = ({ task, item }) => `${task} ${item}`; // a holder has an item of a task at most once

export class Pipeline {
  rows = new Map();
  #columns = new Map(); // by task: how many decimals its columns have
  #client; #outbox; #on;
  #former; // the former page's notes, until the pipeline is known
  #begun = false;
  #renewing = false;

  /** on: {changed(), tell(row, line), arrived(works)}; former: the former page's notes. */
  constructor(client, outbox, on, former) {
    this.#client = client;
    this.#outbox = outbox;
    this.#on = on;
    this.#former = former;
  }

  /** The notes, as Drafts has them. */
  get notes() {
    const rows = [...this.rows.values()].filter(({ note, lost }) => (lost ? note.trim() : note));
    return [...this.#former, ...rows.map(({ work: { id, task, item }, note, lost }) => [id, note, { task, item, lost }])];
  }

  /** Updates the rows from the client and the outbox. read: the client has read the pipeline. */
  sync(read = false) {
    const { work: held } = this.#client;
    const fresh = [];
    for (const work of held.values()) {
      const row = this.rows.get(named(work));
      if (row?.work === work) continue;
      if (row?.work.id !== work.id) this.#measure(work);
      if (row) row.hold(work);
      else {
        this.rows.set(named(work), this.#row(work));
        fresh.push(work);
      }
    }
    if (this.#client.known) this.#restore();
    for (const [name, { work, lost }] of this.rows) {
      if (!lost && !held.has(work.id) && !this.#outbox.mine(work.id)) this.rows.delete(name);
    }
    if (this.#begun && fresh.length) this.#on.arrived(fresh);
    this.#begun ||= read;
    this.#on.changed();
  }

  #row(work) {
    const row = new Row(work, this.#on.changed);
    const [, note = ''] = this.#former.find(([id, , of]) => id === work.id || (of && named(of) === named(work))) ?? [];
    row.note = note;
    return row;
  }

  /** The pipeline is known: former notes on work that is not in it get rows, which stay until the user puts them away. */
  #restore() {
    for (const [id, text, of] of this.#former) {
      if (!of || !text.trim() || this.rows.has(named(of))) continue;
      const work = { id, task: of.task, item: of.item, state: 'held' };
      const row = this.#row(work);
      if (!this.#outbox.mine(id)) row.lost = of.lost ?? { why: gone(work), again: mayComeBack(work) };
      this.rows.set(named(work), row);
    }
    this.#former = [];
  }

  /** How many decimals each column of a task needs, so that a column's numbers are written alike. */
  columns(task) { return this.#columns.get(task); }

  #measure({ task, details }) {
    const before = this.#columns.get(task) ?? new Map();
    const these = Object.entries(details ?? {}).map(([column, v]) => [column, decimals([v])]);
    const wider = these.filter(([column, n]) => n > (before.get(column) ?? 0));
    if (wider.length) this.#columns.set(task, new Map([...before, ...wider]));
  }

  /** How many items of a task are held, including those about to be closed. */
  held(task) {
    let n = 0;
    for (const work of this.#client.work.values()) if (work.task === task) n++;
    return n;
  }

  /** Work is gone. A row whose lease ran out, or that has input, stays; otherwise a message is enough. */
  lose(work) {
    const row = this.rows.get(named(work));
    if (row?.work.id !== work.id) return;
    const entry = this.#outbox.of(work.id);
    if (entry && !entry.elsewhere && entry.state !== 'waiting') {
      if (work.state === 'held') return; // its outcome is unknown: sending the disposition again will show it
      if (becomes[entry.disposition.outcome] === work.state) return this.#outbox.arrived(work);
    }
    const left = this.#client.left(work);
    const over = left !== null && left < 2000; // without push the time is known to the second only
    const why = gone(work, over);
    if (work.state === 'expired' || work.exhausted || (work.state === 'held' && over) || row.note.trim()) {
      row.set({ lost: { why, again: mayComeBack(work) }, error: '', sure: false });
    } else this.rows.delete(named(work));
    if (!entry?.elsewhere) this.#on.tell(row, why);
    this.#outbox.drop(work.id); // last, because a row that is neither lost nor waiting is removed
  }

  dismiss(row) {
    this.rows.delete(named(row.work));
    this.#on.changed();
  }

  /**
   * The user is active: renews leases of which a quarter is used up, one after another. After a failure each waits as long
   * again. Lost work causes an event of its own.
   */
  async renew() {
    if (this.#renewing) return;
    this.#renewing = true;
    const now = performance.now();
    for (const row of [...this.rows.values()]) {
      const left = this.#client.left(row.work);
      const due = left !== null && !row.lost && (row.work.expiring || left <= row.lease * 0.75);
      if (!due || now - row.tried < row.lease / 4 || !this.#client.work.has(row.work.id)) continue;
      row.tried = now;
      await this.#client.extend(row.work.id).catch(() => {});
    }
    this.#renewing = false;
  }

  /** A lease's time is up. If no event says what became of the work, it is looked up, once. */
  look(row) {
    const { id, lease_expires_at: until } = row.work;
    if (row.looked === until) return;
    row.looked = until;
    setTimeout(() => this.#client.work.has(id) && this.#client.refresh().catch(() => {}), 2000);
  }
}
