/** The charts of the last hours, days or months, and the same figures as a table. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';
import { onceAFrame, took, when } from '../../parts.js';
import { clock } from '../../words.js';
import { chart, keys } from './chart.js';
import { History, spans } from './history.js';

const charts = [
  { name: 'left', title: t`Left to do`, of: 'count', series: [{ name: t`left`, value: (r) => r.left, time: 'now', kind: 'line' }] },
  { name: 'waits', title: t`How long people wait for work`, of: 'ms', series: [
    { name: t`median`, value: (r) => r.wait?.p50 ?? null, time: 'now', kind: 'line' },
    { name: t`90th percentile`, value: (r) => r.wait?.p90 ?? null, time: 'half', kind: 'line', dash: 'dashed' },
  ] },
  { name: 'requests', title: t`Requests made`, of: 'count', adds: true, series: [
    { name: t`given`, value: (r) => r.given, time: 'now', kind: 'bar' },
    { name: t`empty`, value: (r) => r.empty, time: 'half', kind: 'bar' },
    { name: t`failed`, value: (r) => r.failed, time: 'fifth', kind: 'bar' },
    { name: t`waiting`, value: (r) => Math.max(0, r.requests - r.given - r.empty - r.failed - r.cancelled), time: 'none', kind: 'bar' },
  ] },
  { name: 'work', title: t`Items handed out and let go of`, of: 'count', adds: true, series: [
    { name: t`completed`, value: (r) => r.completed, time: 'ok', kind: 'bar' },
    { name: t`returned`, value: (r) => r.returned, time: 'half', kind: 'bar' },
    { name: t`expired`, value: (r) => r.expired, time: 'fifth', kind: 'bar' },
    { name: t`handed out`, value: (r) => r.assigned, time: 'ink', kind: 'mark' },
  ] },
  { name: 'runs', title: t`Time of a run`, of: 'ms', series: [
    { name: t`median`, value: (r) => r.run?.p50 ?? null, time: 'now', kind: 'line' },
    { name: t`longest`, value: (r) => r.run?.max ?? null, time: 'half', kind: 'line', dash: 'dashed' },
    { name: t`usual`, value: (r) => r.usual, time: 'none', kind: 'line', dash: 'dotted' },
  ] },
  { name: 'held', title: t`Items held`, of: 'count', series: [{ name: t`held`, value: (r) => r.held, time: 'now', kind: 'line' }] },
];

const columns = [
  [t`Asked`, (r) => r.requests], [t`Given`, (r) => r.given], [t`Empty`, (r) => r.empty], [t`Failed`, (r) => r.failed],
  [t`Cancelled`, (r) => r.cancelled], [t`Median wait`, (r) => took(r.wait?.p50)], [t`90th percentile`, (r) => took(r.wait?.p90)],
  [t`Runs`, (r) => r.runs], [t`Failed runs`, (r) => r.runs_failed], [t`Median run`, (r) => took(r.run?.p50)],
  [t`Longest run`, (r) => took(r.run?.max)], [t`Handed out`, (r) => r.assigned], [t`Completed`, (r) => r.completed], [t`Returned`, (r) => r.returned], [t`Never again`, (r) => r.never],
  [t`Failed work`, (r) => r.failed_work], [t`Expired`, (r) => r.expired], [t`Reassigned`, (r) => r.reassigned], [t`Held`, (r) => r.held],
];

const fewest = 12; // rows: with fewer, a bar would be as wide as a thumb
const happened = (r) => r.requests || r.runs || r.assigned || r.held || r.completed || r.returned || r.expired;

const hour = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
const weekday = new Intl.DateTimeFormat(locale, { weekday: 'short', hour: 'numeric' });
const month = new Intl.DateTimeFormat(locale, { month: 'short', day: 'numeric' });

const text = (one, v) => (v === null ? '–' : one.of === 'ms' ? took(v) : v.toLocaleString(locale));

/** What a legend says of rows: how many in all; of times, and of what is held, the last that is known. */
function figure(one, { value }, rows) {
  const of = rows.map(value);
  return one.adds ? of.reduce((sum, n) => sum + n, 0) : of.findLast((v) => v !== null) ?? null;
}

