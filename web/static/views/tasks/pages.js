/** A list that is read newest first, page by page. */

import { t } from '../../lang.js';

/** Rows stay while the newest are read again. If two answers overtake each other, the later call's counts. */
export class Pages {
  rows = null; // once they are read
  next; // where older ones begin; undefined: there are none
  error = '';
  #what; #key; #first; #read; #round = 0;

  /**
   * what: the list's name in answers, runs or versions; key: what tells rows apart; first: how many of the newest are read.
   * read(filter) gives a page; changed() is called when there is something new to show.
   */
  constructor({ what, key, first, read, changed }) {
    this.#what = what;
    this.#key = key;
    this.#first = first;
    this.#read = read;
    this.changed = changed;
  }

  /** Reads the newest. */
  async load() {
    const round = ++this.#round;
    try {
      const { [this.#what]: rows, next_cursor: next } = await this.#read({ limit: this.#first });
      if (round !== this.#round) return; // a later reading knows more
      const joint = (this.rows ?? []).findIndex((r) => r[this.#key] === rows.at(-1)?.[this.#key]);
      const older = joint < 0 ? [] : this.rows.slice(joint + 1); // without a row that both have, some between are missing
      this.rows = [...rows, ...older];
      if (older.length === 0) this.next = next;
      this.error = '';
    } catch (e) {
      if (round !== this.#round) return;
      this.error = this.#what === 'runs' ? t`The runs can’t be read: ${e.message}.` : t`The versions can’t be read: ${e.message}.`;
    }
    this.changed();
  }

  /** Reads older ones. */
  async more() {
    try {
      const cursor = this.next;
      const { [this.#what]: rows, next_cursor: next } = await this.#read({ limit: 100, cursor });
      if (cursor !== this.next) return; // pressed twice
      this.rows = [...this.rows, ...rows];
      this.next = next;
      this.error = '';
    } catch (e) {
      this.error = this.#what === 'runs' ? t`The older runs can’t be read: ${e.message}.` : t`The older versions can’t be read: ${e.message}.`;
    }
    this.changed();
  }
}
