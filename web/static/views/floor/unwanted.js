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

  template() {
    const { value, error } = this.#reader;
    if (!value?.length) return nothing;
    const { manages } = this.#floor;
    return html`<section class="card" data-part="unwanted" aria-labelledby="unwanted-title">
      <h2 id="unwanted-title" tabindex="-1">${t`Given back by three or more people`} <span class="count">${value.length}</span></h2>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      <div class="scroll tall" tabindex="0" role="region" aria-label=${t`What was given back by three or more people`}>
        <table class="stack">
          <thead><tr><th scope="col">${t`Item`}</th><th scope="col" class="number">${t`By people`}</th><th scope="col">${t`Last`}</th><th scope="col">${t`Now`}</th>
            ${manages ? html`<th scope="col"><span class="visually-hidden">${t`Actions`}</span></th>` : nothing}</tr></thead>
          <tbody>${repeat(value, (i) => `${i.task} ${i.item}`, (i) => this.#row(i))}</tbody>
        </table>
      </div>
    </section>`;
  }

  #row(i) {
    const { manages } = this.#floor;
    return html`<tr data-item=${i.item}>
      <th scope="row">${manages ? html`<a href=${`/items?${new URLSearchParams({ task: i.task, item: i.item })}`} dir="auto">${i.item}</a>` : html`<span dir="auto">${i.item}</span>`}
        <span class="quiet block" dir="auto">${this.#floor.titleOf(i.task)}</span></th>
      <td class="number" data-label=${t`By people`}>${i.people}</td>
      <td data-label=${t`Last`}>${when(i.last_at)}</td>
      <td data-label=${t`Now`}>${states[i.state] ?? i.state}</td>
      ${manages ? html`<td class="acts">${i.state === 'held' || i.state === 'never' ? nothing : html`<button type="button" aria-label=${t`Give ${i.item} to …`}
        @click=${() => this.#give(i)}>${t`Give to …`}</button>`}</td>` : nothing}
    </tr>`;
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
