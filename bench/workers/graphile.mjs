// graphile-worker with its local queue and completions in batches. Runs in an environment of its own, on Node.js 22.
import { closed, command, gone, require } from "./peer.mjs";

const { run, runMigrations } = require("graphile-worker");
const pg = require("pg");

const pool = new pg.Pool({ max: 20 });

await command({
  setup: () => runMigrations({ pgPool: pool }),

  publishing: () => ({
    many: (payloads) =>
      pool.query(
        "select 1 from graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec, value) from json_array_elements($1::json)))",
        [JSON.stringify(payloads.map((payload) => ({ identifier: "order", payload })))],
      ),
    one: (payload) => pool.query("select 1 from graphile_worker.add_job('order', $1::json)", [JSON.stringify(payload)]),
  }),

  async work(eyes) {
    await gone();
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
          eyes.saw();
          payload.order;
        },
      },
    });
    eyes.started();
    await closed();
    await runner.stop().catch(() => {});
  },
});
