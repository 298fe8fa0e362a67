/** What is done and comes in: today by the hour, or over the days and months before. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';
import { chart, keys } from './chart.js';

const hour = 3_600_000;
const ahead = 2; // hours for which the pace is drawn on
const hourName = new Intl.DateTimeFormat(locale, { hour: 'numeric' });
const clock = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
const dayName = new Intl.DateTimeFormat(locale, { weekday: 'short', day: 'numeric' });
const monthName = new Intl.DateTimeFormat(locale, { month: 'short' });

const midnight = (ms) => new Date(ms).setHours(0, 0, 0, 0);
const monthOf = (ms) => new Date(new Date(ms).getFullYear(), new Date(ms).getMonth(), 1).getTime();

const done = { name: t`done`, value: (r) => r.completed, time: 'ok', kind: 'bar' };
const cameIn = { name: t`came in`, value: (r) => r.came, time: 'ink', kind: 'mark' };
const atPace = { name: t`at today’s pace`, value: (r) => r.later ?? 0, time: 'rest', kind: 'bar' };

export class Day {
  #floor; #reader;

  constructor(floor) {
    this.#floor = floor;
    this.#reader = floor.reader(() => this.#read(), () => floor.draw(), { least: 10_000 });
  }

  get settled() { return this.#reader.settled; }

  again() { this.#reader.again(); }

  restart() { this.#reader.restart(); }

  /** Today's hours of all tasks, since the table has them all. */
  async #read() {
    const from = midnight(this.#floor.now());
    const { tasks } = await this.#floor.app.api.history({ from: new Date(from).toISOString(), step: '1h' });
    const byTask = new Map(tasks.map(({ task, buckets }) => [task, new Map(buckets.map((b) => [Date.parse(b.at), b]))]));
    const active = [...byTask.values()].flatMap((buckets) => [...buckets].filter(([, b]) => b.completed).map(([at]) => at));
    return { from, byTask, first: Math.min(this.#present(from) - 2 * hour, ...active) };
  }

  /** The beginning of the present hour. */
  #present(from) { return from + Math.floor((this.#floor.now() - from) / hour) * hour; }

  /** The hours since the first in which anything happened. */
  get #hours() {
    const { value } = this.#reader;
    if (!value) return [];
    const hours = [];
    for (let at = Math.max(value.from, value.first); at <= this.#present(value.from); at += hour) hours.push(at);
    return hours;
  }

  /** The hour with which the table's small charts begin. */
  get begins() { return clock.format(this.#hours[0] ?? new Date(this.#floor.now()).setHours(8, 0)); }

  /** How many of a task were done in each hour since then. */
  hours(name) {
    const buckets = this.#reader.value?.byTask.get(name);
    return this.#hours.map((at) => buckets?.get(at)?.completed ?? 0);
  }

  /** How many of a task were done today; null while that is not known. */
  doneBy(task) {
    if (typeof task.done_today === 'number') return task.done_today;
    const buckets = this.#reader.value?.byTask.get(task.name);
    return buckets ? [...buckets.values()].reduce((n, b) => n + b.completed, 0) : null;
  }

  /** How many came into a task today; null while that is not known. */
  cameTo(task) {
    const buckets = [...this.#reader.value?.byTask.get(task.name)?.values() ?? []];
    return buckets.some((b) => typeof b.came === 'number') ? buckets.reduce((n, b) => n + (b.came ?? 0), 0) : null;
  }

  /** Today's hours, of the tasks that the floor is about, and the next ones at the pace. */
  #today() {
    const { byTask } = this.#reader.value ?? {};
    const shown = this.#floor.shown();
    const rows = this.#hours.map((at) => {
      const buckets = shown.map((task) => byTask.get(task.name)?.get(at)).filter(Boolean);
      const came = buckets.filter((b) => typeof b.came === 'number');
      return { at, completed: buckets.reduce((n, b) => n + b.completed, 0), came: came.length ? came.reduce((n, b) => n + b.came, 0) : null };
    });
    const pace = shown.reduce((sum, task) => sum + (task.paused || task.failures ? 0 : task.pace ?? 0), 0);
    const last = rows.at(-1);
    if (!last || !pace) return rows;
    last.later = Math.max(0, Math.round(pace) - last.completed);
    for (let i = 1; i <= ahead; i++) rows.push({ at: last.at + i * hour, completed: 0, came: null, later: Math.round(pace) });
    return rows;
  }

  /** What is done by the hour, the day or the month; span: as History has it, rows: its rows. */
  template(span, rows) {
    const today = span.hours <= 24;
    const shown = today ? this.#today() : grouped(rows, span.hours > 168 ? monthOf : midnight);
    if (!shown.length) return nothing;
    const name = { true: hourName, false: span.hours > 168 ? monthName : dayName }[today];
    const series = [done, shown.some((r) => r.came) && cameIn, shown.some((r) => r.later) && atPace].filter(Boolean);
    const title = series.includes(cameIn) ? { 24: t`Done and come in, by the hour`, 168: t`Done and come in, by the day` }[today ? 24 : span.hours] ?? t`Done and come in, by the month`
      : { 24: t`Done by the hour`, 168: t`Done by the day` }[today ? 24 : span.hours] ?? t`Done by the month`;
    return html`<figure class="chart" data-chart="day">
      <figcaption class="bar"><h3>${title}</h3><span class="bar push">${keys(series)}</span></figcaption>
      ${chart(shown, series, {
        height: 148,
        label: (r, i) => (i % Math.ceil(shown.length / 7) ? '' : name.format(r.at)),
        says: `${title}: ${shown.filter((r) => !r.later || r.completed).map((r) => `${name.format(r.at)} ${r.completed}`).join(', ')}`,
      })}
    </figure>`;
  }
}

/** Rows added up by what their time lies in. */
function grouped(rows, by) {
  const groups = new Map();
  for (const row of rows) {
    const at = by(row.at);
    const sum = groups.get(at) ?? { at, completed: 0, came: null };
    sum.completed += row.completed;
    if (typeof row.came === 'number') sum.came = (sum.came ?? 0) + row.came;
    groups.set(at, sum);
  }
  return [...groups.values()];
}
