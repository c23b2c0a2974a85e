// Workers: registered nodes with their heartbeats and handlers, and workers without a node.

import { api } from "../api.js";
import { h } from "../dom.js";
import { badge, button, card, empty, heading, pending, queueChoice, table, tags, time } from "../parts.js";
import { now, number, plural } from "../time.js";

const PERIOD = 300; // seconds that the counts cover
const GONE = 900; // seconds after which an inactive node is hidden

export function workers(page) {
  const queues = page.watch((signal) => api.get("/queues", { namespace: page.namespace }, signal), 30);
  const nodes = page.watch((signal) => api.get("/nodes", { namespace: page.namespace }, signal), 3);
  const work = page.watch(
    (signal) => api.get("/workers", { namespace: page.namespace, queue: page.queue, period: PERIOD }, signal),
    3,
  );
  const shown = { gone: false };
  return () => {
    const known = new Map((work.value?.workers ?? []).map((one) => [one.worker_id, one]));
    const listed = nodes.value?.nodes ?? [];
    const registered = new Set(listed.map((node) => node.worker_id));
    const others = [...known.values()].filter((one) => !registered.has(one.worker_id));
    return [
      heading("Workers", queueChoice(page, queues)),
      card(
        "Nodes",
        { beside: listed.length > 0 && h("small", {}, `${number(listed.filter((node) => node.alive).length)} alive`) },
        pending(nodes) ?? team(page, listed, known, shown),
      ),
      card(
        "Other workers",
        {
          beside: h("small", {}, "Workers without a registered node, active in the last 5 minutes"),
        },
        pending(work, 2) ?? strangers(page, others),
      ),
    ];
  };
}

function life(node) {
  if (node.stopped_at) return badge("stopped", "calm");
  return node.alive ? badge("alive", "good") : badge("lost", "bad");
}

const order = (node) => (node.alive ? 0 : node.stopped_at ? 2 : 1);

/** A node that has been inactive for long is hidden. */
const isHere = (node) => node.alive || now() - Date.parse(node.stopped_at ?? node.last_heartbeat) < GONE * 1000;

function team(page, nodes, known, shown) {
  if (!nodes.length) return empty("No nodes yet", "A node is a Python process with handlers:", NODE);
  const gone = nodes.filter((node) => !isHere(node)).length;
  const turn = () => {
    shown.gone = !shown.gone;
    page.redraw();
  };
  return [
    roster(shown.gone ? nodes : nodes.filter(isHere), known),
    gone > 0 &&
      h(
        "p",
        { class: "aside" },
        button(shown.gone ? "Hide inactive nodes" : `Show ${plural(gone, "inactive node")}`, turn),
      ),
  ];
}

function roster(nodes, known) {
  const sorted = [...nodes].sort(
    (one, other) => order(one) - order(other) || other.last_heartbeat.localeCompare(one.last_heartbeat),
  );
  return table(
    "Nodes",
    [
      ["Node"],
      ["State"],
      ["Heartbeat", "when"],
      ["Handles", "wide"],
      ["In progress", "number"],
      ["Completed", "number wide"],
      ["Failed", "number wide"],
      ["Abandoned", "number wide"],
    ],
    sorted.map((node) => {
      const work = known.get(node.worker_id);
      return {
        key: node.instance,
        cells: [
          [
            h("span", { class: "title" }, node.node_id),
            h("small", { class: "below" }, [node.display_name, node.worker_id].filter(Boolean).join(" · ")),
            node.description && h("small", { class: "below wide clip", title: node.description }, node.description),
          ],
          life(node),
          time(node.stopped_at ?? node.last_heartbeat),
          h("div", { class: "tags" }, tags(node.handles)),
          number(work?.holds ?? 0),
          number(work?.completed ?? 0),
          number(work?.failed ?? 0),
          number(work?.abandoned ?? 0),
        ],
      };
    }),
  );
}

function strangers(page, list) {
  if (!list.length)
    return empty(
      "No other workers",
      "Workers in any language can use HTTP: claim an event, then complete it:",
      claim(page),
    );
  return table(
    "Other workers",
    [
      ["Worker"],
      ["In progress", "number"],
      ["Last seen", "when"],
      ["Lease ends", "when wide"],
      ["Completed", "number wide"],
      ["Failed", "number wide"],
      ["Abandoned", "number wide"],
    ],
    list.map((one) => ({
      key: one.worker_id,
      cells: [
        h("span", { class: "title" }, one.worker_id),
        number(one.holds),
        time(one.last_seen_at ?? one.oldest_claim_at),
        time(one.lease_expires_at),
        number(one.completed),
        number(one.failed),
        number(one.abandoned),
      ],
    })),
  );
}

const NODE = `import headrace

node = headrace.Node("worker-1")

@node.on_event("order.*")
async def handle(event):
    print(event.payload)

node.run()`;

function claim(page) {
  const query = new URLSearchParams({
    worker_id: "me",
    ...(page.namespace === "default" ? {} : { namespace: page.namespace }),
    ...(page.queue === "main" ? {} : { queue: page.queue }),
  });
  const lock = page.app.me?.open ? "" : ' \\\n  -H "Authorization: Bearer $TOKEN"';
  return `curl '${location.origin}/events/subscribe?tags=*&${query}'${lock}`;
}
