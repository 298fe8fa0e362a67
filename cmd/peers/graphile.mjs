// Graphile Worker's client process.

import { createRequire } from "node:module";
import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { Tally, begin, end, inBulk, insertFor, latencies, serve } from "./session.mjs";

const version = (name) => createRequire(import.meta.url)(`${name}/package.json`).version;

const tally = new Tally();
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
let settings;

/** Runs fn with a pool of that many connections. */
async function withPool(max, fn) {
  const pgPool = new pg.Pool({ connectionString: settings.url, max });
  pgPool.on("error", (error) => console.error(error));
  try {
    return await fn({ pgPool, schema: settings.schema, logger });
  } finally {
    await pgPool.end();
  }
}

const connections = 10; // the default, which its documentation advises

/** Starts a runner that fetches and completes jobs in batches or, for measuring single jobs, with the defaults. */
const start = (shared, mode) =>
  run({
    ...shared,
    concurrency: mode === "tuned" ? 24 : 8,
    noHandleSignals: true,
    parsedCronItems: [],
    taskList: { numbered: (payload) => tally.work(payload.n) },
    preset: mode === "tuned" ? { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0 } } : undefined,
  });

async function workOff(shared) {
  const runner = await start(shared, "tuned");
  await tally.all();
  await runner.stop();
}

const handlers = {
  async open({ url, schema }) {
    settings = { url, schema };
    await withPool(2, runMigrations);
    return { versions: { "graphile-worker": version("graphile-worker"), pg: version("pg"), node: process.version } };
  },

  async insert(request) {
    const measured = await withPool(request.clients, async (shared) => {
      const utils = await makeWorkerUtils(shared);
      await begin();
      const measured = await insertFor(request, tally, (n) => utils.addJob("numbered", { n }));
      await end();
      await utils.release();
      return measured;
    });
    await withPool(connections, workOff);
    return measured;
  },

  work: ({ jobs }) =>
    withPool(connections, async (shared) => {
      const utils = await makeWorkerUtils(shared);
      await inBulk(jobs, tally, (numbers) => utils.addJobs(numbers.map((n) => ({ identifier: "numbered", payload: { n } }))));
      await utils.release();
      await begin();
      const start = performance.now();
      await workOff(shared);
      const seconds = (performance.now() - start) / 1000;
      await end();
      return { jobs, seconds };
    }),

  latency: (request) =>
    withPool(connections, async (shared) => {
      const runner = await start(shared, request.mode);
      await begin();
      const measured = await latencies(request, tally, (n) => runner.addJob("numbered", { n }));
      await end();
      await runner.stop();
      return measured;
    }),
};

serve(handlers, tally);
