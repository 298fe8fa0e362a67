/**
 * What a query may read, beside its editor: tables and columns, which are put in where the caret is; those whose names begin as
 * the word before the caret are offered while one types.
 */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';

const offered = 8;
const shown = 200; // tables; a filter finds the others

/** A query to begin with, of a table or of none in particular. */
export function starter(table) {
  const key = table?.columns.find((c) => c.name === 'id') ?? table?.columns[0];
  const columns = (table?.columns ?? []).filter((c) => c !== key).slice(0, 5).map((c) => `  ${c.name}`);
  const says = `-- ${t`One row for each item, best first. The other columns are shown as its details.`}\n`;
  if (!table) return `${says}select id as item, applicant, amount, submitted_at\nfrom your_table\nwhere not verified\norder by submitted_at\n`;
  return `${says}select\n${[`  ${key.name} as item`, ...columns].join(',\n')}\nfrom ${table.name}\norder by ${key.name}\n`;
}

export class Tables {
  #api; #editor; #changed;
  #tables = null;
  #cut = false;
  #reason = ''; // why a table is not offered
  #error = '';
  #filter = '';
  #asked = false;

  /** editor: the Editor of the query; changed() draws. */
  constructor({ api, editor, changed }) {
    this.#api = api;
    this.#editor = editor;
    this.#changed = changed;
    editor.area.addEventListener('keyup', changed);
    editor.area.addEventListener('click', changed);
    editor.area.addEventListener('keydown', (e) => {
      if (!e.ctrlKey || e.key !== ' ') return;
      const [first] = this.#offers();
      e.preventDefault();
      if (first) this.#complete(first);
    });
  }

  /** Reads the tables, once, for the list and for what is offered while one types: it waits for the slot of previews. */
  async load() {
    if (this.#asked) return;
    this.#asked = true;
    this.#error = '';
    this.#changed();
    try {
      const { tables, cut, reason = '' } = await this.#api.schema();
      this.#tables = tables;
      this.#cut = cut;
      this.#reason = reason;
    } catch (e) {
      this.#asked = false;
      this.#error = e.message;
    }
    this.#changed();
  }

  /** The word before the caret. */
  get #word() {
    const { area } = this.#editor;
    return area.value.slice(0, area.selectionStart).match(/[\p{L}_][\p{L}\p{N}_$.]*$/u)?.[0] ?? '';
  }

  #offers() {
    const word = this.#word.split('.').at(-1).toLowerCase();
    if (!this.#tables || word.length < 2) return [];
    const names = this.#tables.flatMap((t) => [t.name, ...t.columns.map((c) => c.name)]);
    return [...new Set(names)].filter((n) => n.toLowerCase().startsWith(word) && n.toLowerCase() !== word).slice(0, offered);
  }

  #complete(name) {
    const word = this.#word.split('.').at(-1);
    const { area } = this.#editor;
    const at = area.selectionStart;
    area.focus();
    area.setSelectionRange(at - word.length, at);
    this.#editor.insert(name);
    this.#changed();
  }

  #put(text) {
    this.#editor.area.focus();
    this.#editor.insert(text);
    this.#changed();
  }

  /** What is offered for the word that is being typed. */
  offers() {
    const names = this.#offers();
    if (!names.length) return nothing;
    return html`<p class="offers" aria-label=${t`Names that begin so`}><span class="soft small"><kbd>${t`Ctrl+Space`}</kbd> ${t`completes:`}</span>
      ${names.map((n) => html`<button type="button" class="plain" @click=${() => this.#complete(n)}>${n}</button>`)}</p>`;
  }

  /** The list. empty: there is no query yet. */
  template(empty) {
    const tables = this.#tables?.filter((table) => table.name.toLowerCase().includes(this.#filter)) ?? [];
    return html`${this.#error ? html`<p class="error" role="alert" dir="auto">${t`They can’t be read: ${this.#error}.`}
        <button type="button" @click=${() => this.load()}>${t`Try again`}</button></p>` : nothing}
      ${this.#asked && !this.#tables ? html`<p class="soft small">${t`Reading …`}</p>` : nothing}
      ${this.#reason ? html`<p dir="auto" lang="en">${this.#reason}.</p>` : nothing}
      ${this.#tables && !this.#tables.length && !this.#reason ? html`<p class="soft small">${t`The login that runs queries may read no table. Grant it SELECT on those that tasks need.`}</p>` : nothing}
      ${this.#tables?.length > 8 ? html`<div class="field"><label for="tables-filter">${t`Filter`}</label><input id="tables-filter" autocomplete="off" spellcheck="false"
        @input=${(e) => { this.#filter = e.target.value.toLowerCase(); this.#changed(); }}></div>` : nothing}
      <ul dir="ltr">${tables.slice(0, shown).map((table) => html`<li><details>
        <summary><code>${table.name}</code> ${table.view ? html`<span class="soft small">${t`view`}</span>` : nothing}</summary>
        <p class="bar"><button type="button" @click=${() => this.#put(table.name)}>${t`Put in`}</button>
          ${empty ? html`<button type="button" @click=${() => this.#put(starter(table))}>${t`Begin with it`}</button>` : nothing}</p>
        <ul class="columns">${table.columns.map((c) => html`<li><button type="button" class="plain" @click=${() => this.#put(c.name)}>${c.name}</button>
          <span class="soft small">${c.type}</span></li>`)}</ul>
      </details></li>`)}</ul>
      ${this.#cut || tables.length > shown ? html`<p class="soft small">${t`There are more tables than are listed.`}</p>` : nothing}`;
  }
}
