/**
 * Dispositions that are not sent yet. Each can be undone for five seconds.
 *
 * An entry is {work, disposition, due, state, busy, from, next}: due is when it is sent (ms), and state
 *   waiting   it can be undone
 *   sending   the call is under way
 *   kept      the server could not be reached, was busy, or nobody was logged in any more; it is sent again until that succeeds,
 *             but not before from (ms), unless the page is left. It may have arrived
 * and elsewhere is true if it is another tab's. That tab sends it; if the tab dies, the work is still held.
 *
 * Dispositions are idempotent. So the next page of this tab sends again what the former one could not send.
 */

const grace = 5000; // ms in which it can be undone
const reserve = 1500; // it is sent at the latest so many ms before the lease's end
const busy = [429, 503];
const later = [0, 401, ...busy, 502, 504]; // after these failures, a proxy's included, the call may have been executed
const retries = [1000, 20_000]; // ms between attempts: the first wait, doubled each time, and the longest
const beat = 2000; // ms between two announcements of a tab's entries; a tab that is silent for three beats is dead

export class Outbox {
  #client;
  #on;
  #mine = new Map(); // by the work's id
  #former = new Map(); // those of a former page, until the pipeline is known
  #others = new Map(); // by tab
  #tab = String(Math.random());
  #tabs = new BroadcastChannel('getwork-desk');

