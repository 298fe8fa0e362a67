/**
 * What of the desk outlasts a reload, or a tab that crashed: notes that are being written, and what was let go of and could not be
 * sent. It is this tab's alone and kept apart by user; page.js removes it when he logs out.
 */

export class Drafts {
  notes = []; // as they were found: [id, text]
  kept = []; // the same: entries of the outbox
  #key;
  #text; // as it is stored

  constructor(user) {
    this.#key = `getwork.desk.${user}`;
    try {
      this.#text = sessionStorage.getItem(this.#key);
      Object.assign(this, JSON.parse(this.#text));
    } catch { /* none, or not to be had */ }
  }

  /** It is called with each change, and writes what has changed. */
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
