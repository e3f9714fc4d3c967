// pg-boss on PostgreSQL.

import { PgBoss } from "pg-boss";
import pg from "pg";
import { main } from "./measure.mjs";

const QUEUE = "bench";
const CONNECTIONS = 32;
const BATCH = 1_000;
const POLL_SECONDS = 0.5;

/** Notifications make a pickup fast and submits slow, so they are used where the pickup is what is measured. */
const options = (args) => ({ connectionString: args.url, max: CONNECTIONS, useListenNotify: args.forLatency });

class Peer {
  static async setup(args) {
    const boss = new PgBoss(options(args));
    await boss.start();
    await boss.createQueue(QUEUE, { notify: args.forLatency });
    await boss.stop();
  }

  static async open(args) {
    const peer = new Peer();
    peer.args = args;
    peer.boss = new PgBoss({ ...options(args), supervise: args.command === "work" });
    peer.boss.on("error", (error) => console.error(error.message));
    await peer.boss.start();
    peer.settings = {
      submit: "send; bulk by insert",
      work:
        `batchSize ${BATCH}, burstWhenBatchFull, poll every ${POLL_SECONDS} s` +
        (args.forLatency ? ", LISTEN/NOTIFY" : ""),
      connections: CONNECTIONS,
    };
    return peer;
  }

  submit(job) {
    return this.boss.send(QUEUE, job);
  }

  submitAll(jobs) {
    return this.boss.insert(QUEUE, jobs.map((data) => ({ data })));
  }

  async work(handle) {
    const polling = {
      batchSize: BATCH,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: POLL_SECONDS,
      notifyPollingIntervalSeconds: POLL_SECONDS,
    };
    await this.boss.work(QUEUE, polling, async (jobs) => {
      for (const job of jobs) handle(job.data);
    });
    return () => this.boss.stop({ graceful: true, close: false });
  }

  async check() {
    const client = new pg.Client({ connectionString: this.args.url });
    await client.connect();
    const { rows } = await client.query(
      `select count(*) filter (where state = 'completed')::int as completed,
              count(*) filter (where state <> 'completed')::int as left
       from pgboss.job where name = $1`,
      [QUEUE],
    );
    await client.end();
    return rows[0];
  }

  async close() {
    await this.boss.stop({ graceful: false });
  }
}

await main(Peer);
