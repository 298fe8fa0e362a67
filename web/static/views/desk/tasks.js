/** The tasks open to the user, and the user's requests. */

import { t } from '../../lang.js';
import { taskList } from '../../reader.js';
import { all } from './next.js';
import { progress } from './progress.js';

const sameClick = 120_000; // ms in which a click without an answer and its repetition count once

/** An idempotency key. Not randomUUID: a page without TLS has none. */
const key = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');

/** What is known of one task. */
class Card {
  count = 3; // how many items are asked for next
  request = null; // the pending one
  since = 0; // when it was made, by this machine's clock
  ended = null; // the one that ended last
  full = null; // {open, most}: it ended at the limit over all tasks
  run = null; // {since} or {phase} of the task, while one is known
  due = null; // when the result should be there; null: unknown
  error = '';
  busy = false;
  open = false; // description, number and counts are shown
  asked = null; // {text, key, at}: the last click, while it has no answer
  #shown = 0;

  /** The bar's state at a time: it never goes back, nor reaches its end; null: the duration is unknown. */
  bar(now) {
    if (this.due === null) return null;
    this.#shown = Math.max(this.#shown, progress(now - this.since, this.due - this.since));
    return this.#shown;
  }

  /** How long the query has run, in ms; null: it does not run, as far as is known. */
  running(now) { return this.run?.since ? Math.max(0, now - this.run.since) : null; }

  /** How long it usually runs, in ms; null: unknown. */
  get usual() {
    if (this.task) return this.task.usual_seconds ? 1000 * this.task.usual_seconds : null;
    return this.due > this.run?.since ? this.due - this.run.since : null; // of all tasks together
  }

  foresee(seconds) { this.due = seconds === null ? null : Date.now() + 1000 * seconds; }

  begin(request, ahead) {
    if (this.request?.id !== request.id) this.#shown = 0;
    this.request = request;
    this.since = Math.min(Date.now(), Date.parse(request.created_at) - ahead);
    this.foresee(request.eta_seconds);
  }
}

export class Tasks {
  cards = new Map(); // by name, in the order in which they came
  loaded = false;
  error = '';
  #client; #changed; #list;
  #known = new Map(); // cards, also of tasks that are not listed now

  constructor(client, changed) {
    this.#client = client;
    this.#changed = changed;
    this.#list = taskList(client, () => client.tasks());
  }

  /** Reads the tasks. A failure is shown, and rejects the promise. */
  async load() {
    let found;
    try {
      found = await this.#list();
    } catch (e) {
      this.error = this.loaded ? '' : t`The tasks can’t be shown now: ${e.message}.`; // later the banner says it
      this.#changed();
      throw e;
    }
    if (!found) return; // a later one comes
    this.error = '';
    this.loaded = true;
    const names = new Set(found.map((t) => t.name));
    this.#client.unsubscribe([...this.cards.keys()].filter((name) => !names.has(name)));
    this.cards = new Map(found.map((task) => [task.name, this.#card(task.name)]));
    for (const task of found) this.update(task);
    for (const request of this.#client.requests.values()) this.show(request);
    this.#client.subscribe([...names]);
    this.#changed();
  }

  #card(name) {
    if (!this.#known.has(name)) this.#known.set(name, new Card());
    return this.#known.get(name);
  }

  /** A task's settings or counts are new. */
  update(task) {
    const card = this.#card(task.name);
    card.count = Math.min(card.count, task.max_request);
    card.task = task;
    if (task.running_since) card.run = { since: Date.parse(task.running_since) - this.#client.ahead };
    else if (card.run?.since && task.running_since === null) card.run = null;
    this.#changed();
  }

  /** The card of all tasks together. */
  get all() { return this.#card(all); }

  /** A request is new, or has ended. */
  show(request) {
    const card = request.tasks ? this.all : this.#card(request.task);
    card.asked = null;
    card.error = '';
    if (request.state === 'pending') {
      if (card.request !== request) card.begin(request, this.#client.ahead);
      card.ended = null;
    } else if (!card.request || card.request.id === request.id) {
      card.request = null;
      card.run = null;
      card.ended = request;
      card.full = null;
    }
    this.#changed();
  }

  /** A run of a task began or ended. */
  ran({ task, phase, eta_seconds: eta }) {
    const { request } = this.all;
    const card = request?.asking === task && !this.#card(task).request ? this.all : this.#card(task);
    card.run = phase === 'started' ? { since: Date.now() } : { phase };
    if (phase === 'started') card.foresee(eta);
    this.#changed();
  }

  /** Known runs may be outdated. */
  forgetRuns() {
    for (const card of this.#known.values()) card.run = null;
  }

  /** Gets work, and returns the request; undefined: it failed, and the card says how. */
  ask(name, count, options) {
    const card = this.#card(name);
    const text = JSON.stringify([count, options]);
    if (card.asked?.text !== text || Date.now() - card.asked.at > sameClick) card.asked = { text, key: key(), at: Date.now() };
    return this.#try(name, () => name === all
      ? this.#client.getNext([all], count, { ...options, key: card.asked.key })
      : this.#client.getWork(name, count, { ...options, key: card.asked.key }));
  }

  cancel(name) { return this.#try(name, () => this.#client.cancel(this.#card(name).request.id)); }

  async #try(name, action) {
    const card = this.#card(name);
    if (card.busy) return undefined;
    card.busy = true;
    card.error = '';
    this.#changed();
    try {
      return await action();
    } catch (e) {
      card.error = e.message;
      return undefined;
    } finally {
      card.busy = false;
      this.#changed();
    }
  }
}
