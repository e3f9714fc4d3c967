// What every peer written for Node is measured with: the same commands and answers as `rust/measure`.
//
// A peer is a class with `static setup(args)`, `static open(args)`, `settings`, `submit(job)`, `submitAll(jobs)`,
// `work(handle)` (resolves to a function that stops the worker once all that was handled is completed), `check()` and
// `close()`.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const BYTES = 200;
const CHUNK = 1_000;

/** Nanoseconds of a clock that all processes share, as a number: exact to a quarter of a microsecond. */
const now = () => Number(process.hrtime.bigint());

function newJob(n) {
  const job = { n, at: now(), pad: "" };
  job.pad = "x".repeat(BYTES - JSON.stringify(job).length);
  return job;
}

function quantileMs(sorted, part) {
  const nanos = sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)];
  return nanos === undefined ? null : nanos / 1e6;
}

const sorted = (numbers) => Float64Array.from(numbers).sort();

function parse([command, url, ...rest]) {
  const args = { command, url, workload: "", jobs: 0, callers: 1, seconds: 0, rate: null, "gap-ms": 0 };
  for (let i = 0; i < rest.length; i += 2) {
    const name = rest[i].replace(/^--/, "");
    if (!(name in args)) throw new Error(`no such option: ${rest[i]}`);
    args[name] = name === "workload" ? rest[i + 1] : Number(rest[i + 1]);
  }
  args.forLatency = args.workload === "pickup" || args.workload === "half";
  return args;
}

async function bulk(peer, args) {
  const began = now();
  for (let first = 0; first < args.jobs; first += CHUNK) {
    const length = Math.min(CHUNK, args.jobs - first);
    await peer.submitAll(Array.from({ length }, (_, i) => newJob(first + i)));
  }
  return { jobs: args.jobs, began, ended: now(), settings: peer.settings };
}

/** Callers who submit one job at a time, each as often as it can, at a rate or with a gap. */
async function call(peer, args) {
  const began = now();
  const end = began + args.seconds * 1e9;
  const took = [];
  let next = 0;
  const caller = async (number) => {
    for (let turn = 0; ; turn += 1) {
      if (args.rate) {
        const due = began + ((turn * args.callers + number) / args.rate) * 1e9;
        const wait = (due - now()) / 1e6;
        if (wait > 0) await sleep(wait);
      }
      if (now() >= end) return;
      const called = now();
      await peer.submit(newJob(next++));
      took.push(now() - called);
      // Between one and one and a half times the gap, so that nobody who polls falls into step.
      if (args["gap-ms"]) await sleep(args["gap-ms"] * (1 + ((turn * 0.61803398875) % 1) / 2));
    }
  };
  await Promise.all(Array.from({ length: args.callers }, (_, number) => caller(number)));
  const latencies = sorted(took);
  return {
    jobs: took.length,
    began,
    ended: now(),
    call_p50_ms: quantileMs(latencies, 0.5),
    call_p99_ms: quantileMs(latencies, 0.99),
    settings: peer.settings,
  };
}

/** Works until as many jobs are handled as a line of the runner says. */
async function work(peer) {
  const numbers = new Set();
  const waited = [];
  let [expected, repeated, last] = [null, 0, 0];
  const { promise: all, resolve: over } = Promise.withResolvers();
  const handle = (job) => {
    if (numbers.has(job.n)) {
      repeated += 1;
      return;
    }
    numbers.add(job.n);
    last = now();
    waited.push(last - job.at);
    if (numbers.size === expected) over();
  };
  const began = now();
  const stop = await peer.work(handle);
  console.log(JSON.stringify({ ready: true }));
  for await (const line of createInterface({ input: process.stdin })) {
    expected = Number(line);
    break;
  }
  if (numbers.size === expected) over();
  await all;
  await stop();
  const latencies = sorted(waited);
  return {
    jobs: numbers.size,
    repeated,
    began,
    ended: last,
    p50_ms: quantileMs(latencies, 0.5),
    p99_ms: quantileMs(latencies, 0.99),
    settings: peer.settings,
  };
}

const commands = { bulk, call, work, check: (peer) => peer.check() };

export async function main(Peer) {
  const args = parse(process.argv.slice(2));
  const command = commands[args.command];
  if (args.command === "setup") {
    await Peer.setup(args);
    console.log("{}");
  } else if (command) {
    const peer = await Peer.open(args);
    const answer = await command(peer, args);
    await peer.close();
    console.log(JSON.stringify(answer));
  } else {
    throw new Error(`no such command: ${args.command}`);
  }
  // Timers that a peer has left behind are not waited for.
  process.exit(0);
}