  /** on: {changed(), sent(entry, work), kept(entry), failed(entry, error)}; former: the former page's unanswered entries. */
  constructor(client, on, former) {
    this.#client = client;
    this.#on = on;
    for (const entry of former) this.#mine.set(entry.work.id, { ...entry, state: 'kept', tries: 0 });
    this.#former = new Map(this.#mine);
    client.addEventListener('change', () => this.#resume());
    this.#resume();
    this.#tabs.addEventListener('message', (e) => this.#hear(e.data));
    this.#tabs.postMessage({ asks: this.#tab });
    setInterval(() => this.#beat(), beat);
    client.addEventListener('state', (e) => { if (e.detail.name === 'live') this.#again(); });
    // A page that is left or hidden may never run again: phones end it without an event.
    window.addEventListener('pagehide', () => this.#sendAll({ keepalive: true }));
    document.addEventListener('visibilitychange', () => { if (document.hidden) this.flush({ keepalive: true }); });
    window.addEventListener('beforeunload', (e) => {
      // Nobody is logged in, or somebody anew: the page leaves by itself, and what is kept waits for its user.
      const over = document.body.hidden || ['closed', 'unauthenticated', 'forbidden'].includes(client.state.reason);
      if (this.#kept().length > 0 && !over) e.preventDefault();
    });
  }

  /** Entries that were sent and not answered must survive this page. Waiting ones are sent when the page is left, or stay held. */
  get unanswered() {
    const sent = [...this.#mine.values()].filter((e) => e.state !== 'waiting');
    return sent.map(({ work: { id, task, item }, disposition, due, busy: full, from }) =>
      ({ work: { id, task, item }, disposition, due, busy: full, from }));
  }

  /** The items of all tabs that are not sent yet. */
  get unsent() {
    const others = [...this.#others.values()].flatMap(({ entries }) => [...entries.values()]);
    return [...new Set([...this.#mine.values(), ...others].map((e) => e.work.item))]; // a duplicated tab has the same ones
  }

  /** next: any value that the caller wants back when it is sent. */
  add(work, disposition, next) {
    const left = this.#client.left(work);
    const wait = Math.max(0, left === null ? grace : Math.min(grace, left - reserve));
    const entry = { work, disposition, next, due: Date.now() + wait, state: 'waiting', from: 0, tries: 0 };
    entry.timer = setTimeout(() => this.#send(entry), wait);
    this.#mine.set(work.id, entry);
    this.#changed();
  }

  /** The entry for a work's id, of this tab or another. */
  of(id) {
    const mine = this.#mine.get(id);
    if (mine || this.#others.size === 0) return mine;
    for (const { entries } of this.#others.values()) if (entries.has(id)) return entries.get(id);
    return undefined;
  }

  mine(id) { return this.#mine.get(id); }

  /** The work's id of the last entry that can be undone. */
  get last() { return [...this.#mine.values()].findLast((e) => e.state === 'waiting')?.work.id; }

  /** Undoes it, here or in the tab where it waits. Returns whether it was here. */
  undo(id) {
    const entry = this.#mine.get(id);
    if (!entry) this.#tabs.postMessage({ undo: id });
    if (entry?.state !== 'waiting') return false;
    this.drop(id);
    return true;
  }

  /** Forgets it, unsent. */
  drop(id) {
    clearTimeout(this.#mine.get(id)?.timer);
    if (this.#mine.delete(id)) this.#changed();
  }

  /** Sends one at once. */
  now(id) { return this.#send(this.#mine.get(id)); }

  /** Sends waiting and kept entries, and again those under way. keepalive: the page may be left. */
  flush(options) { return this.#sendAll(options, (e) => e.state !== 'kept' || e.from <= Date.now()); }

  #sendAll(options, which = () => true) {
    return Promise.all([...this.#mine.values()].filter(which).map((e) => this.#send(e, options)));
  }

  /** Sends everything, in all tabs, before a log-out from all of them. Nothing more is asked for. */
  async leave() {
    this.#tabs.postMessage({ leave: true });
    await this.#end();
    while (this.#others.size) await new Promise((heard) => this.#tabs.addEventListener('message', heard, { once: true }));
  }

  #end() {
    for (const entry of this.#mine.values()) entry.next = false;
    return this.#sendAll();
  }

  async #send(entry, options) {
    clearTimeout(entry.timer);
    const { reason } = this.#client.state;
    if (reason === 'closed') return; // logged out; another user may be logged in already
    if (reason === 'unauthenticated' || reason === 'forbidden') { // so, too; but the same user's next page sends it
      entry.state = 'kept';
      this.#changed();
      return;
    }
    const { id } = entry.work;
    entry.state = 'sending';
    this.#changed();
    let work;
    try {
      work = await this.#client.dispose(id, entry.disposition, { ...options, repeats: 0 });
    } catch (e) {
      if (this.#mine.get(id) !== entry) return; // it has arrived in another way
      if (later.includes(e.status)) this.#keep(entry, e);
      else {
        this.#mine.delete(id);
        this.#on.failed(entry, e);
        this.#changed();
      }
      return;
    }
    this.arrived(work);
  }

  /** Work is closed as its entry wanted: by the server's answer, or by a push if the answer was lost. */
  arrived(work) {
    const entry = this.#mine.get(work.id);
    if (!entry) return;
    this.drop(work.id);
    this.#on.sent(entry, work);
  }

  #keep(entry, error) {
    const [first, most] = retries;
    entry.state = 'kept';
    entry.busy = busy.includes(error.status);
    entry.from = Date.now() + error.retryAfter;
    if (entry.tries === 0) this.#on.kept(entry);
    this.#sendIn(entry, Math.max(error.retryAfter, Math.min(most, first * 2 ** entry.tries++)));
    this.#changed();
  }

  #sendIn(entry, ms) {
    clearTimeout(entry.timer);
    entry.timer = setTimeout(() => this.#send(entry), ms);
  }

  #kept() { return [...this.#mine.values()].filter((e) => e.state === 'kept'); }

  /** The server is back. */
  #again() { for (const entry of this.#kept()) if (entry.from <= Date.now()) this.#send(entry); }

  /** The pipeline is known: the former page's entries are sent, though they may have arrived. */
  #resume() {
    if (!this.#client.known) return;
    for (const [id, entry] of this.#former) {
      if (this.#mine.get(id) === entry) this.#sendIn(entry, Math.max(0, entry.from - Date.now()));
    }
    this.#former.clear();
  }

  // Other tabs.

  #changed() {
    this.#say();
    this.#on.changed();
  }

  #say() {
    const entries = [...this.#mine.values()].map(({ work: { id, task, item }, disposition: { outcome, after, to }, due, state, busy: full }) =>
      ({ work: { id, task, item }, disposition: { outcome, after, to }, due, state, busy: full, elsewhere: true }));
    this.#tabs.postMessage({ tab: this.#tab, entries });
  }

  #hear({ tab, entries, undo, asks, leave }) {
    if (undo && this.#mine.get(undo)?.state === 'waiting') this.drop(undo); // not undo(), or three tabs would tell each other for ever
    if (leave) this.#end();
    if (asks && this.#mine.size) this.#say();
    if (!tab) return;
    if (entries.length) this.#others.set(tab, { at: Date.now(), entries: new Map(entries.map((e) => [e.work.id, e])) });
    else if (!this.#others.delete(tab)) return;
    this.#on.changed();
  }

  #beat() {
    if (this.#mine.size) this.#say();
    for (const [tab, { at }] of this.#others) {
      if (Date.now() - at < 3 * beat) continue;
      this.#others.delete(tab);
      this.#on.changed();
    }
  }
}
