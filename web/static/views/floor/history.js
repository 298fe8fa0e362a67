/** The charts' data: the counts of each step of the last hours. */

import { t } from '../../lang.js';

/** How far back one can look, as the address and people have it, and in which steps at least. */
export const spans = [
  { hours: '1', ms: 60_000, name: t`1 hour` },
  { hours: '6', ms: 300_000, name: t`6 hours` },
  { hours: '24', ms: 900_000, name: t`24 hours` },
  { hours: '168', ms: 3_600_000, name: t`7 days` },
  { hours: '9504', ms: 86_400_000, name: t`13 months` },
];

/** The same, as the floor's head offers them: the hours of today are chosen where the charts are. */
export const periods = [{ name: t`Today`, span: spans[1] }, { name: spans[3].name, span: spans[3] }, { name: spans[4].name, span: spans[4] }];

/** As the server and people have them. */
const steps = [
  { step: '1m', ms: 60_000, every: t`minute` },
  { step: '5m', ms: 300_000, every: t`5 minutes` },
  { step: '15m', ms: 900_000, every: t`15 minutes` },
  { step: '30m', ms: 1_800_000, every: t`30 minutes` },
  { step: '1h', ms: 3_600_000, every: t`hour` },
  { step: '2h', ms: 7_200_000, every: t`2 hours` },
  { step: '24h', ms: 86_400_000, every: t`day` },
];

const most = 19_000; // buckets of all tasks: a little less than the server counts, for tasks that are made meanwhile

/** The shortest step in which the server counts so many tasks over that span. */
function stepFor({ hours, ms: least }, tasks) {
  const span = hours * 3_600_000;
  const all = steps.filter(({ ms }) => ms >= least && span % ms === 0 && (hours <= 24 ? ms < 86_400_000 : ms !== 7_200_000)); // further back the server has sums of hours and days
  return all.find(({ ms }) => (span / ms + 1) * tasks <= most) ?? all.at(-1);
}

const counts = ['requests', 'given', 'empty', 'failed', 'cancelled', 'runs', 'runs_failed', 'assigned', 'completed', 'returned',
  'never', 'failed_work', 'expired', 'reassigned'];

export class History {
  span;
  step;
  read = false; // once
  #buckets = new Map(); // of each task by their beginning
  #last = null; // the beginning of the last one that was read
  #open = Infinity; // and of the first whose requests or runs had not all ended then: they count where they began

  constructor(span, tasks = 1) {
    this.span = span;
    this.step = stepFor(span, tasks);
  }

  /** Whether its step is the one for so many tasks. */
  isFor(tasks) { return this.step === stepFor(this.span, tasks); }

  /** Where to read from: everything at first, then the steps that may have changed, mostly the last two. */
  from(now) {
    return this.#last === null ? this.#first(now) : Math.max(this.#first(now), Math.min(this.#open, this.#last - this.step.ms));
  }

  /** answer: the server's; running: since when the runs are that were under way, in ms. */
  take({ tasks }, running) {
    this.read = true;
    this.#open = Math.min(...running.map((since) => since - (since % this.step.ms)), Infinity);
    const names = tasks.map(({ task }) => task);
    for (const name of this.#buckets.keys()) if (!names.includes(name)) this.#buckets.delete(name); // deleted, or named otherwise
    for (const { task, buckets } of tasks) {
      if (!this.#buckets.has(task)) this.#buckets.set(task, new Map());
      const known = this.#buckets.get(task);
      for (const b of buckets) {
        const at = Date.parse(b.at);
        known.set(at, b);
        this.#last = Math.max(this.#last ?? at, at);
      }
      for (const [at, b] of known) {
        if (at < this.#last - this.span.hours * 3_600_000) known.delete(at);
        else if (b.requests > b.given + b.empty + b.failed + b.cancelled) this.#open = Math.min(this.#open, at);
      }
    }
    return this;
  }

  /** Forgets everything: push was down, and any step may have changed. */
  forget() { this.#last = null; }

  /**
   * A row for each step until now, oldest first, with the sums of the tasks' counts. Percentiles can't be summed: a row has the
   * slowest task's. Steps that began after the last read are empty, because an event would have caused a read.
   */
  rows(tasks, now) {
    const known = [...this.#buckets].filter(([task]) => !tasks.length || tasks.includes(task)).map(([, buckets]) => ({ buckets, held: 0 }));
    const rows = [];
    for (let at = this.#first(now); at <= now; at += this.step.ms) rows.push(rowOf(at, known));
    return rows;
  }

  #first(now) { return (Math.floor(now / this.step.ms) + 1) * this.step.ms - this.span.hours * 3_600_000; }
}

/** known: each task's buckets, and how many were held at the end of the step before, which is updated. */
function rowOf(at, known) {
  const row = { at, held: 0, came: null, left: null, wait: null, run: null };
  for (const name of counts) row[name] = 0;
  for (const task of known) {
    const bucket = task.buckets.get(at);
    task.held = bucket?.held ?? task.held;
    row.held += task.held;
    if (!bucket) continue;
    for (const name of counts) row[name] += bucket[name] ?? 0;
    if (typeof bucket.came === 'number') row.came = (row.came ?? 0) + bucket.came;
    if (typeof bucket.left === 'number') row.left = (row.left ?? 0) + bucket.left;
    row.wait = slower(row.wait, bucket.wait_ms);
    row.run = slower(row.run, bucket.run_ms);
  }
  return row;
}

function slower(a, b) {
  if (!a || !b) return a ?? b ?? null;
  return Object.fromEntries(Object.keys(a).map((name) => [name, Math.max(a[name], b[name])]));
}
