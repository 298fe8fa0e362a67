/** What somebody let go of today in this tab, newest first. It outlasts a reload, and is kept apart by user. */

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

  add({ id, task, item, state, closed_at, available_at, to_others }) {
    this.#all = [{ id, task, item, state, closed_at, available_at, to_others }, ...this.#all.filter((w) => w.id !== id)].slice(0, most);
    try {
      sessionStorage.setItem(this.#key, JSON.stringify(this.#all));
    } catch { /* a full or forbidden storage: it is kept in memory */ }
  }

  /** Today's. */
  list() {
    const today = new Date().toDateString();
    return this.#all.filter((w) => new Date(w.closed_at).toDateString() === today);
  }

  /**
   * What of a task is not handed out, or not to this user, because he returned it; what comes back first, first. now: by the
   * server's clock.
   */
  putOff(task, now) {
    const back = (w) => (w.to_others ? Infinity : Date.parse(w.available_at));
    return this.#all.filter((w) => w.task === task && w.state === 'returned' && back(w) > now).sort((a, b) => (back(a) < back(b) ? -1 : 1));
  }
}
