/** The user's closed work in this tab, newest first. It survives a reload, and is stored separately for each user. */

import { now } from '../../now.js';

const most = 100;

export class Recent {
  #key;
  #all;

  constructor(user) {
    this.#key = `getwork.recent.${user}`;
    try {
      this.#all = JSON.parse(sessionStorage.getItem(this.#key)) ?? [];
    } catch {
      this.#all = [];
    }
  }

  add({ id, task, item, title, state, closed_at, available_at, to_others }) {
    this.#all = [{ id, task, item, title, state, closed_at, available_at, to_others }, ...this.#all.filter((w) => w.id !== id)].slice(0, most);
    try {
      sessionStorage.setItem(this.#key, JSON.stringify(this.#all));
    } catch { /* a full or forbidden storage: it is kept in memory */ }
  }

  /** Today's. */
  list() {
    const today = new Date(now()).toDateString();
    return this.#all.filter((w) => new Date(w.closed_at).toDateString() === today);
  }

  /**
   * A task's items that this user returned and that are not handed out again yet, or not to this user; the first to come back
   * first.
   */
  putOff(task) {
    const back = (w) => (w.to_others ? Infinity : Date.parse(w.available_at));
    return this.#all.filter((w) => w.task === task && w.state === 'returned' && back(w) > now()).sort((a, b) => (back(a) < back(b) ? -1 : 1));
  }
}
