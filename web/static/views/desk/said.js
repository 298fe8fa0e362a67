/** What the desk says about the pipeline, shown and to screen readers, for as long as it is true. */

const always = () => true;

export class Said {
  #changed;
  #told = { at: -Infinity, lines: [] };
  #heard = { text: '', still: always };

  constructor(changed) { this.#changed = changed; }

  /** Shows and announces a line while still() is true. Lines of the same second are shown together. */
  tell(text, still = always) {
    const now = performance.now();
    const line = { text, still };
    this.#told = { at: now, lines: now - this.#told.at < 1000 ? [...this.#told.lines, line].slice(-5) : [line] };
    this.#changed();
  }

  /** The same, only for screen readers. */
  hear(text, still = always) {
    this.#heard = { text, still };
    this.#changed();
  }

  get told() {
    this.#told.lines = this.#told.lines.filter(({ still }) => still());
    return this.#told.lines.map(({ text }) => text).join('\n');
  }

  get heard() {
    if (!this.#heard.still()) this.#heard = { text: '', still: always };
    return this.#heard.text;
  }
}
