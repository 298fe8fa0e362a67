/** Reading again what may have changed. */

/**
 * Reads something again when it may have changed: at once, but at most every `least` ms and for at most a third of the time,
 * so that a rush of events neither floods the server nor waits for its end. While nobody looks at the page it waits, and what
 * failed is tried again.
 */
export class Reader {
  value; // as it was read last; a failure leaves it
  error = null; // of the last reading, if that failed
  at = null; // when value came, in ms

  #read; #changed; #least; #signal;
  #due = false;
  #busy = false;
  #round = 0; // what was begun in a former one is dropped
  #next = 0; // not before
  #timer;

  /** read() gives a promise of the value; changed() is called after each. */
  constructor(read, changed, { least = 800, signal }) {
    this.#read = read;
    this.#changed = changed;
    this.#least = least;
    this.#signal = signal;
    signal.addEventListener('abort', () => clearTimeout(this.#timer));
    document.addEventListener('visibilitychange', () => this.#go(), { signal });
  }

  /** It may have changed. */
  again() {
    this.#due = true;
    return this.#go();
  }

  /** Something else is to be read: at once, and what is under way no longer counts. */
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
 * Keeps a list of tasks up to date: calls read() within two seconds after the list has changed, since thousands of pages are told
 * in one moment; when push was or is away; and when somebody comes back to the page. While nobody looks at it nothing is read.
 * A word that gets lost costs time only: the server finds out by itself, some seconds later.
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

const inWords = new Intl.Collator(undefined, { numeric: true });

/** The order of two tasks as they are shown: by title. */
export const byTitle = (a, b) => inWords.compare(a.title || a.name, b.title || b.name) || (a.name < b.name ? -1 : 1);

/**
 * Makes a function that reads the list of tasks. What an event told of one while it was read is newer, and takes its place;
 * a list that was asked for again meanwhile is null. They are in the order in which they are shown.
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
