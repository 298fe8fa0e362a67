/** Held work: a line for each person and task, which unfolds to its items. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../../lang.js';
import { face, icon, span, when } from '../../parts.js';
import { remaining } from '../../words.js';
import { shown } from '../desk/display.js';
import { byId, firstRows } from './rows.js';

const step = 200;
const since = (h) => Date.parse(h.oldest_at);
const orders = {
  longest: { name: t`longest held first`, compare: (a, b) => since(a) - since(b) },
  most: { name: t`most held first`, compare: (a, b) => b.held - a.held || since(a) - since(b) },
  name: { name: t`by name`, compare: (a, b) => a.user.localeCompare(b.user) },
};
const keyOf = ({ task, user }) => `${task} ${user}`;

export class Held {
  #floor; #reader; #timer;
  #count = step;
  #open = new Map(); // how many of their items are shown, by the keys of those that are
  #order = 'longest';

  constructor(floor) {
    this.#floor = floor;
    this.#reader = floor.reader(() => this.#read(), () => this.#changed());
    floor.signal.addEventListener('abort', () => clearTimeout(this.#timer));
  }

  again() { this.#reader.again(); }

  restart() {
    this.#count = step;
    this.#reader.restart();
  }

  /** The server has them in the first order; for another one all are needed. */
  async #read() {
    const { api } = this.#floor.app;
    let people = 0;
    const all = await firstRows(this.#order === 'longest' ? this.#count : Infinity, [], async (at) => {
      const { holders, total, next_cursor: next } = await api.holders({ ...at, task: this.#floor.names().join(',') });
      people ||= total?.users;
      return { rows: holders, next };
    }, orders[this.#order].compare);
    const lines = new Map(all.rows.map((h) => [keyOf(h), h])); // a holder who closes their oldest item between two pages is on both
    await Promise.all([...lines].filter(([key]) => this.#open.has(key)).map(async ([key, holder]) => {
      const { user, task } = holder;
      holder.items = await firstRows(this.#open.get(key), [], async (at) => {
        const { work, next_cursor: next } = await api.work({ ...at, user, task, state: 'held' });
        return { rows: work, next };
      }, byId);
    }));
    return { lines, more: all.more, people };
  }

  /** No event reports the extension of a lease, so holders are read again when the first lease would end. */
  #changed() {
    clearTimeout(this.#timer);
    const { client } = this.#floor.app;
    const lines = this.#reader.value?.lines ?? new Map();
    for (const key of this.#open.keys()) if (!lines.has(key)) this.#open.delete(key); // a holder who returns is folded
    const first = Math.min(...[...lines.values()].map((h) => client.left(h) || Infinity));
    if (first < Infinity) this.#timer = setTimeout(() => this.again(), first + 1000 + 1000 * Math.random());
    this.#floor.draw();
  }

  get settled() { return this.#reader.settled; }

  /** How many people hold something; undefined while that is not known. */
  get people() { return this.#reader.value?.people; }

  template() {
    const { value, error } = this.#reader;
    const total = this.#floor.shown().reduce((n, task) => n + task.held, 0);
    return html`<section class="story" data-part="held" aria-labelledby="held-title">
      <h2 id="held-title" tabindex="-1">${t`Who holds what`} <span class="count">${total.toLocaleString(locale)}</span></h2>
      <div class="bar">
        ${value?.people ? html`<span class="soft small">${plural(value.people, '{0} person', '{0} people')}</span>` : nothing}
        <label class="push soft small">${t`Sorted`} <select @change=${(e) => this.#sort(e.target.value)}>
          ${Object.entries(orders).map(([order, { name }]) => html`<option value=${order} ?selected=${order === this.#order}>${name}</option>`)}
        </select></label>
      </div>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value && !value.lines.size ? html`<p class="soft">${t`Nobody holds anything.`}</p>` : nothing}
      ${value?.lines.size ? html`<div class="tall" tabindex="0" role="region" aria-label=${t`Those who hold something`}>
        <ul class="people">${repeat(value.lines.values(), keyOf, (h) => this.#line(h))}</ul>
        ${value.more ? html`<button type="button" @click=${() => this.#more()}>${t`Show more`}</button>` : nothing}
      </div>` : nothing}
    </section>`;
  }

  #line(holder) {
    const { user, task, held, instances, items } = holder;
    const { app, manages } = this.#floor;
    const left = app.client.left(holder);
    const title = this.#floor.titleOf(task);
    const open = this.#open.has(keyOf(holder));
    const says = [
      plural(held, '{0} held, for {1}', '{0} held, the oldest for {1}', span(this.#floor.now() - since(holder))),
      instances > 1 && t`by ${instances} instances`,
      left !== null && t`lease: ${remaining(left)}`,
    ].filter(Boolean).join(', ');
    return html`<li data-user=${user}><details @toggle=${(e) => this.#toggle(holder, e.target.open)}>
      <summary>${face(user)}<b dir="auto">${user}</b>${icon('chevron-right')}<small>${says}</small> <small dir="auto">${title}</small></summary>
      ${open ? html`
        ${manages || items?.more ? html`<div class="bar">
          ${manages ? html`<button type="button" class="release" aria-label=${t`Release what ${user} holds of ${title} …`}
            @click=${() => this.#floor.release({ user, task })}>${t`Release …`}</button>` : nothing}
          ${items?.more ? html`<button type="button" class="older" @click=${() => this.#older(holder)}>${t`Show older`}</button>` : nothing}</div>` : nothing}
        ${items ? html`<ul class="holds">${repeat(items.rows, (w) => w.id, (w) => this.#item(w))}</ul>` : html`<p class="soft">${t`Reading …`}</p>`}` : nothing}
    </details></li>`;
  }

  #item(work) {
    const { app, manages } = this.#floor;
    const left = app.client.left(work);
    const place = `/items?${new URLSearchParams({ task: work.task, item: work.item })}`;
    const { title } = shown(this.#floor.tasks.get(work.task)?.display, work.item, work.details);
    const says = [title !== work.item && work.item, left === null ? t`no lease` : remaining(left), work.attempt > 1 && t`attempt ${work.attempt}`, work.instance].filter(Boolean).join(', ');
    return html`<li data-work=${work.id}>
      ${manages ? html`<a href=${place} dir="auto">${title}</a>` : html`<span dir="auto">${title}</span>`}
      ${manages ? html`<button type="button" class="reassign" aria-label=${t`Reassign ${work.item}, which ${work.user} holds …`}
        @click=${() => this.#reassign(work)}>${t`Reassign …`}</button>` : nothing}
      <small>${t`since ${when(work.assigned_at)}`}, ${says}</small>
    </li>`;
  }

  #toggle(holder, open) {
    const key = keyOf(holder);
    if (open === this.#open.has(key)) return;
    if (open) this.#open.set(key, step);
    else this.#open.delete(key);
    if (open) this.#reader.restart();
    this.#floor.draw();
  }

  #sort(order) {
    this.#order = order;
    this.#reader.restart();
  }

  #more() {
    this.#count += step;
    this.#reader.restart();
  }

  #older(holder) {
    this.#open.set(keyOf(holder), holder.items.rows.length + step);
    this.#reader.restart();
  }

  async #reassign(work) {
    const { app, signal } = this.#floor;
    const loaded = await this.#floor.dialogs(import('../reassign.js'));
    if (!loaded) return;
    const given = await loaded.reassignDialog(app, work, signal);
    if (given) {
      app.say(t`${given.item} is with ${given.user} now.`);
      this.#reader.restart();
    }
    this.#floor.refocus('held');
  }
}
