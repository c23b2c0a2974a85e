// graphile-worker with its local queue and completions in batches. Runs in an environment of its own, on Node.js 22.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(process.env.PEER_FOLDER + "/package.json");
const { run, runMigrations } = require("graphile-worker");
const pg = require("pg");

const PAYLOAD = { order: 1000000, customer: "customer-000001", total: 12.5, note: "n".repeat(128) };
const BATCH = 1000;
const [command, argument] = process.argv.slice(2);
const pool = new pg.Pool({ max: 20 });

async function fill(events) {
  for (let at = 0; at < events; at += BATCH) {
    const size = Math.min(BATCH, events - at);
    const specs = Array.from({ length: size }, (_, n) => ({ identifier: "order", payload: { ...PAYLOAD, order: at + n } }));
    await pool.query(
      "select 1 from graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec, value) from json_array_elements($1::json)))",
      [JSON.stringify(specs)],
    );
  }
}

async function work() {
  let seen = false;
  const lines = createInterface({ input: process.stdin });
  const go = new Promise((resolve) => lines.once("line", resolve));
  const closed = new Promise((resolve) => lines.once("close", resolve));
  console.log("ready");
  await go;
  const runner = await run({
    pgPool: pool,
    noHandleSignals: true,
    preset: {
      worker: {
        concurrentJobs: 24,
        pollInterval: 1000,
        localQueue: { size: 500, ttl: 60000 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: {
      order: async (payload) => {
        if (!seen) {
          seen = true;
          console.log(`first ${Number(process.hrtime.bigint()) / 1e9}`);
        }
        payload.order;
      },
    },
  });
  await closed;
  await runner.stop().catch(() => {});
}

if (command === "setup") await runMigrations({ pgPool: pool });
else if (command === "fill") await fill(Number(argument));
else await work();
await pool.end().catch(() => {});
process.exit(0);
