/** A person's present and past work, newest first. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { when } from '../../parts.js';
import { Reader } from '../../reader.js';
import { states } from '../../words.js';
import { byId, firstRows } from '../floor/rows.js';

const step = 20;

const times = { held: 'now', completed: 'ok', failed: 'fifth', expired: 'half', never: 'half' };

export class Past {
  #app; #reader; #user;
  #ended = new AbortController();
  #count = step;

  /** task: a name; empty: all. draw is called when there is something else to show, until signal or end(). */
  constructor(app, user, task, draw, signal) {
    this.#app = app;
    this.#user = user;
    const page = async (at) => {
      const { work, next_cursor: next } = await app.api.work({ ...at, user, task });
      return { rows: work, next };
    };
    this.#reader = new Reader(() => firstRows(this.#count, [], page, (a, b) => byId(b, a)), draw, { signal: AbortSignal.any([signal, this.#ended.signal]) });
    this.#reader.again();
  }

  again() { this.#reader.again(); }

  end() { this.#ended.abort(); }

  /** titles: of the tasks by their names. */
  template(titles) {
    const { value, error } = this.#reader;
    if (error) return html`<p class="error" role="alert" dir="auto">${t`It can’t be shown: ${error.message}.`}</p>`;
    if (!value) return html`<p class="soft">${t`Reading …`}</p>`;
    return html`<table aria-label=${t`What ${this.#user} holds and had`}>
      <thead><tr><th scope="col">${t`Item`}</th><th scope="col">${t`Task`}</th><th scope="col">${t`Got`}</th><th scope="col">${t`State`}</th>
        <th scope="col">${t`Let go of`}</th></tr></thead>
      <tbody>${repeat(value.rows, (w) => w.id, (w) => this.#row(w, titles))}</tbody>
    </table>
    ${value.more ? html`<button type="button" @click=${() => this.#more()}>${t`Show more`}</button>` : nothing}`;
  }

  #row(w, titles) {
    const place = `/items?${new URLSearchParams({ task: w.task, item: w.item })}`;
    return html`<tr>
      <th scope="row" dir="auto">${this.#app.me.role === 'manager' ? html`<a href=${place}>${w.item}</a>` : w.item}</th>
      <td dir="auto">${titles.get(w.task) ?? w.task}</td>
      <td>${when(w.assigned_at)}</td>
      <td><span class="tag" data-time=${times[w.state] ?? nothing}>${states[w.state] ?? w.state}</span>${w.code ? html` <bdi class="soft">${w.code}</bdi>` : nothing}</td>
      <td>${w.closed_at ? when(w.closed_at) : '–'}</td>
    </tr>`;
  }

  #more() {
    this.#count += step;
    this.#reader.restart();
  }
}
