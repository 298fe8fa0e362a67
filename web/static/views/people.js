/**
 * People: who returns much, compared with the team, and which items many return. The address has the period (from=1h, 24h or
 * 7d) and the task (task; all by default).
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { locale, t } from '../lang.js';
import { every, fixed, onceAFrame, when } from '../parts.js';
import { Reader, byTitle, keepListed } from '../reader.js';
import { states } from '../words.js';
import { Past } from './people/past.js';

const spans = [
  { from: '1h', name: t`1 hour`, ms: 3_600_000 },
  { from: '24h', name: t`24 hours`, ms: 86_400_000 },
  { from: '7d', name: t`7 days`, ms: 604_800_000 },
];
const few = 5; // of so few let go of, a share says little

const columns = [
  { of: 'user', name: t`Person` },
  { of: 'assigned', name: t`Handed out` },
  { of: 'closed', name: t`Let go of` },
  { of: 'completed', name: t`Completed` },
  { of: 'returned', name: t`Returned` },
  { of: 'never', name: t`Never again` },
  { of: 'failed', name: t`Failed` },
  { of: 'expired', name: t`Expired` },
  { of: 'share', name: t`Share returned` },
];

export async function open(app, place) {
  new People(app, place).start();
}

class People {
  #app; #signal; #address; #draw; #reader;
  #titles = new Map(); // of the tasks by their names
  #span; #task;
  #sort = { of: 'returned', down: true };
  #open = new Map(); // of people whose work is shown, it

  constructor(app, { element, search, signal }) {
    this.#app = app;
    this.#signal = signal;
    this.#address = search;
    this.#span = spans.find((s) => s.from === search.get('from')) ?? spans[1];
    this.#task = search.get('task') ?? '';
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#reader = new Reader(() => this.#read(), this.#draw, { least: 10_000, signal });
  }

  start() {
    const { client, api } = this.#app;
    this.#draw();
    this.#reader.again();
    for (const type of ['task', 'reread']) client.addEventListener(type, () => this.#reader.again(), { signal: this.#signal });
    every(10_000, this.#draw, this.#signal);
    const list = new Reader(() => api.tasks(), () => this.#listed(list.value ?? []), { signal: this.#signal });
    keepListed(client, () => list.again(), this.#signal);
    this.#signal.addEventListener('abort', () => client.unsubscribe([...this.#titles.keys()]));
    list.again();
  }

  /** Without a list of tasks, names are shown instead of titles, and figures are not updated by events. */
  #listed(tasks) {
    const before = [...this.#titles.keys()];
    this.#titles = new Map(tasks.toSorted(byTitle).map((t) => [t.name, t.title || t.name]));
    this.#app.client.unsubscribe(before.filter((name) => !this.#titles.has(name)));
    this.#app.client.subscribe([...this.#titles.keys()]);
    this.#draw();
  }

  async #read() {
    const span = this.#span;
    const minute = Math.ceil((Date.now() + this.#app.client.ahead - span.ms) / 60_000); // callers of the same minute share an answer
    for (const past of this.#open.values()) past.again();
    return { ...await this.#app.api.returns({ task: this.#task, from: new Date(minute * 60_000).toISOString() }), span };
  }

  #choose(name, value, usual) {
    if (value === usual) this.#address.delete(name);
    else this.#address.set(name, value);
    const query = this.#address.toString();
    history.replaceState(null, '', query ? `/people?${query}` : '/people');
    for (const user of this.#open.keys()) this.#close(user);
    this.#reader.restart();
    this.#draw();
  }

  #template() {
    const { value, error, at } = this.#reader;
    return html`<div class="page people-view">
      <div class="toolbar">
        <h1>${t`People`}</h1>
        <div class="choice" role="group" aria-label=${t`How far back`}>${spans.map((s) => html`
          <button type="button" aria-pressed=${s === this.#span} @click=${() => this.#since(s)}>${s.name}</button>`)}</div>
        <label class="quiet">${t`Task`} <select @change=${(e) => this.#of(e.target.value)}>
          <option value="" ?selected=${!this.#task}>${t`all tasks`}</option>
          ${this.#task && !this.#titles.has(this.#task) ? html`<option value=${this.#task} selected>${this.#task}</option>` : nothing}
          ${repeat(this.#titles, ([name]) => name, ([name, title]) => html`<option value=${name} ?selected=${name === this.#task}>${title}</option>`)}
        </select></label>
        <span class="push quiet">${at ? t`As of ${when(new Date(at + this.#app.client.ahead).toISOString())}` : nothing}</span>
      </div>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value ? html`${this.#team(value)}${this.#people(value)}${this.#items(value)}` : nothing}
    </div>`;
  }

  #since(s) {
    this.#span = s;
    this.#choose('from', s.from, '24h');
  }

  #of(task) {
    this.#task = task;
    this.#choose('task', task, '');
  }

  #team({ team, span }) {
    const all = team.closed ? html` ${t`For the whole team, in the last ${span.name}, it is ${html`<b>${percent(team.share)}</b>`}: ${team.returned} of ${team.closed}, which is the mark on the bars.`}` : nothing;
    return html`<p class="explained">${t`A returned item goes back, for later or for others. The ${html`<b>${t`share returned`}</b>`} is the part of a person’s closed work that they returned.`}${all}
      ${t`A large share can have good reasons, such as hard cases: look at the items first. Work that a manager took away does not count.`}</p>`;
  }

  #people({ people, team, span }) {
    const list = sorted(people, this.#sort);
    return html`<section aria-labelledby="returners">
      <h2 id="returners">${t`Who returns`}</h2>
      ${people.length ? html`<div class="scroll card" tabindex="0" role="region" aria-label=${t`People and what they return`}>
        <table>
          <thead><tr>${columns.map((column) => this.#head(column))}</tr></thead>
          <tbody>${repeat(list, (p) => p.user, (p) => this.#person(p, team))}</tbody>
        </table>
        ${people.length === 50 ? html`<p class="quiet">${t`These are the fifty who returned most.`}</p>` : nothing}
      </div>` : html`<p class="empty">${t`Nobody held or let go of anything in the last ${span.name}.`}</p>`}
    </section>`;
  }

  #head({ of, name }) {
    const { down, of: by } = this.#sort;
    const sort = () => {
      this.#sort = { of, down: by === of ? !down : of !== 'user' };
      this.#draw();
    };
    return html`<th scope="col" class=${of === 'user' || of === 'share' ? nothing : 'number'}
      aria-sort=${by !== of ? nothing : down ? 'descending' : 'ascending'}><button type="button" class="plain" @click=${sort}>${name}</button></th>`;
  }

  #person(p, team) {
    const past = this.#open.get(p.user);
    const toggle = () => {
      if (this.#open.has(p.user)) this.#close(p.user);
      else this.#open.set(p.user, new Past(this.#app, p.user, this.#task, this.#draw, this.#signal));
      this.#draw();
    };
    return html`<tr data-user=${p.user}>
      <th scope="row"><button type="button" class="plain" aria-expanded=${Boolean(past)} @click=${toggle} dir="auto">${p.user}</button></th>
      ${columns.slice(1, -1).map(({ of }) => html`<td class="number">${p[of].toLocaleString(locale)}</td>`)}
      <td>${share(p, team)}</td>
    </tr>
    ${past ? html`<tr class="more"><td colspan=${columns.length}>${past.template(this.#titles)}</td></tr>` : nothing}`;
  }

  #close(user) {
    this.#open.get(user).end();
    this.#open.delete(user);
  }

  #items({ items, span }) {
    const manages = this.#app.me.role === 'manager';
    return html`<section aria-labelledby="returned">
      <h2 id="returned">${t`What many return`}</h2>
      ${items.length ? html`<div class="scroll card" tabindex="0" role="region" aria-label=${t`Items returned more than once`}>
        <table class="stack">
          <thead><tr><th scope="col">${t`Item`}</th><th scope="col">${t`Task`}</th><th scope="col" class="number">${t`By people`}</th>
            <th scope="col" class="number">${t`Returned`}</th><th scope="col">${t`Last`}</th><th scope="col">${t`Now`}</th></tr></thead>
          <tbody>${repeat(items, (i) => `${i.task} ${i.item}`, (i) => html`<tr>
            <th scope="row" dir="auto">${manages ? html`<a href=${place(i)}>${i.item}</a>` : i.item}</th>
            <td dir="auto">${this.#titles.get(i.task) ?? i.task}</td>
            <td class="number" data-label=${t`By people`}>${i.people}</td><td class="number" data-label=${t`Returned`}>${times(i.returns)}</td>
            <td data-label=${t`Last`}>${when(i.last_at)}</td><td data-label=${t`Now`}>${states[i.state] ?? i.state}</td>
          </tr>`)}</tbody>
        </table>
      </div>` : html`<p class="empty">${t`Nothing was returned more than once in the last ${span.name}.`}</p>`}
    </section>`;
  }
}

function sorted(people, { of, down }) {
  const up = of === 'user' ? (a, b) => a.user.localeCompare(b.user) : (a, b) => (a[of] ?? -1) - (b[of] ?? -1);
  return people.toSorted((a, b) => (down ? up(b, a) : up(a, b)));
}

/** A person's share as a bar with a mark for the team's, and in words. */
function share(p, team) {
  if (p.share === null || !p.closed) return html`<span class="quiet">${t`let go of nothing`}</span>`;
  return html`<span class="share"><b>${percent(p.share)}</b>
    <svg class="gauge" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="6"></rect>
      <rect class="fill" width=${100 * p.share} height="6"></rect>
      <rect class="mark" x=${Math.min(99, 100 * (team.share ?? 0))} width="1" height="6"></rect>
    </svg>
    <span class="quiet">${against(p, team)}</span></span>`;
}

function against({ closed, share: his }, { share: all }) {
  if (closed < few) return t`too few to say`;
  if (!all) return t`as the team`;
  const ratio = his / all;
  if (ratio >= 2) return t`${fixed(ratio, ratio < 10 ? 1 : 0)} times the team’s`;
  if (ratio > 1.2) return t`more than the team`;
  return ratio < 0.8 ? t`less than the team` : t`as the team`;
}

const place = ({ task, item }) => `/items?${new URLSearchParams({ task, item })}`;
const inPercent = [0, 1].map((n) => new Intl.NumberFormat(locale, { style: 'percent', minimumFractionDigits: n, maximumFractionDigits: n }));
const percent = (part) => (part === null ? '–' : inPercent[part > 0 && part < 0.1 ? 1 : 0].format(part));
const times = (n) => (n === 1 ? t`once` : n === 2 ? t`twice` : t`${n} times`);