/** It draws into an element of its own, for it follows the pointer. */
export class Charts {
  element = document.createElement('section');
  rows = [];

  #floor; #reader; #history; #draw;
  #pointed; // which row the pointer is at

  constructor(floor) {
    this.#floor = floor;
    this.element.dataset.part = 'charts';
    this.element.className = 'story';
    this.element.setAttribute('aria-labelledby', 'charts-title');
    const { app, signal } = floor;
    this.#draw = onceAFrame(() => render(this.#template(), this.element), signal);
    window.addEventListener('resize', () => this.#measure(), { signal });
    this.#history = new History(spans.find((s) => s.hours === floor.address.get('hours')) ?? spans[1]);
    this.#reader = floor.reader(() => this.#read(app.api), () => this.show(), { least: 5000 });
    this.#draw();
  }

  get settled() { return this.#reader.settled; }

  /** How far back it is shown. */
  get span() { return this.#history.span; }

  get isToday() { return this.span.hours <= 24; }

  again() { this.#reader.again(); }

  /** Push was down: the known data may be wrong. */
  reread() {
    this.#history.forget();
    this.again();
  }

  /** Other tasks are to be shown, or other hours. */
  restart(span = this.#history.span) {
    this.#history = new History(span, this.#floor.shown().length);
    this.#reader.restart();
    this.#draw();
  }

  /** Shows another span of time. */
  choose(span) {
    this.#floor.keep('hours', span === spans[1] ? '' : span.hours);
    this.restart(span);
    this.#floor.draw();
  }

  /** Updates the charts to the known data and the time. */
  show() {
    if (this.#history.read) { // else the old charts stay until there is new data
      const usual = this.#usual();
      this.rows = this.#history.rows(this.#floor.names(), this.#floor.now());
      for (const row of this.rows) row.usual = usual;
    }
    this.#draw();
    this.#floor.draw();
  }

  /** How long a run usually takes, in ms; of several tasks, the slowest one's. */
  #usual() {
    const known = this.#floor.shown().map((task) => task.usual_seconds).filter((s) => s !== null);
    return known.length ? 1000 * Math.max(...known) : null;
  }

  /** The rows that the charts show: from the first in which anything happened, and as many as a chart is readable with. */
  #window() {
    const first = this.rows.findIndex(happened);
    return this.rows.slice(Math.max(0, Math.min(first < 0 ? 0 : first - 1, this.rows.length - fewest)));
  }

  /** Called now and then: time passes also when nothing happens. */
  tick() {
    const last = this.rows.at(-1);
    if (last && this.#floor.now() >= last.at + this.#history.step.ms) this.show();
  }

  get #asTable() { return this.#floor.address.get('as') === 'table'; }

  async #read(api) {
    const tasks = this.#floor.shown().length;
    if (!this.#history.isFor(tasks)) this.#history = new History(this.#history.span, tasks);
    const history = this.#history;
    const from = new Date(history.from(this.#floor.now())).toISOString();
    const running = this.#floor.shown().filter((t) => t.running_since).map((t) => Date.parse(t.running_since));
    history.take(await api.history({ task: this.#floor.names().join(','), from, step: history.step.step }), running);
  }

  #point(i) {
    if (i === this.#pointed) return;
    this.#pointed = i;
    this.#draw();
  }

  #toggle() {
    this.#floor.keep('as', this.#asTable ? '' : 'table');
    this.show();
  }

  #template() {
    const { error } = this.#reader;
    return html`
      <div class="head">
        <h2 id="charts-title" tabindex="-1">${this.isToday ? t`The last hours` : t`The last ${this.span.name}`}</h2>
        ${this.isToday ? html`<div class="pick" role="group" aria-label=${t`How far back`}>${spans.slice(0, 3).map((span) => html`
          <button type="button" aria-pressed=${span === this.span} @click=${() => this.choose(span)}>${span.name}</button>`)}
        </div>` : nothing}
        <button class="push" type="button" aria-pressed=${this.#asTable} @click=${() => this.#toggle()}>${t`As a table`}</button>
      </div>
      <p class="soft">${this.#explanation()} <span class="period">${this.#period()}</span></p>
      <p class="error" role="alert" dir="auto">${error ? t`The charts can’t be brought up to date: ${error.message}.` : nothing}</p>
      <div class="columns charts" ?hidden=${this.#asTable}>${charts.map((one) => this.#chart(one))}</div>
      ${this.#asTable ? this.#table() : nothing}`;
  }

  #explanation() {
    const several = (this.#floor.names().length || this.#floor.tasks.size) > 1;
    const { read, span, step } = this.#history;
    const quiet = !this.rows.some(happened);
    if (read && quiet) return t`Nothing happened in the last ${span.name}.`;
    return several
      ? t`A value for every ${step.every}: counts are the sum of the tasks chosen, times those of the slowest of them. Choose one task to see its own.`
      : t`A value for every ${step.every}.`;
  }

  /** The rows that the figures are of: the one under the pointer, or else all that are shown. */
  get #told() {
    const rows = this.#window();
    return rows[this.#pointed] ? [rows[this.#pointed]] : rows;
  }

  #chart(one) {
    const rows = this.#told;
    const shown = this.#window();
    if (one.name === 'left' && !shown.some((r) => r.left !== null)) return nothing;
    const every = Math.ceil(shown.length / 3.5); // closer, the first label would touch the second
    return html`<figure class="chart" data-chart=${one.name}>
      <figcaption><h3>${one.title}</h3></figcaption>
      <div class="bar legend">${keys(one.series.map((s) => ({ ...s, name: html`${s.name} <b>${rows.length ? text(one, figure(one, s, rows)) : '–'}</b>` })))}</div>
      ${chart(shown, one.series, {
        of: one.of,
        label: (row, i) => (i % every ? '' : this.#name(row.at)),
        says: rows.length ? t`Chart: ${one.title}, from ${clock(rows[0].at)} until now: ${values(one, rows)}` : t`Chart: ${one.title}`,
        pointed: (i) => this.#point(i),
      })}
    </figure>`;
  }

  /** A row's time as the charts have it. */
  #name(at) { return (this.isToday ? hour : this.span.hours > 168 ? month : weekday).format(at); }

  /** Which time the figures of all charts are of. */
  #period() {
    const [row, ...more] = this.#told;
    if (!row || this.#asTable) return '';
    return more.length ? t`Counts are of all that is shown, since ${clock(row.at)}; times and what is held are the latest.`
      : t`The figures are of ${clock(row.at)} to ${clock(row.at + this.#history.step.ms)}.`;
  }

  /** Whether there is more of the table than is shown: measured once it is drawn, and when the window changes. */
  #measure = onceAFrame(() => {
    const table = this.element.querySelector('.history')?.parentElement;
    if (table) table.previousElementSibling.hidden = table.scrollWidth <= table.clientWidth;
  });

  #table() {
    this.#measure();
    return html`<p class="soft scrolls" hidden>${t`The table scrolls sideways: there are more columns to the right.`}</p>
    <div class="scroll tall" tabindex="0" role="region" aria-label=${t`The same as a table`}>
      <table class="history">
        <thead><tr><th scope="col">${t`From`}</th>${columns.map(([name]) => html`<th scope="col" class="num">${name}</th>`)}</tr></thead>
        <tbody>${this.rows.toReversed().map((row) => html`<tr>
          <th scope="row">${when(new Date(row.at).toISOString())}</th>${columns.map(([, value]) => html`<td class="num">${value(row)}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>`;
  }
}

const values = (one, rows) => one.series.map((s) => `${s.name} ${text(one, figure(one, s, rows))}`).join(', ');
