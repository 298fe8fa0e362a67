// Code that graphile.mjs and pgboss.mjs share: requests and answers (see talk.go), and the count of how often each job
// was worked.

import { createInterface } from "node:readline";

const waiting = [];
const lines = [];
createInterface({ input: process.stdin })
  .on("line", (line) => (waiting.length ? waiting.shift()(line) : lines.push(line)))
  .on("close", () => process.exit(0)); // even during a request: nobody waits for the answer any more

const read = () => (lines.length ? lines.shift() : new Promise((resolve) => waiting.push(resolve)));
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

/** Waits until the other side has read its clocks. */
export const begin = () => (say({ at: "begin" }), read());
export const end = () => (say({ at: "end" }), read());

/** Carries out one request after another. */
export async function serve(handlers, tally) {
  for (;;) {
    const request = JSON.parse(await read());
    try {
      const done = await handlers[request.do](request);
      say({ at: "done", ...done, ...tally.counts() });
    } catch (error) {
      say({ at: "failed", error: error?.stack ?? String(error) });
    }
  }
}

/** Counts how often each job was worked. */
export class Tally {
  times = [];
  at = []; // when each job was worked first
  worked = 0; // jobs that were worked at least once
  change = () => {};

  insert() {
    return this.times.push(0) - 1;
  }

  work(n) {
    if (this.times[n]++ > 0) return;
    this.at[n] = performance.now();
    this.worked++;
    this.change();
  }

  /** Returns when all inserted jobs have been worked. */
  async all() {
    let stuck;
    const late = new Promise((_, reject) => {
      stuck = setTimeout(() => reject(new Error(`${this.times.length - this.worked} of ${this.times.length} jobs were not worked in two minutes`)), 120_000);
    });
    const done = new Promise((resolve) => {
      this.change = () => this.worked === this.times.length && resolve();
      this.change();
    });
    try {
      await Promise.race([done, late]);
    } finally {
      clearTimeout(stuck);
      this.change = () => {};
    }
  }

  counts() {
    const count = (is) => this.times.reduce((sum, n) => sum + (is(n) ? 1 : 0), 0);
    return { inserted: this.times.length, once: count((n) => n === 1), twice: count((n) => n > 1) };
  }
}

/** Lets that many clients insert one job after another until the time is over; returns the figures. */
export async function insertFor({ clients, seconds }, tally, insert) {
  const start = performance.now();
  const until = start + seconds * 1000;
  let jobs = 0;
  const client = async () => {
    while (performance.now() < until) {
      await insert(tally.insert());
      jobs++;
    }
  };
  await Promise.all(Array.from({ length: clients }, client));
  return { jobs, seconds: (performance.now() - start) / 1000 };
}

/** Inserts a job, waits until it was worked, pauses, and repeats that. Returns the milliseconds from each insert to its handler. */
export async function latencies({ seconds }, tally, insert) {
  const latencies = [];
  const until = performance.now() + seconds * 1000;
  while (performance.now() < until || latencies.length === 0) {
    await pause(20 + Math.random() * 40);
    const n = tally.insert();
    const start = performance.now();
    await insert(n);
    await tally.all();
    latencies.push(tally.at[n] - start);
  }
  return { latencies };
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Calls insert with the numbers of that many new jobs, some thousand at a time. */
export async function inBulk(jobs, tally, insert) {
  for (let left = jobs; left > 0; left -= 5000) {
    await insert(Array.from({ length: Math.min(left, 5000) }, () => tally.insert()));
  }
}
