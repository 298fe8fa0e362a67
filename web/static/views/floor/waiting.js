/** The pending requests, oldest first, and how long they have waited. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { age, face, icon, span, when } from '../../parts.js';
import { byId, firstRows } from './rows.js';

const step = 200;
const late = 60_000; // ms: who waits for longer stands out

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

  get settled() { return this.#reader.settled; }

  /** For how long the first has waited, in ms; 0 if nobody waits. A paused task's, and those that wait for what is to come, count not. */
  get longest() {
    const since = (this.#reader.value?.rows ?? []).filter((r) => !r.linger_until && !this.#floor.tasks.get(r.task)?.paused).map((r) => Date.parse(r.created_at));
    return since.length ? this.#floor.now() - Math.min(...since) : 0;
  }

  template() {
    const { value, error } = this.#reader;
    const rows = value?.rows ?? [];
    const total = this.#floor.shown().reduce((n, task) => n + task.waiting, 0);
    return html`<section class="story" data-part="waiting" aria-labelledby="waiting-title">
      <h2 id="waiting-title" tabindex="-1">${t`Waiting for work`} <span class="count">${total.toLocaleString(locale)}</span></h2>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value && !rows.length ? html`<p class="soft">${t`Nobody waits.`}</p>` : nothing}
      ${rows.length ? html`<div class="tall" tabindex="0" role="region" aria-label=${t`Those who wait`}><ul>${repeat(rows, (r) => r.id, (r) => this.#row(r))}</ul></div>
        ${value.more ? html`<button type="button" @click=${() => this.#more()}>${t`Show more`}</button>` : nothing}` : nothing}
    </section>`;
  }

  #row(request) {
    const { app, manages } = this.#floor;
    const error = this.#errors.get(request.id);
    const title = this.#floor.titleOf(request.task);
    const waits = this.#floor.now() - Date.parse(request.created_at);
    const position = request.position === null ? t`place after 1000` : request.position && t`place ${request.position}`;
    return html`<li data-request=${request.id}>
      <span class="who">${face(request.user)}<b dir="auto">${request.user}</b>${request.instance ? html` <span class="soft small" dir="auto">${request.instance}</span>` : nothing}</span>
      <span class="bar"><span class="time" data-time=${waits > late ? 'half' : nothing}>${age(request.created_at, app.client.ahead)}</span>
        ${manages ? html`<button type="button" class="icon" aria-label=${t`Cancel the request of ${request.user} for ${title}`}
          @click=${() => this.#cancel(request)}>${icon('x')}</button>` : nothing}</span>
      <small dir="auto">${[plural(request.wanted, '{0} item of {1}', '{0} items of {1}', title), position].filter(Boolean).join(', ')}, ${this.#left(request)}</small>
      ${error ? html`<small class="error" role="alert" dir="auto">${t`It can’t be cancelled: ${error.message}.`}</small>` : nothing}
    </li>`;
  }

  /** About how long it still waits, as it was estimated when it was read. */
  #left(request) {
    if (this.#floor.tasks.get(request.task)?.paused) return t`until it goes on`;
    if (request.eta_seconds === null) return request.linger_until ? t`until ${when(request.linger_until)} at most` : t`for a time that is not known`;
    const left = request.eta_seconds * 1000 - (Date.now() - this.#reader.at);
    return left > 500 ? t`about ${span(left)} more` : t`any moment`;
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
