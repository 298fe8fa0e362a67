/** Who is away, until when, and what they hold meanwhile. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, t } from '../../lang.js';
import { every, face } from '../../parts.js';
import { clock } from '../../words.js';
import { byId, firstRows } from './rows.js';

const step = 200;

export class Absent {
  #floor; #reader;
  #count = step;

  constructor(floor) {
    this.#floor = floor;
    this.#reader = floor.reader(() => this.#read(), () => floor.draw());
    every(60_000, () => this.again(), floor.signal); // no event reports the absences of others
  }

  again() { this.#reader.again(); }

  restart() { this.#reader.restart(); }

  async #read() {
    const { api } = this.#floor.app;
    const { rows, more } = await firstRows(this.#count, [], async (at) => {
      const { absences, next_cursor: next } = await api.absences(at);
      return { rows: absences, next };
    }, byId);
    const away = rows.filter((a) => Date.parse(a.from) <= this.#floor.now());
    const holds = new Map(); // what each of them holds, by the user
    if (away.length) {
      const all = await firstRows(Infinity, [], async (at) => {
        const { holders, next_cursor: next } = await api.holders({ ...at, task: this.#floor.names().join(',') });
        return { rows: holders, next };
      }, () => 0);
      for (const h of all.rows) holds.set(h.user, [...(holds.get(h.user) ?? []), h]);
    }
    return { away, more, holds };
  }

  get settled() { return this.#reader.settled; }

  /** As the list stands in a column; it is not there while nobody is away, unless it has an error. */
  template() {
    const { value, error } = this.#reader;
    if (!error && !value?.away.length) return nothing;
    return html`<section class="story" data-part="absent" aria-labelledby="absent-title">
      <h2 id="absent-title" tabindex="-1">${t`Who is away`} <span class="count">${(value?.away.length ?? 0).toLocaleString(locale)}</span></h2>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value ? html`<div class="tall" tabindex="0" role="region" aria-label=${t`Who is away`}><ul>${repeat(value.away, (a) => a.id, (a) => this.#row(a, value.holds.get(a.user) ?? []))}</ul></div>
        ${value.more ? html`<button type="button" @click=${() => this.#more()}>${t`Show more`}</button>` : nothing}` : nothing}
    </section>`;
  }

  #row(absence, holds) {
    const { manages } = this.#floor;
    const what = holds.map((h) => t`${h.held} of ${this.#floor.titleOf(h.task)}`).join(', ');
    const says = [
      absence.until ? t`Until ${clock(absence.until)}.` : t`Until they are back.`,
      absence.substitute && t`${absence.substitute} stands in.`, what ? t`Holds ${what}.` : t`Holds nothing.`,
      absence.source ? t`From ${absence.source}.` : absence.created_by !== absence.user && t`Entered by ${absence.created_by}.`,
    ].filter(Boolean).join(' ');
    return html`<li data-user=${absence.user}>
      <span class="who">${face(absence.user)}<b dir="auto">${absence.user}</b></span>
      ${manages ? html`<button type="button" aria-label=${t`End the absence of ${absence.user}`} @click=${() => this.#end(absence)}>${t`Back now`}</button>` : html`<span></span>`}
      <small dir="auto">${says}</small>
    </li>`;
  }

  #more() {
    this.#count += step;
    this.again();
  }

  async #end({ id, user }) {
    const { app } = this.#floor;
    try {
      await app.api.back(id);
      app.say(t`${user} is not away any more.`);
    } catch (e) {
      app.say(t`The absence of ${user} has not ended: ${e.message}.`);
    }
    this.restart();
    this.#floor.refocus('absent');
  }
}
