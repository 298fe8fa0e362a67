/**
 * The part of the desk that survives a reload or a crashed tab: notes that are being written, and dispositions that could not be
 * sent. It belongs to this tab and is stored separately for each user; page.js removes it at a log-out.
 */

export class Drafts {
  notes = []; // as they were found: [id, text, {task, item, lost}]; older pages stored no more than [id, text]
  kept = []; // the same: entries of the outbox
  #key;
  #text; // as it is stored

  constructor(user) {
    this.#key = `getwork.desk.${user}`;
    try {
      this.#text = sessionStorage.getItem(this.#key);
      Object.assign(this, JSON.parse(this.#text));
    } catch { /* none, or storage is forbidden */ }
  }

  /** Called after each change; writes if something differs. */
  save(notes, kept) {
    const text = notes.length || kept.length ? JSON.stringify({ notes, kept }) : null;
    if (text === this.#text) return;
    this.#text = text;
    try {
      if (text) sessionStorage.setItem(this.#key, text);
      else sessionStorage.removeItem(this.#key);
    } catch { /* a full or forbidden storage: it is kept in memory */ }
  }
}
