/** Why an item is or is not handed out, who had it, and what a manager can do about it. The address has the question. */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { t } from '../lang.js';
import { now } from '../now.js';
import { every, onceAFrame } from '../parts.js';
import { Reader, byTitle, keepListed } from '../reader.js';
import { Answer } from './items/answer.js';
import { Search, searchAddress, searchFields, searchOf } from './items/search.js';
import { badge, became, moment } from './items/sentences.js';
import { releaseDialog } from './release.js';

export function open(app, { element, search, signal }) {
  const asked = { item: search.get('item') ?? '', task: search.get('task') ?? '' };
  const view = new Items(app, element, asked, searchOf(search), signal);
  if (search.has('release')) view.release(search.get('user') ?? '', asked.task);
}

const addressOf = ({ item, task }) => `/items?${new URLSearchParams(task ? { item, task } : { item })}`;

const recent = {
  read: () => JSON.parse(sessionStorage.getItem('getwork-items') ?? '[]'),
  add({ item, task }) {
    const others = recent.read().filter((r) => r.item !== item || r.task !== task);
    sessionStorage.setItem('getwork-items', JSON.stringify([{ item, task }, ...others].slice(0, 8)));
  },
};

class Items {
  #element;
  #tasks = null;
  #asked; // {item, task}; no task: all
  #answers = new Map(); // by the task's name
  #history = null; // {rows, next} of the item, newest first
  #list; // reads the tasks
  #reader; // of the history
  #search = null; // of work, instead of a look for one item
  #error = ''; // of anything else

