/** Searches held and past work: by item, person, task, state and, within a task, by a value in its details. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { badge, became, moment } from './sentences.js';

const names = ['item', 'user', 'task', 'state', 'value'];
const states = { held: t`held`, completed: t`completed`, returned: t`returned`, never: t`never again`, failed: t`failed`, expired: t`time ran out`, reassigned: t`given to another` };

/** What an address asks for; null if it asks for one item, or for nothing. */
export function searchOf(search) {
  const asked = Object.fromEntries(names.map((n) => [n, search.get(n)?.trim() ?? '']).filter(([, v]) => v));
  return search.has('release') || !(asked.user || asked.state || asked.value || search.has('search')) ? null : asked;
}

/** The address of a search. */
export const searchAddress = (asked) => `/items?${new URLSearchParams({ search: '1', ...asked })}`;

export class Search {
  #view;
  #rows = null;
  #next;
  #saving = false;
  #error = '';

  /** view: {app, signal, draw(), tasks(), titleOf(task)}; asked: as searchOf has it. */
  constructor(view, asked) {
    this.#view = view;
    this.asked = asked;
    this.read();
  }

  async read() {
    const { app, draw, signal } = this.#view;
    const at = this.#next;
    this.#error = '';
    draw();
    try {
      const { work, next_cursor: next } = await app.api.work({ ...this.asked, limit: 100, cursor: at });
      if (signal.aborted || at !== this.#next) return; // the same page was asked for twice
      this.#rows = [...this.#rows ?? [], ...work];
      this.#next = next;
    } catch (e) {
      this.#error = e.message;
    }
    draw();
  }

  /** Reads all of it, and lets the browser save it as one file. */
  async save() {
    const { app, draw, signal, tasks } = this.#view;
    const parts = ['\ufeff']; // without it, spreadsheets on Windows take UTF-8 for the machine's own encoding
    this.#saving = true;
    this.#error = '';
    draw();
    try {
      const { withShown } = await import('./table.js');
      for await (const part of withShown(app.api.workTable(this.asked, { signal }), tasks(), this.asked.task)) parts.push(part);
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob(parts, { type: 'text/csv' }));
      link.download = 'work.csv';
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // at once, some browsers save nothing
    } catch (e) {
      this.#error = e.message;
    }
    this.#saving = false;
    draw();
  }

  template() {
    const { asked } = this;
    return html`<section class="found-work" aria-labelledby="found-work">
      <div class="bar"><h2 id="found-work">${t`Work, newest first`}</h2>
        ${this.#rows?.length ? html`<button type="button" class="push" id="save-work" ?disabled=${this.#saving} @click=${() => this.save()}>${
          this.#saving ? t`Reading all of it …` : t`Download as CSV`}</button>` : nothing}</div>
      ${asked.value ? html`<p class="soft">${t`Work of the last 31 days with “${html`<bdi>${asked.value}</bdi>`}” in its details.`}</p>` : nothing}
      <p class="error" role="alert" dir="auto">${this.#error ? t`It can’t be read: ${this.#error}.` : nothing}</p>
      ${this.#rows || this.#error ? nothing : html`<p class="soft" role="status">${t`Searching …`}</p>`}
      ${this.#rows && !this.#rows.length ? html`<p class="empty">${t`No work is like that.`}</p>` : nothing}
      ${this.#rows?.length ? html`<ol class="paper timeline">${repeat(this.#rows, (w) => w.id, (w) => this.#row(w))}</ol>
        ${this.#next ? html`<button type="button" @click=${() => this.read()}>${t`Show older`}</button>` : nothing}` : nothing}
    </section>`;
  }

  #row(w) {
    return html`<li data-work=${w.id}>
      <p>${badge(w)} <a href=${`/items?${new URLSearchParams({ task: w.task, item: w.item })}`}><bdi>${w.item}</bdi></a> <b dir="auto">${w.user}</b>
        <span class="soft">${t`from ${moment(w.assigned_at)}`}${w.closed_at ? html` ${t`to ${moment(w.closed_at)}`}` : nothing}</span>
        <span class="soft of" dir="auto">${this.#view.titleOf(w.task)}</span></p>
      <p>${became(w)}</p>
      ${w.error ? html`<p class="error" dir="auto">${w.error}</p>` : nothing}
      ${w.note ? html`<blockquote dir="auto">${w.note}</blockquote>` : nothing}
    </li>`;
  }
}

/** The fields of a search that a look for one item does not have. */
export function searchFields(asked) {
  return html`<details class="more-fields" ?open=${asked !== null}>
    <summary>${t`Search held and past work`}</summary>
    <p class="soft">${t`By any of these, with or without an item. A value in the details needs a task, and finds work of the last 31 days.`}</p>
    <div class="more">
      <div class="field"><label for="of-user">${t`Person`}</label>
        <input id="of-user" name="user" .value=${asked?.user ?? ''} dir="auto" autocomplete="off" spellcheck="false"></div>
      <div class="field"><label for="of-state">${t`State`}</label>
        <select id="of-state" name="state"><option value="">${t`any`}</option>${Object.entries(states).map(([state, word]) => html`
          <option value=${state} ?selected=${state === asked?.state}>${word}</option>`)}</select></div>
      <div class="field"><label for="of-value">${t`Value in the details`}</label>
        <input id="of-value" name="value" .value=${asked?.value ?? ''} dir="auto" autocomplete="off" spellcheck="false"></div>
      <button name="search" value="1">${t`Search`}</button>
    </div>
  </details>`;
}
