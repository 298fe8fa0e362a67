/**
 * People: what each did and holds, who is away, and which items many give back. The address has the period (from=1h, 24h or 7d) and the
 * task (task; all by default). The server may hide people's figures: a column that nobody has is not shown.
 */

import { html, nothing, render } from '../lib/lit-html/lit-html.js';
import { repeat } from '../lib/lit-html/directives/repeat.js';
import { locale, plural, t } from '../lang.js';
import { age, every, face, fixed, onDemand, onceAFrame, span as spanOf, when } from '../parts.js';
import { Reader, byTitle, keepListed } from '../reader.js';
import { clock, states } from '../words.js';
import { Absent } from './floor/absent.js';
import { Past } from './people/past.js';

const spans = [
  { from: '1h', name: t`1 hour`, ms: 3_600_000 },
  { from: '24h', name: t`24 hours`, ms: 86_400_000 },
  { from: '7d', name: t`7 days`, ms: 604_800_000 },
];
const few = 5; // of so few let go of, a share says little

const count = (v) => v.toLocaleString(locale);
const perHour = (v) => fixed(v, v < 10 ? 1 : 0);
const columns = [
  { of: 'user', name: t`Person` },
  { of: 'completed', name: t`Done`, text: count },
  { of: 'done_per_hour', name: t`An hour`, text: perHour },
  { of: 'handling_p50_seconds', name: t`Half take under`, text: (v) => spanOf(1000 * v), up: true },
  { of: 'held', name: t`Holds`, text: count },
  { of: 'assigned', name: t`Handed out`, text: count },
  { of: 'returned', name: t`Gave back`, text: count },
  { of: 'never', name: t`Never again`, text: count },
  { of: 'failed', name: t`Failed`, text: count },
  { of: 'expired', name: t`Ran out`, text: count },
];

export async function open(app, place) {
  new People(app, place).start();
}

class People {
  #app; #element; #signal; #address; #draw; #reader; #absent;
  #titles = new Map(); // of the tasks by their names
  #listed = false; // the list was read, or could not be
  #span; #task;
  #sort = { of: 'completed', down: true };
  #open = new Map(); // of people whose work is shown, it

  constructor(app, { element, search, signal }) {
    this.#app = app;
    this.#element = element;
    this.#signal = signal;
    this.#address = search;
    this.#span = spans.find((s) => s.from === search.get('from')) ?? spans[1];
    this.#task = search.get('task') ?? '';
    this.#draw = onceAFrame(() => render(this.#template(), element), signal);
    this.#reader = new Reader(() => this.#read(), this.#draw, { least: 10_000, signal });
    this.#absent = new Absent(this);
  }