  constructor(app, element, asked, search, signal) {
    this.app = app;
    this.signal = signal;
    this.#element = element;
    this.#asked = search ? { item: '', task: search.task ?? '' } : asked;
    this.draw = onceAFrame(() => this.#draw(), signal);
    this.changed = () => this.#reader.again();
    this.#reader = new Reader(() => this.#readHistory(), this.draw, { signal });
    this.#list = new Reader(() => app.api.tasks(), () => this.#listed(), { signal });
    const { client } = app;
    keepListed(client, () => this.#list.again(), signal);
    client.addEventListener('task', (e) => this.#heard(e.detail), { signal });
    signal.addEventListener('abort', () => client.unsubscribe([...this.#answers.keys()]));
    every(1000, () => { if (this.#answers.size) this.draw(); }, signal); // clocks, and whether an answer is still good
    app.keys([{ key: '/', does: t`Find an item`, run: () => this.#input.select() }], signal);
    this.titleOf = (task) => this.#titleOf(task);
    this.tasks = () => this.#tasks ?? [];
    if (search) this.#search = new Search(this, search);
    this.#draw();
    if (!asked.item && !search) requestAnimationFrame(() => this.#input.focus());
    this.#list.again();
  }

  get #input() { return this.#element.querySelector('#item'); }

  #listed() {
    const { value, error } = this.#list;
    this.#error = error ? t`The tasks can’t be read: ${error.message}.` : '';
    if (!error) this.#tasks = value.toSorted(byTitle);
    if (!error && this.#asked.item) this.#look();
    this.draw();
  }

  /** Asks another question, which gets an address of its own. */
  #find(e) {
    e.preventDefault();
    const form = new FormData(e.target, e.submitter);
    const asked = { item: form.get('item'), task: form.get('task') };
    const search = searchOf(new URLSearchParams(form));
    if (search) {
      this.app.go(searchAddress(search));
      return;
    }
    if (!asked.item) {
      this.#input.focus();
      return;
    }
    this.#search = null;
    history[addressOf(asked) === addressOf(this.#asked) ? 'replaceState' : 'pushState'](null, '', addressOf(asked));
    for (const answer of this.#answers.values()) answer.asking?.stop.abort();
    this.app.client.unsubscribe([...this.#answers.keys()]);
    this.#answers.clear();
    this.#history = null;
    this.#asked = asked;
    this.#input.select();
    this.#reader.restart();
    this.#list.restart();
  }

  /** Updates the answers to the tasks; the task in the address is asked at once. */
  #look() {
    const { item, task } = this.#asked;
    const tasks = task ? this.#tasks.filter((t) => t.name === task) : this.#tasks;
    for (const name of this.#answers.keys()) if (!tasks.some((t) => t.name === name)) this.#answers.delete(name);
    for (const t of tasks) {
      if (this.#answers.has(t.name)) {
        this.#answers.get(t.name).task = t;
        continue;
      }
      const answer = new Answer(this, t, item);
      this.#answers.set(t.name, answer);
      if (task) answer.ask();
    }
    this.app.client.subscribe(tasks.map((t) => t.name));
    recent.add(this.#asked);
    this.changed();
  }

  #heard(task) {
    const answer = this.#answers.get(task.name);
    if (!answer) return;
    answer.task = task;
    this.changed();
  }

  async #readHistory() {
    const asked = this.#asked;
    const { work, next_cursor: next } = await this.app.api.work({ ...asked, limit: 100 });
    if (asked === this.#asked) this.#take(work, next);
  }

  /** Takes the history's newest rows. Older ones that were asked for stay. */
  #take(work, next) {
    const newer = new Set(work.map((w) => w.id));
    const older = next ? (this.#history?.rows ?? []).filter((w) => !newer.has(w.id)) : [];
    this.#history = { rows: [...work, ...older], next: older.length ? this.#history.next : next };
    for (const [task, answer] of this.#answers) answer.known(this.#history.rows.filter((w) => w.task === task), now());
  }

  async #older() {
    const asked = this.#asked;
    const { next } = this.#history;
    try {
      const { work, next_cursor: more } = await this.app.api.work({ ...asked, limit: 100, cursor: next });
      if (asked !== this.#asked || next !== this.#history.next) return; // another item, or pressed twice
      this.#history = { rows: [...this.#history.rows, ...work], next: more };
      this.#error = '';
    } catch (e) {
      if (asked !== this.#asked) return;
      this.#error = t`Older rows can’t be read: ${e.message}.`;
    }
    this.draw();
  }

  /** Opens the dialog; its address is left when it is closed. */
  async release(user, task) {
    await releaseDialog(this.app, { user, task, signal: this.signal });
    if (this.signal.aborted) return;
    const here = new URLSearchParams(location.search);
    if (here.has('release')) history.replaceState(null, '', this.#asked.item ? addressOf(this.#asked) : '/items');
    if (this.#asked.item) this.changed();
  }

  #draw() {
    render(html`<div class="page items">
      <div class="bar">
        <h1>${t`Items`}</h1>
        <button type="button" class="push" id="release-work"
          @click=${() => this.release('', this.#asked.task)}>${t`Release in bulk …`}</button>
      </div>
      <form class="paper find" role="search" @submit=${(e) => this.#find(e)}>
        <div class="field"><label for="item">${t`Item`}</label>
          <input id="item" name="item" .value=${this.#search?.asked.item ?? this.#asked.item} dir="auto" placeholder=${t`Its key, such as 123`}
            autocomplete="off" autocapitalize="off" spellcheck="false" enterkeyhint="search"></div>
        <div class="field"><label for="of-task">${t`Task`}</label>
          <select id="of-task" name="task">${this.#options()}</select></div>
        <button class="primary">${t`Find`}</button>
        ${searchFields(this.#search?.asked ?? null)}
        ${this.#recent()}
      </form>
      <p class="error" role="alert" dir="auto">${this.#error}</p>
      ${this.#search ? this.#search.template() : this.#asked.item ? this.#found() : html`<p class="empty">${t`Type an item’s key, and see why it is or is not handed out, who has it, and who had it.`}</p>`}
    </div>`, this.#element);
  }

  #titleOf(task) { return this.#tasks?.find((t) => t.name === task)?.title || task; }

  #options() {
    const { task } = this.#asked;
    const tasks = this.#tasks ?? [];
    const known = !task || tasks.some((t) => t.name === task);
    return html`<option value="">${t`all tasks`}</option>
      ${known ? nothing : html`<option value=${task} selected>${task}</option>`}
      ${repeat(tasks, (t) => t.name, (t) => html`<option value=${t.name}
        ?selected=${t.name === task}>${t.title || t.name}</option>`)}`;
  }

  #recent() {
    const others = recent.read().filter((r) => r.item !== this.#asked.item || r.task !== this.#asked.task);
    if (!others.length) return nothing;
    return html`<p class="recent"><span class="soft">${t`Lately:`}</span>
      ${others.map((r) => html`<a href=${addressOf(r)}><bdi>${r.item}</bdi>
        ${r.task ? html`<span class="soft" dir="auto">${this.#titleOf(r.task)}</span>` : nothing}</a>`)}</p>`;
  }

  #found() {
    const { item, task } = this.#asked;
    const had = (name) => (this.#history?.rows.some((w) => w.task === name) ? 0 : 1);
    const answers = [...this.#answers.values()].sort((a, b) => had(a.task.name) - had(b.task.name));
    return html`
      <section class="answers" aria-labelledby="found">
        <h2 id="found"><bdi>${item}</bdi></h2>
        ${item !== item.trim() ? html`<p class="soft">${t`The spaces around it are part of the key.`}
          <a href=${addressOf({ item: item.trim(), task })}>${t`Without them`}</a></p>` : nothing}
        ${this.#tasks && task && !this.#answers.size ? html`<p class="error">${t`There is no task ${html`<bdi>${task}</bdi>`} any more.`}
          <a href=${addressOf({ item, task: '' })}>${t`All tasks`}</a></p>` : nothing}
        ${answers.length > 1 ? html`<p class="soft">${t`The history is shown at once. A check takes as long as the task’s query.`} <button type="button" class="explain-all"
            @click=${() => this.#explainAll(answers)}>${t`Check all ${answers.length} tasks`}</button></p>` : nothing}
        <div class="cards">${repeat(answers, (a) => a.task.name, (a) => a.draw())}</div>
      </section>
      <section aria-labelledby="history">
        <h2 id="history">${t`History`}</h2>
        ${this.#timeline()}
      </section>`;
  }

  /** One after another: queries are heavy, and a node runs few of them at a time. */
  async #explainAll(answers) {
    for (const answer of answers) {
      if (this.#answers.get(answer.task.name) !== answer || this.signal.aborted) return;
      if (!answer.asking) await answer.ask();
    }
  }

  #timeline() {
    const { error } = this.#reader;
    if (error) {
      return html`<p class="error" role="alert" dir="auto">${t`The history can’t be read: ${error.message}. It is tried again.`}</p>`;
    }
    if (!this.#history) return html`<p class="soft">${t`Reading …`}</p>`;
    const { rows, next } = this.#history;
    if (!rows.length) return html`<p class="empty">${this.#asked.task ? t`Nobody has had it for this task.` : t`Nobody has ever had it.`}</p>`;
    return html`<ol class="paper timeline">${repeat(rows, (w) => w.id, (w) => this.#row(w))}</ol>
      ${next ? html`<button type="button" @click=${() => this.#older()}>${t`Show older`}</button>` : nothing}`;
  }

  #row(w) {
    return html`<li>
      <p>${badge(w)} <b dir="auto">${w.user}</b>
        <span class="soft">${t`from ${moment(w.assigned_at)}`}${w.closed_at ? html` ${t`to ${moment(w.closed_at)}`}` : nothing}</span>
        ${this.#asked.task ? nothing : html`<span class="soft of" dir="auto">${this.#titleOf(w.task)}</span>`}</p>
      <p>${became(w)}</p>
      ${w.error ? html`<p class="error" dir="auto">${w.error}</p>` : nothing}
      ${w.note ? html`<blockquote dir="auto">${w.note}</blockquote>` : nothing}
    </li>`;
  }
}
