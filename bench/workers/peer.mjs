// What the programs of queues for Node.js share; see __init__.py for the commands.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

export const require = createRequire(process.env.PEER_FOLDER + "/package.json");
export const BATCH = 1000;
const PAYLOAD = { order: 1000000, customer: "customer-000001", total: 12.5, note: "n".repeat(128) };

const lines = createInterface({ input: process.stdin });
const heard = lines[Symbol.asyncIterator]();
const now = () => Number(process.hrtime.bigint()) / 1e9;
const said = (...words) => console.log(words.join(" "));

/** Say that all is ready, and wait for the word to go. */
export async function gone() {
  said("ready");
  await heard.next();
}

/** Wait until the benchmark has heard enough. */
export async function closed() {
  while (!(await heard.next()).done);
}

/** What a handler calls for every event, and when it has begun. */
function eyes(how) {
  const every = how === "latency";
  let first = !every;
  return {
    saw() {
      if (first) {
        first = false;
        said("first", now());
      } else if (every) said("seen", now());
    },
    started() {
      if (every) said("started", now());
    },
  };
}

function* batches(events) {
  for (let at = 0; at < events; at += BATCH) {
    yield Array.from({ length: Math.min(BATCH, events - at) }, (_, n) => ({ ...PAYLOAD, order: at + n }));
  }
}

/** What was prepared, whenever it is told to. */
async function publish({ many, one }, how) {
  let given = [];
  said("ready");
  for (let line = await heard.next(); !line.done; line = await heard.next()) {
    if (line.value !== "go") {
      given = [...batches(Number(line.value))];
      said("prepared");
      continue;
    }
    const began = now();
    for (const batch of given) {
      if (how === "bulk") await many(batch);
      else for (const payload of batch) await one(payload);
    }
    said("published", began, now());
  }
}

/** Do what the command line says. */
export async function command({ setup, publishing, work }) {
  const [what, how] = process.argv.slice(2);
  if (what === "setup") await setup();
  else if (what === "work") await work(eyes(how));
  else {
    const to = await publishing();
    if (what === "fill") for (const batch of batches(Number(how))) await to.many(batch);
    else await publish(to, how);
  }
  process.exit(0);
}
