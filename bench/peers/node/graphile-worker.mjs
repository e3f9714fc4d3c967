// graphile-worker on PostgreSQL.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { main } from "./measure.mjs";

const TASK = "work";
const CONNECTIONS = 32;
const CONCURRENCY = 64;
const LOCAL_QUEUE = 500;

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

class GraphileWorker {
  static async setup(args) {
    const utils = await makeWorkerUtils({ connectionString: args.url, logger });
    await utils.migrate();
    await utils.release();
  }

  static async open(args) {
    const peer = new GraphileWorker();
    peer.pool = new pg.Pool({ connectionString: args.url, max: CONNECTIONS });
    peer.pool.on("error", () => {});
    if (args.command !== "work") peer.utils = await makeWorkerUtils({ pgPool: peer.pool, logger });
    return peer;
  }

  settings = {
    submit: "addJob; bulk by addJobs",
    work: `concurrentJobs ${CONCURRENCY}, localQueue ${LOCAL_QUEUE}, completeJobBatchDelay 0`,
    connections: CONNECTIONS,
  };

  submit(job) {
    return this.utils.addJob(TASK, job);
  }

  submitAll(jobs) {
    return this.utils.addJobs(jobs.map((payload) => ({ identifier: TASK, payload })));
  }

  async work(handle) {
    const runner = await run({
      pgPool: this.pool,
      logger,
      noHandleSignals: true,
      taskList: { [TASK]: (job) => handle(job) },
      preset: {
        worker: {
          concurrentJobs: CONCURRENCY,
          localQueue: { size: LOCAL_QUEUE },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
    return () => runner.stop();
  }

  /** It deletes what is done. */
  async check() {
    const { rows } = await this.pool.query("select count(*)::int as left from graphile_worker._private_jobs");
    return { completed: null, left: rows[0].left };
  }

  async close() {
    await this.utils?.release();
    await this.pool.end();
  }
}

await main(GraphileWorker);
