/** The pending requests, oldest first, and how long they have waited. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, t } from '../../lang.js';
import { age, span, when } from '../../parts.js';
import { byId, firstRows } from './rows.js';

const step = 200;

export class Waiting {
  #floor; #reader;
  #count = step;
  #errors = new Map(); // of cancelling, by the request's id

  constructor(floor) {
    this.#floor = floor;
    const { app } = floor;
    const page = async (filter) => {
      const { requests, next_cursor: next } = await app.api.waiting(filter);
      return { rows: requests, next };
    };
    this.#reader = floor.reader(() => firstRows(this.#count, floor.names(), page, byId), floor.draw);
  }

  again() { this.#reader.again(); }

  restart() {
    this.#count = step;
    this.#reader.restart();
  }

  template() {
    const { value, error } = this.#reader;
    const rows = value?.rows ?? [];
    const total = this.#floor.shown().reduce((n, task) => n + task.waiting, 0);
    return html`<section class="card" data-part="waiting" aria-labelledby="waiting-title">
      <h2 id="waiting-title" tabindex="-1">${t`People waiting`} <span class="count">${total.toLocaleString(locale)}</span></h2>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value && !rows.length ? html`<p class="empty">${t`Nobody waits.`}</p>` : nothing}
      ${rows.length ? html`<div class="scroll tall" tabindex="0" role="region" aria-label=${t`Those who wait`}>
        <table class="stack">
          <thead><tr><th scope="col">${t`Who`}</th><th scope="col" class="number">${t`Wants`}</th><th scope="col">${t`Waits`}</th>
            <th scope="col" class="number">${t`Place`}</th><th scope="col">${t`Still about`}</th>
            ${this.#floor.manages ? html`<th scope="col"><span class="visually-hidden">${t`Actions`}</span></th>` : nothing}</tr></thead>
          <tbody>${repeat(rows, (r) => r.id, (r) => this.#row(r))}</tbody>
        </table>
        ${value.more ? html`<button type="button" @click=${() => this.#more()}>${t`Show more`}</button>` : nothing}
      </div>` : nothing}
    </section>`;
  }

  #row(request) {
    const { app, manages } = this.#floor;
    const error = this.#errors.get(request.id);
    return html`<tr data-request=${request.id}>
      <th scope="row"><b dir="auto">${request.user}</b>${request.instance ? html` <span class="quiet" dir="auto">${request.instance}</span>` : nothing}
        <span class="quiet block" dir="auto">${this.#floor.titleOf(request.task)}</span>
        ${error ? html`<span class="error block" role="alert" dir="auto">${t`It can’t be cancelled: ${error.message}.`}</span>` : nothing}</th>
      <td class="number" data-label=${t`Wants`}>${request.wanted}</td>
      <td data-label=${t`Waits`}>${age(request.created_at, app.client.ahead)}</td>
      <td class="number" data-label=${t`Place`}>${request.position ?? t`after 1000`}</td>
      <td data-label=${t`Still about`}>${this.#left(request)}</td>
      ${manages ? html`<td class="acts"><button type="button" aria-label=${t`Cancel the request of ${request.user} for ${this.#floor.titleOf(request.task)}`}
        @click=${() => this.#cancel(request)}>${t`Cancel`}</button></td>` : nothing}
    </tr>`;
  }

  /** About how long it still waits, as it was estimated when it was read. */
  #left(request) {
    if (this.#floor.tasks.get(request.task)?.paused) return t`until it goes on`;
    if (request.eta_seconds === null) return request.linger_until ? t`until ${when(request.linger_until)} at most` : t`not known`;
    const left = request.eta_seconds * 1000 - (Date.now() - this.#reader.at);
    return left > 500 ? t`${span(left)} more` : t`any moment`;
  }

  #more() {
    this.#count += step;
    this.#reader.restart();
  }

  async #cancel(request) {
    const { app, draw } = this.#floor;
    const title = this.#floor.titleOf(request.task);
    const loaded = await this.#floor.dialogs(import('../../dialog.js'));
    if (!loaded) return;
    const yes = await loaded.ask({
      title: t`Cancel the request of ${request.user}?`,
      text: t`${request.user} asked for ${request.wanted} of ${title}, and is told that it was cancelled. Asking again is possible.`,
      yes: t`Cancel the request`,
      no: t`Let it wait`,
      danger: true,
    });
    if (yes) {
      try {
        await app.api.cancel(request.id);
        this.#errors.delete(request.id);
        app.say(t`The request of ${request.user} is cancelled.`);
      } catch (e) {
        this.#errors.set(request.id, e);
      }
      this.#reader.restart();
    }
    draw();
    this.#floor.refocus('waiting');
  }
}
