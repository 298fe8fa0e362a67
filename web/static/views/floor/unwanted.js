/** What was given back by three or more people within a day: somebody has to be asked to take it. It is shown if there is any. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { when } from '../../parts.js';
import { states } from '../../words.js';

const many = 3; // people
const day = 86_400_000;

export class Unwanted {
  #floor; #reader;

  constructor(floor) {
    this.#floor = floor;
    this.#reader = floor.reader(() => this.#read(), floor.draw, { least: 10_000 });
  }

  again() { this.#reader.again(); }

  restart() { this.#reader.restart(); }

  async #read() {
    const minute = Math.ceil((this.#floor.now() - day) / 60_000); // callers of the same minute share an answer
    const { items } = await this.#floor.app.api.returns({ task: this.#floor.names().join(','), from: new Date(minute * 60_000).toISOString() });
    return items.filter((i) => i.people >= many && i.state !== 'completed');
  }

  get settled() { return this.#reader.settled; }

  template() {
    const { value, error } = this.#reader;
    if (!value?.length) return nothing;
    return html`<section class="story" data-part="unwanted" aria-labelledby="unwanted-title">
      <h2 id="unwanted-title" tabindex="-1">${t`Given back by three or more`} <span class="count">${value.length}</span></h2>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      <div class="tall" tabindex="0" role="region" aria-label=${t`What was given back by three or more people`}><ul>${repeat(value, (i) => `${i.task} ${i.item}`, (i) => this.#row(i))}</ul></div>
    </section>`;
  }

  #row(i) {
    const { manages } = this.#floor;
    const mayGive = manages && i.state !== 'held' && i.state !== 'never';
    return html`<li data-item=${i.item}>
      ${manages ? html`<a href=${`/items?${new URLSearchParams({ task: i.task, item: i.item })}`} dir="auto">${i.item}</a>` : html`<span dir="auto">${i.item}</span>`}
      ${mayGive ? html`<button type="button" aria-label=${t`Give ${i.item} to …`} @click=${() => this.#give(i)}>${t`Give to …`}</button>` : html`<span class="soft">${states[i.state] ?? i.state}</span>`}
      <small dir="auto">${t`By ${i.people} people, last ${when(i.last_at)}`}, ${this.#floor.titleOf(i.task)}</small>
    </li>`;
  }

  async #give({ task, item }) {
    const { app, signal } = this.#floor;
    const loaded = await this.#floor.dialogs(import('../reassign.js'));
    if (!loaded) return;
    const given = await loaded.giveDialog(app, { task, item }, signal);
    if (given) {
      app.say(t`${given.item} is with ${given.user} now.`);
      this.#reader.restart();
    }
    this.#floor.refocus('unwanted');
  }
}