  // What the list of those who are away needs of a view.
  get app() { return this.#app; }
  get signal() { return this.#signal; }
  get manages() { return this.#app.me.role === 'manager'; }
  draw = () => this.#draw();
  now() { return Date.now() + this.#app.client.ahead; }
  names() { return this.#task ? [this.#task] : []; }
  titleOf(name) { return this.#titles.get(name) ?? name; }
  reader(read, changed, options) { return new Reader(read, changed, { ...options, signal: this.#signal }); }
  refocus() { if (document.activeElement === document.body) this.#element.querySelector('#who')?.focus(); }

  start() {
    const { client, api } = this.#app;
    this.#draw();
    this.#reader.again();
    this.#absent.again();
    for (const type of ['task', 'reread']) client.addEventListener(type, () => this.#reader.again(), { signal: this.#signal });
    every(10_000, this.#draw, this.#signal);
    const list = new Reader(() => api.tasks(), () => this.#list(list.value ?? []), { signal: this.#signal });
    keepListed(client, () => list.again(), this.#signal);
    this.#signal.addEventListener('abort', () => client.unsubscribe([...this.#titles.keys()]));
    list.again();
  }

  /** Without a list of tasks, names are shown instead of titles, and figures are not updated by events. */
  #list(tasks) {
    this.#listed = true;
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
    const [returns, { absences }, { requests }] = await Promise.all([
      this.#app.api.returns({ task: this.#task, from: new Date(minute * 60_000).toISOString() }),
      this.#app.api.absences({ limit: 500 }), this.#app.api.waiting({ task: this.#task, limit: 500 }),
    ]);
    const now = this.now();
    return { ...returns, span, away: new Map(absences.filter((a) => Date.parse(a.from) <= now).map((a) => [a.user, a])), waits: new Map(requests.map((r) => [r.user, r])) };
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
    // The list of tasks appears when it is known: in Firefox it would keep the width that it had without its options.
    return html`<div class="page people-view">
      <header class="bar">
        <h1>${t`People`}</h1>
        <div class="pick" role="group" aria-label=${t`How far back`}>${spans.map((s) => html`
          <button type="button" aria-pressed=${s === this.#span} @click=${() => this.#since(s)}>${s.name}</button>`)}</div>
        <label class="check" ?hidden=${!this.#listed}><span class="sr">${t`Task`}</span><select @change=${(e) => this.#of(e.target.value)}>
          <option value="" ?selected=${!this.#task}>${t`all tasks`}</option>
          ${this.#task && !this.#titles.has(this.#task) ? html`<option value=${this.#task} selected>${this.#task}</option>` : nothing}
          ${repeat(this.#titles, ([name]) => name, ([name, title]) => html`<option value=${name} ?selected=${name === this.#task}>${title}</option>`)}
        </select></label>
        <span class="push soft">${at ? t`As of ${when(new Date(at + this.#app.client.ahead).toISOString())}` : nothing}</span>
      </header>
      <p class="error" role="alert" dir="auto">${error ? t`It can’t be brought up to date: ${error.message}.` : nothing}</p>
      ${value ? html`${this.#people(value)}<div class="columns">${this.#items(value)}${this.#absent.template()}</div>` : nothing}
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

  /** Those columns of which the server tells something. */
  #columns(people) { return columns.filter(({ of }) => of === 'user' || people.some((p) => p[of] !== undefined)); }

  #people(value) {
    const { people, span, people_hidden: hidden } = value;
    const list = sorted(people, this.#sort);
    const shown = this.#columns(people);
    const most = Math.max(1, ...people.map((p) => p.completed ?? 0));
    const done = people.reduce((sum, p) => sum + (p.completed ?? 0), 0);
    return html`<section class="paper" aria-labelledby="who">
      <div class="head"><h2 id="who" tabindex="-1">${t`Who did what`}</h2>
        <span class="count">${people.length ? plural(people.length, '{0} person, {1} done', '{0} people, {1} done', done) : nothing}${
          people.length && value.team?.returned ? html`, ${t`${percent(value.team.share)} given back`}` : nothing}</span></div>
      ${people.length ? html`<div class="scroll" tabindex="0" role="region" aria-label=${t`Figures by person`}>
        <table>
          <thead><tr>${shown.map((column) => this.#head(column))}<th scope="col">${t`Now`}</th></tr></thead>
          <tbody>${repeat(list, (p) => p.user, (p) => this.#person(p, shown, most, value))}</tbody>
        </table>
        ${people.length === 50 ? html`<p class="soft">${t`These are the fifty who gave back most.`}</p>` : nothing}
      </div>` : hidden ? html`<p class="empty">${t`Figures of people are not shown here. The floor has who holds what.`}</p>`
        : html`<p class="empty">${t`Nobody held or let go of anything in the last ${span.name}.`}</p>`}
    </section>`;
  }

  #head({ of, name, up = false }) {
    const { down, of: by } = this.#sort;
    const sort = () => {
      this.#sort = { of, down: by === of ? !down : of !== 'user' && !up };
      this.#draw();
    };
    const narrow = of === 'user' || of === 'completed' ? '' : ' wide';
    return html`<th scope="col" class=${of === 'user' ? nothing : `num${narrow}`}
      aria-sort=${by !== of ? nothing : down ? 'descending' : 'ascending'}><button type="button" class="sort" @click=${sort}>${name}</button></th>
      ${of === 'completed' ? html`<th scope="col" class="wide"><span class="sr">${t`Done, as a bar`}</span></th>` : nothing}`;
  }

  #person(p, shown, most, value) {
    const past = this.#open.get(p.user);
    const toggle = () => {
      if (this.#open.has(p.user)) this.#close(p.user);
      else this.#open.set(p.user, new Past(this.#app, p.user, this.#task, this.#draw, this.#signal));
      this.#draw();
    };
    return html`<tr data-user=${p.user}>
      <th scope="row"><button type="button" class="sort" aria-expanded=${Boolean(past)} @click=${toggle}><span class="who">${face(p.user)}<span dir="auto">${p.user}</span></span></button></th>
      ${shown.slice(1).map(({ of, text }) => html`<td class=${`num${of === 'completed' ? '' : ' wide'}${p[of] ? '' : ' none'}`}>${of === 'returned' ? gaveBack(p, value.team) : p[of] ? text(p[of]) : '–'}</td>
        ${of === 'completed' ? html`<td class="wide" aria-hidden="true">${gauge(p.completed / most)}</td>` : nothing}`)}
      <td class="soft">${this.#now(p, value)}</td>
    </tr>
    ${past ? html`<tr class="more"><td colspan=${shown.length + 2}>${past.template(this.#titles)}</td></tr>` : nothing}`;
  }

  /** Where a person is, as far as the server says. */
  #now({ user, held }, { away, waits }) {
    if (away.has(user)) return away.get(user).until ? t`away until ${clock(away.get(user).until)}` : t`away`;
    if (waits.has(user)) return t`waits ${age(waits.get(user).created_at, this.#app.client.ahead)}`;
    return held ? t`at work` : nothing;
  }

  #close(user) {
    this.#open.get(user).end();
    this.#open.delete(user);
  }

  #items({ items, span }) {
    return html`<section class="story" aria-labelledby="returned">
      <h2 id="returned" tabindex="-1">${t`What many give back`}</h2>
      ${items.length ? html`<div class="tall" tabindex="0" role="region" aria-label=${t`Items given back more than once`}><ul>${repeat(items, (i) => `${i.task} ${i.item}`, (i) => html`<li data-item=${i.item}>
        ${this.manages ? html`<a href=${place(i)} dir="auto">${i.item}</a>` : html`<span dir="auto">${i.item}</span>`}
        ${this.manages && i.state !== 'held' && i.state !== 'never' && i.state !== 'completed'
          ? html`<button type="button" aria-label=${t`Give ${i.item} to …`} @click=${() => this.#give(i)}>${t`Give to …`}</button>` : html`<span class="soft">${states[i.state] ?? i.state}</span>`}
        <small dir="auto">${plural(i.people, '{0} person', '{0} people')}, ${times(i.returns)}, ${t`last ${when(i.last_at)}`}${coded(i.codes)}, ${this.titleOf(i.task)}</small>
      </li>`)}</ul></div>` : html`<p class="soft">${t`Nothing was given back more than once in the last ${span.name}.`}</p>`}
    </section>`;
  }

  async #give({ task, item }) {
    const loaded = await onDemand(import('./reassign.js'), this);
    if (!loaded) return;
    const given = await loaded.giveDialog(this.#app, { task, item }, this.#signal);
    if (given) {
      this.#app.say(t`${given.item} is with ${given.user} now.`);
      this.#reader.restart();
    }
  }
}

function sorted(people, { of, down }) {
  const up = of === 'user' ? (a, b) => a.user.localeCompare(b.user) : (a, b) => (a[of] ?? -1) - (b[of] ?? -1);
  return people.toSorted((a, b) => (down ? up(b, a) : up(a, b)));
}

/** How many a person gave back, and which part of what they let go of, unless that is a few; it stands out if it is twice the team's. */
function gaveBack({ returned, closed, share }, { share: all }) {
  if (!returned) return '–';
  const many = closed >= few;
  const stands = many && all && share / all >= 2;
  return html`${many ? html`<small class="soft">${percent(share)}</small> ` : nothing}<span class=${stands ? 'tag' : nothing} data-time=${stands ? 'half' : nothing} title=${t`${percent(share)} of what they let go of; of the team it is ${percent(all)}`}>${count(returned)}</span>`;
}

const gauge = (part) => html`<svg class="gauge" viewBox="0 0 100 8" preserveAspectRatio="none"><rect class="g0" width="100" height="8"></rect><rect class="g1" width=${100 * (part || 0)} height="8"></rect></svg>`;

const place = ({ task, item }) => `/items?${new URLSearchParams({ task, item })}`;
const inPercent = [0, 1].map((n) => new Intl.NumberFormat(locale, { style: 'percent', minimumFractionDigits: n, maximumFractionDigits: n }));
const percent = (part) => (part === null ? '–' : inPercent[part > 0 && part < 0.1 ? 1 : 0].format(part));
/** Which codes were given, the most frequent first. */
const coded = (codes = {}) => Object.entries(codes).sort(([, a], [, b]) => b - a).map(([code, n]) => html`, <bdi>${code}</bdi> ${count(n)}`);
const times = (n) => (n === 1 ? t`once` : n === 2 ? t`twice` : t`${n} times`);
