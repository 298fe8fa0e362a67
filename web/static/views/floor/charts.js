/** The charts of the last hours, and the same figures as a table. */

import { html, nothing, render } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';
import { onceAFrame, took, when } from '../../parts.js';
import { clock } from '../../words.js';
import { History, spans } from './history.js';
import { Plot, uPlot } from './plot.js';

const charts = [
  { name: 'requests', title: t`Requests made`, of: 'count', adds: true, series: [
    { name: t`given`, value: (r) => r.given, tone: '--chart-1', bar: true },
    { name: t`empty`, value: (r) => r.empty, tone: '--chart-2', bar: true },
    { name: t`failed`, value: (r) => r.failed, tone: '--chart-3', bar: true },
    { name: t`waiting`, value: (r) => r.requests - r.given - r.empty - r.failed - r.cancelled, tone: '--field', bar: true },
  ] },
  { name: 'waits', title: t`Time until an answer`, of: 'ms', series: [
    { name: t`median`, value: (r) => r.wait?.p50 ?? null, tone: '--chart-1', points: true },
    { name: t`90th percentile`, value: (r) => r.wait?.p90 ?? null, tone: '--chart-4', points: true, dash: 'dashed' },
  ] },
  { name: 'runs', title: t`Time of a run`, of: 'ms', series: [
    { name: t`median`, value: (r) => r.run?.p50 ?? null, tone: '--chart-1', points: true },
    { name: t`longest`, value: (r) => r.run?.max ?? null, tone: '--chart-4', points: true, dash: 'dashed' },
    { name: t`usual`, value: (r) => r.usual, tone: '--field', dash: 'dotted' },
  ] },
  { name: 'work', title: t`Items handed out and let go of`, of: 'count', adds: true, series: [
    { name: t`completed`, value: (r) => r.completed, tone: '--chart-1', bar: true },
    { name: t`returned`, value: (r) => r.returned, tone: '--chart-2', bar: true },
    { name: t`expired`, value: (r) => r.expired, tone: '--chart-3', bar: true },
    { name: t`handed out`, value: (r) => r.assigned, tone: '--text' },
  ] },
  { name: 'held', title: t`Items held`, of: 'count', series: [{ name: t`held`, value: (r) => r.held, tone: '--chart-1' }] },
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

const text = (chart, v) => (chart.of === 'ms' ? took(v) : v.toLocaleString(locale));

/** What a legend says of rows: how many in all; of times, and of what is held, the last that is known. */
function figure(chart, { value }, rows) {
  const of = rows.map(value);
  return chart.adds ? of.reduce((sum, n) => sum + n, 0) : of.findLast((v) => v !== null) ?? null;
}

/** It draws into an element of its own, for it follows the pointer. */
export class Charts {
  element = document.createElement('section');

  #floor; #reader; #history; #draw; #error;
  #plots = new Map(); // by the chart's name
  #rows = [];
  #pointed; // which row the pointer is at

  constructor(floor) {
    this.#floor = floor;
    this.element.dataset.part = 'charts';
    this.element.setAttribute('aria-labelledby', 'charts-title');
    const { app, signal } = floor;
    this.#draw = onceAFrame(() => render(this.#template(), this.element), signal);
    this.#history = new History(spans.find((s) => s.hours === floor.address.get('hours')) ?? spans[1]);
    this.#reader = floor.reader(() => this.#read(app.api), () => this.show(), { least: 5000 });
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', () => this.#plots.forEach((plot) => plot.repaint()), { signal });
    signal.addEventListener('abort', () => this.#plots.forEach((plot) => plot.end()));
    this.#draw();
    this.#make();
  }

  again() { this.#reader.again(); }

  /** Push was down: the known data may be wrong. */
  reread() {
    this.#history.forget();
    this.again();
    if (this.#error) this.#make();
  }

  /** Other tasks are to be shown, or other hours. */
  restart(span = this.#history.span) {
    this.#history = new History(span, this.#floor.shown().length);
    this.#reader.restart();
    this.#draw();
  }

  /** Updates the charts to the known data and the time. */
  show() {
    this.#draw();
    if (!this.#history.read) return; // the old charts stay until there is new data
    const usual = this.#usual();
    this.#rows = this.#history.rows(this.#floor.names(), this.#floor.now());
    for (const row of this.#rows) row.usual = usual;
    if (!this.#asTable) this.#plots.forEach((plot) => plot.show(this.#window(), this.#history.step.ms));
  }

  /** How long a run usually takes, in ms; of several tasks, the slowest one's. */
  #usual() {
    const known = this.#floor.shown().map((task) => task.usual_seconds).filter((s) => s !== null);
    return known.length ? 1000 * Math.max(...known) : null;
  }

  /** The rows that the charts show: from the first in which anything happened, and as many as a chart is readable with. */
  #window() {
    const first = this.#rows.findIndex(happened);
    return this.#rows.slice(Math.max(0, Math.min(first < 0 ? 0 : first - 1, this.#rows.length - fewest)));
  }

  /** Called now and then: time passes also when nothing happens. */
  tick() {
    const last = this.#rows.at(-1);
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

  async #make() {
    try {
      const library = await uPlot();
      this.#error = null;
      if (this.#floor.signal.aborted) return;
      render(this.#template(), this.element);
      for (const chart of charts) {
        const element = this.element.querySelector(`[data-chart=${chart.name}] .plot`);
        this.#plots.set(chart.name, new Plot(library, element, chart, (i) => this.#point(i)));
      }
      this.show();
    } catch (e) {
      this.#error = e;
      this.#draw();
    }
  }

  #point(i) {
    if (i === this.#pointed) return;
    this.#pointed = i;
    this.#draw();
  }

  #choose(span) {
    this.#floor.keep('hours', span === spans[1] ? '' : span.hours);
    this.restart(span);
  }

  #toggle() {
    this.#floor.keep('as', this.#asTable ? '' : 'table');
    this.show();
  }

  #template() {
    const error = this.#error ?? this.#reader.error;
    return html`
      <div class="toolbar">
        <h2 id="charts-title" tabindex="-1">${t`The last hours`}</h2>
        <div class="choice" role="group" aria-label=${t`How far back`}>${spans.map((span) => html`
          <button type="button" aria-pressed=${span === this.#history.span} @click=${() => this.#choose(span)}>${span.name}</button>`)}
        </div>
        <button class="push" type="button" aria-pressed=${this.#asTable} @click=${() => this.#toggle()}>${t`As a table`}</button>
      </div>
      <p class="quiet">${this.#explanation()} <span class="period">${this.#period()}</span></p>
      <p class="error" role="alert" dir="auto">${error ? t`The charts can’t be brought up to date: ${error.message}.` : nothing}</p>
      <div class="charts" ?hidden=${this.#asTable}>${charts.map((chart) => this.#chart(chart))}</div>
      ${this.#asTable ? this.#table() : nothing}`;
  }

  #explanation() {
    const several = (this.#floor.names().length || this.#floor.tasks.size) > 1;
    const { read, span, step } = this.#history;
    const quiet = !this.#rows.some(happened);
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

  #chart(chart) {
    const rows = this.#told;
    return html`<figure class="card" data-chart=${chart.name}>
      <figcaption><h3>${chart.title}</h3></figcaption>
      <ul class="legend">${chart.series.map((s) => html`
        <li><span class="swatch" data-tone=${s.tone.slice(2)} data-kind=${s.bar ? 'bar' : s.dash ?? 'line'}></span>${s.name}
          <b>${rows.length ? text(chart, figure(chart, s, rows)) : '–'}</b></li>`)}
      </ul>
      <div class="plot" role="img" aria-label=${rows.length
        ? t`Chart: ${chart.title}, from ${clock(rows[0].at)} until now: ${values(chart, rows)}` : t`Chart: ${chart.title}`}></div>
    </figure>`;
  }

  /** Which time the figures of all charts are of. */
  #period() {
    const [row, ...more] = this.#told;
    if (!row || this.#asTable) return '';
    return more.length ? t`Counts are of all that is shown, since ${clock(row.at)}; times and what is held are the latest.`
      : t`The figures are of ${clock(row.at)} to ${clock(row.at + this.#history.step.ms)}.`;
  }

  /** Whether there is more of the table than is shown; it is measured once it is drawn. */
  #measure() {
    const { element } = this;
    requestAnimationFrame(() => {
      const table = element.querySelector('.history')?.parentElement;
      const note = element.querySelector('.scrolls');
      if (table && note) note.hidden = table.scrollWidth <= table.clientWidth;
    });
  }

  #table() {
    this.#measure();
    return html`<p class="quiet scrolls" hidden>${t`The table scrolls sideways: there are more columns to the right.`}</p>
    <div class="scroll card tall" tabindex="0" role="region" aria-label=${t`The last hours as a table`}>
      <table class="history">
        <thead><tr><th scope="col">${t`From`}</th>${columns.map(([name]) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
        <tbody>${this.#rows.toReversed().map((row) => html`<tr>
          <th scope="row">${when(new Date(row.at).toISOString())}</th>${columns.map(([, value]) => html`<td class="number">${value(row)}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>`;
  }
}

const values = (chart, rows) => chart.series.map((s) => `${s.name} ${text(chart, figure(chart, s, rows))}`).join(', ');
