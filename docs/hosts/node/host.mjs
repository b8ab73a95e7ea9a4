// A host in Node.js that needs nothing of statewriter but its contract: the JSON Schema that
// `statewriter schema` prints, and docs/wire-contract.md. Run as
//
//     npm install && statewriter schema > contract.json && node host.mjs redis://... contract.json
//
// It drives one run with a lease, and prints the run's id and the outcome of each command.
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { crc32 } from "node:zlib";
import { createClient } from "redis";

const sha256 = (text) => createHash("sha256").update(text).digest("hex");

// CRC-32, for a Node that does not bring it yet (before 20.15).
const checksum = crc32 ?? ((text) => {
  let crc = ~0;
  for (const byte of Buffer.from(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
});

// RFC 8785: what the writer names a definition by. For documents of strings and safe integers.
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`);
  return `{${members.join(",")}}`;
}

export class Host {
  constructor(client, contract, partitions) {
    Object.assign(this, { client, contract, partitions });
    this.producer = `node-${process.pid}-${randomBytes(8).toString("hex")}`;
    this.sequences = new Map(); // run -> last seq
    this.cursors = new Map(); // reply stream -> last id
  }

  static async connect(url, contract) {
    // A retry that we do not see would send a command twice; that is harmless, but ours to do.
    const client = createClient({ url, RESP: 2, disableOfflineQueue: true });
    await client.connect();
    const partitions = Number(await client.hGet("sw:meta", "partitions"));
    if (!partitions) throw new Error("no writer has started yet");
    return new Host(client, contract, partitions);
  }

  // What the schema says of a kind, checked before anything is sent.
  check(kind, body) {
    const place = this.contract.commands.discriminator.mapping[kind];
    if (!place) throw new Error(`the contract has no kind ${kind}`);
    const model = this.contract.$defs[place.split("/").pop()];
    for (const name of model.required ?? [])
      if (name !== "kind" && !(name in body)) throw new Error(`${kind} needs ${name}`);
    for (const name of Object.keys(body))
      if (name === "kind" || !(name in model.properties)) throw new Error(`${kind} has no ${name}`);
  }

  async send(run, kind, body, auth) {
    this.check(kind, body);
    const seq = (this.sequences.get(run) ?? 0) + 1;
    this.sequences.set(run, seq);
    const fields = {
      v: this.contract.fields.properties.v.const,
      kind,
      producer: this.producer,
      seq: String(seq),
      body: JSON.stringify(body),
      reply: this.producer,
    };
    if (auth) fields.auth = JSON.stringify(auth);
    const partition = checksum(run) % this.partitions;
    const replies = `sw:{${partition}}:reply:${this.producer}`;
    await this.client.xAdd(`sw:{${partition}}:run:${run}`, "*", fields);
    await this.client.sendCommand(["ZADD", `sw:{${partition}}:ready`, "LT", String(Date.now()), run]);
    for (;;) {
      const after = this.cursors.get(replies) ?? "0";
      const [, found] = (await this.client.sendCommand(
        ["XREAD", "COUNT", "1", "BLOCK", "10000", "STREAMS", replies, after]))?.[0] ?? [];
      if (!found) throw new Error(`no receipt for ${kind}`);
      const [id, pairs] = found[0];
      this.cursors.set(replies, id);
      const receipt = Object.fromEntries(pairs.flatMap((name, at) => (at % 2 ? [] : [[name, pairs[at + 1]]])));
      if (receipt.run === run && receipt.seq === String(seq)) return receipt;
    }
  }
}

const [, , url, schema] = process.argv;
const host = await Host.connect(url, JSON.parse(readFileSync(schema, "utf8")));
const run = `node-${Date.now()}`;
const definition = { name: "triage", nodes: { plan: { next: "fix" }, fix: {} }, "ключ": "ä😀", size: 3 };
const token = randomBytes(32).toString("base64url");
const auth = { owner_type: "host", owner_id: "node-example", token };
const claim = { owner_type: "host", owner_id: "node-example", token_sha256: sha256(token), lease_ms: 30000 };
const told = [];
for (const [kind, body, by] of [
  ["run.create", { workflow: "triage", definition, input: { ticket: 4711 } }],
  ["lease.claim", claim],
  ["run.snapshot", { state: { status: "running", step: "plan" }, event: { type: "node_started", node_id: "plan" } }, auth],
  ["run.snapshot", { state: {} }], // without the lease: refused
  ["run.update", { type: "progress", key: "tests", data: { completed: 3, total: 10 } }, auth],
  ["session.bind", { session: "session-1" }, auth],
  ["session.entry", { entry: { id: "entry-1", role: "user", text: "Which tests fail? 😀" } }, auth],
  ["session.events", { events: [{ seq: 1, at: new Date().toISOString(), type: "text_delta", payload: { text: "3" } }] }, auth],
  ["session.capture", { status: "complete", entry_count: 1, event_count: 1, last_event_seq: 1 }, auth],
  ["lease.renew", { lease_ms: 30000 }, auth],
  ["run.snapshot", { state: { status: "completed", finalOutput: { failing: 3 } }, event: { type: "run_completed" } }, auth],
  ["lease.release", {}, auth],
]) told.push([kind, (await host.send(run, kind, body, by)).outcome]);
console.log(JSON.stringify({ run, definition_sha256: sha256(canonical(definition)), told }));
await host.client.close();
