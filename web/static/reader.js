/** Reads data again when it may have changed. */

import { locale } from './lang.js';

/**
 * Reads something again when it may have changed: at once, but at most every `least` ms and for at most a third of the time,
 * so that a burst of events neither floods the server nor delays reading until it ends. While the page is hidden it waits.
 * A failed read is tried again.
 */
export class Reader {
  value; // from the last successful read
  error = null; // of the last read, if it failed
  at = null; // when value came, in ms

  #read; #changed; #least; #signal;
  #due = false;
  #busy = false;
  #round = 0; // results of a former round are dropped
  #next = 0; // not before
  #timer;

  /** read() returns a promise of the value; changed() is called after each read. */
  constructor(read, changed, { least = 800, signal }) {
    this.#read = read;
    this.#changed = changed;
    this.#least = least;
    this.#signal = signal;
    signal.addEventListener('abort', () => clearTimeout(this.#timer));
    document.addEventListener('visibilitychange', () => this.#go(), { signal });
  }

  /** Whether a read has ended. */
  get settled() { return this.at !== null || this.error !== null; }

  /** It may have changed. */
  again() {
    this.#due = true;
    return this.#go();
  }

  /** Something else is to be read: at once, and a read under way no longer counts. */
  restart() {
    this.#round++;
    this.#busy = false;
    this.#next = 0;
    return this.again();
  }

  async #go() {
    clearTimeout(this.#timer);
    if (!this.#due || this.#busy || document.hidden || this.#signal.aborted) return;
    const began = performance.now();
    if (began < this.#next) {
      this.#timer = setTimeout(() => this.#go(), this.#next - began);
      return;
    }
    const round = this.#round;
    this.#due = false;
    this.#busy = true;
    let value, error = null;
    try {
      value = await this.#read();
    } catch (e) {
      error = e;
    }
    if (round !== this.#round || this.#signal.aborted) return;
    this.#busy = false;
    this.error = error;
    const now = performance.now();
    if (error) {
      this.#due = true;
      this.#next = now + Math.max(5000, error.retryAfter ?? 0);
    } else {
      this.value = value;
      this.at = Date.now();
      this.#next = began + Math.max(this.#least, 3 * (now - began));
    }
    this.#changed();
    this.#go();
  }
}

const within = 2000; // ms

/**
 * Keeps a list of tasks up to date. It calls read() when the list has changed, after a random delay of up to two seconds, because
 * thousands of pages hear of it at once; when push was or is down; and when the page is visible again. While the page is hidden
 * it reads nothing. A lost announcement costs time only: the server notices by itself, some seconds later.
 */
export function keepListed(client, read, signal) {
  let timer = null;
  const look = () => {
    clearTimeout(timer);
    timer = null;
    if (!document.hidden) read();
  };
  client.addEventListener('tasks', () => { timer ??= setTimeout(look, within * Math.random()); }, { signal });
  client.addEventListener('reread', look, { signal });
  document.addEventListener('visibilitychange', look, { signal });
  signal.addEventListener('abort', () => clearTimeout(timer));
}

const inWords = new Intl.Collator(locale, { numeric: true });

/** The order of two tasks as they are shown: by position, and those without one after them, by title. */
export const byTitle = (a, b) => (a.position ?? Infinity) - (b.position ?? Infinity) || inWords.compare(a.title || a.name, b.title || b.name) || (a.name < b.name ? -1 : 1);

/**
 * Returns a function that reads the list of tasks, in the order in which it is shown. A task from an event that came during
 * the read is newer, and replaces the one that was read. If another read began meanwhile, the result is null.
 */
export function taskList(client, read) {
  let last;
  return async () => {
    const heard = last = new Map();
    const hear = ({ detail: task }) => heard.set(task.name, task);
    client.addEventListener('task', hear);
    try {
      const tasks = await read();
      return heard === last ? tasks.map((task) => heard.get(task.name) ?? task).sort(byTitle) : null;
    } finally {
      client.removeEventListener('task', hear);
    }
  };
}
