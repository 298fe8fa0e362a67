// pg-boss's client process.

import { readFileSync } from "node:fs";
import { PgBoss } from "pg-boss";
import { Tally, begin, end, inBulk, insertFor, latencies, pause, serve } from "./session.mjs";

// Its package doesn't export its package.json.
const manifest = new URL("./node_modules/pg-boss/package.json", import.meta.url);

const tally = new Tally();
let settings;

/** Runs fn with a pg-boss that has that many connections. */
async function withBoss(max, fn, more = {}) {
  const boss = new PgBoss({ connectionString: settings.url, schema: settings.schema, max, ...more });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  try {
    return await fn(boss);
  } finally {
    await boss.stop({ graceful: true, timeout: 10_000 });
  }
}

const connections = 10; // the default

/** Fetches and completes in batches until nothing is left. */
async function workOff(boss) {
  const worker = async () => {
    for (;;) {
      const jobs = await boss.fetch("numbered", { batchSize: 500 });
      if (jobs.length === 0) return;
      for (const job of jobs) tally.work(job.data.n);
      await boss.complete("numbered", jobs.map((job) => job.id));
    }
  };
  await Promise.all([worker(), worker()]);
}

const handle = async (jobs) => {
  for (const job of jobs) tally.work(job.data.n);
};

const handlers = {
  async open({ url, schema }) {
    settings = { url, schema };
    await withBoss(2, async (boss) => {
      await boss.createQueue("numbered");
      await boss.createQueue("notified", { notify: true });
    });
    return { versions: { "pg-boss": JSON.parse(readFileSync(manifest, "utf8")).version, node: process.version } };
  },

  async insert(request) {
    const measured = await withBoss(request.clients, async (boss) => {
      await begin();
      const measured = await insertFor(request, tally, (n) => boss.send("numbered", { n }));
      await end();
      return measured;
    });
    await withBoss(connections, workOff);
    return measured;
  },

  work: ({ jobs }) =>
    withBoss(connections, async (boss) => {
      await inBulk(jobs, tally, (numbers) => boss.insert("numbered", numbers.map((n) => ({ data: { n } }))));
      await begin();
      const start = performance.now();
      await workOff(boss);
      const seconds = (performance.now() - start) / 1000;
      await end();
      return { jobs, seconds };
    }),

  latency: (request) => (request.mode === "notify" ? notified(request) : polled(request)),
};

/** Inserts jobs at random moments, without waiting for earlier ones, which would take half a second each. */
const polled = ({ seconds }) =>
  withBoss(connections, async (boss) => {
    await boss.work("numbered", { pollingIntervalSeconds: 0.5, batchSize: 100 }, handle);
    await begin();
    const sent = [];
    const until = performance.now() + seconds * 1000;
    while (performance.now() < until || sent.length === 0) {
      await pause(20 + Math.random() * 40);
      const n = tally.insert();
      sent.push({ n, start: performance.now() });
      await boss.send("numbered", { n });
    }
    await tally.all();
    await end();
    return { latencies: sent.map(({ n, start }) => tally.at[n] - start) };
  });

const notified = (request) =>
  withBoss(
    connections,
    async (boss) => {
      await boss.work("notified", handle);
      await begin();
      const measured = await latencies(request, tally, (n) => boss.send("notified", { n }));
      await end();
      return measured;
    },
    { useListenNotify: true },
  );

serve(handlers, tally);
