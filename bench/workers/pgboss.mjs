// pg-boss: a table of the queue's own, batches of a thousand that are fetched without a pause while they are full, and NOTIFY
// for what comes later. Runs in an environment of its own, on Node.js 22.
import { BATCH, closed, command, gone, require } from "./peer.mjs";

const { PgBoss } = require("pg-boss");

const QUEUE = "bench";

async function start(options = {}) {
  const boss = new PgBoss({ database: process.env.PGDATABASE, max: 20, schedule: false, useListenNotify: true, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

await command({
  async setup() {
    const boss = await start();
    await boss.createQueue(QUEUE, { partition: true, notify: true });
    await boss.stop();
  },

  async publishing() {
    const boss = await start({ supervise: false });
    return {
      many: (payloads) => boss.insert(QUEUE, payloads.map((data) => ({ data }))),
      one: (payload) => boss.send(QUEUE, payload),
    };
  },

  async work(eyes) {
    const boss = await start();
    await gone();
    const options = {
      batchSize: BATCH,
      localConcurrency: 2,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
    };
    await boss.work(QUEUE, options, async (jobs) => {
      for (const job of jobs) {
        eyes.saw();
        job.data.order;
      }
    });
    eyes.started();
    await closed();
    await boss.stop({ graceful: false, timeout: 1000 }).catch(() => {});
  },
});
