// A gateway in a scratch folder: the real binary, a service, a model, and agents at the command line.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { startModel } from "./model.mjs";

const BINARY = process.env.COUNTERSIGN_BINARY;
const TOKEN = "tok-browser-tests";

const RULES = `defaults:
  - { pattern: "look*", action: allow, description: "Looking is free" }
rules:
  - { pattern: "turn(lock*", action: deny, description: "Locks stay as they are" }
  - { pattern: "read(*)", action: allow }
  - { pattern: "ls*", action: allow }
`;

const TOOLS = `tools:
  look: { description: Looks at a thing, signature: "{thing}", args: { thing: { required: true } }, request: { method: GET, path: "/look/{thing}" } }
  turn: { description: Turns a thing, signature: "{thing}, {way}", args: { thing: { required: true }, way: {} }, request: { method: POST, path: "/turn/{thing}", body_exclude: [thing] } }
`;

export class Gateway {
  static async make(more = "", flags = []) {
    const gateway = new Gateway();
    gateway.flags = flags;
    gateway.folder = mkdtempSync(join(tmpdir(), "countersign-browser-"));
    gateway.model = await startModel();
    gateway.service = createServer((request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ did: `${request.method} ${request.url}` }));
    });
    await new Promise((go) => { gateway.service.listen(0, "127.0.0.1", go); });
    const config = `gateway: { host: 127.0.0.1, port: 0 }
agents: [ { id: kitchen-pi, token: ${TOKEN} }, { id: printer, token: ${TOKEN}-2 } ]
services: { desk: { url: "http://127.0.0.1:${gateway.service.address().port}", auth: { type: none }, tools: tools.yaml } }
model: { provider: local, id: small-1 }
providers: { local: { api: openai-completions, base_url: "${gateway.model.url}", api_key: none, models: [ { id: small-1, reasoning: true, context_window: 128000, max_tokens: 8192 }, { id: small-2, context_window: 128000, max_tokens: 8192 } ] } }
${more}
`;
    for (const [name, text] of [["config.yaml", config], ["permissions.yaml", RULES], ["tools.yaml", TOOLS]]) {
      writeFileSync(join(gateway.folder, name), text, { mode: 0o600 });
    }
    mkdirSync(join(gateway.folder, "data", "agents", "main"), { recursive: true });
    writeFileSync(join(gateway.folder, "data", "agents", "main", "greet.sh"), "#!/bin/sh\nname=${1:-world}\necho \"Hello, $nmae!\"\necho done\n");
    gateway.children = [];
    await gateway.start();
    return gateway;
  }

  async start(port = 0) {
    this.process = spawn(BINARY, ["serve", "--config", "config.yaml", "--port", String(port), ...this.flags], { cwd: this.folder, stdio: ["ignore", "pipe", "pipe"] });
    this.said = "";
    this.process.stderr.on("data", (text) => { this.said += text; });
    const line = await new Promise((go, fail) => {
      let told = "";
      this.process.stdout.on("data", (text) => { told += text; if (told.includes("\n")) go(told.trim()); });
      this.process.on("exit", () => fail(new Error(`it did not start: ${told} ${this.said}`)));
    });
    this.url = line.replace("countersign ready on ", "");
    this.port = Number(new URL(this.url).port);
  }

  /** Ends it as a power cut would, and starts it again at the same port. */
  async restart() {
    await this.end("SIGKILL");
    await this.start(this.port);
  }

  async end(signal) {
    this.process.removeAllListeners("exit");
    const ended = new Promise((go) => { this.process.on("exit", (code) => go(code)); });
    this.process.kill(signal);
    return await ended;
  }

  /** An agent asks for something, and waits for the reply in another process. Each agent has one connection. */
  request(tool, fields, agent = "kitchen-pi") {
    const token = agent === "printer" ? `${TOKEN}-2` : TOKEN;
    const pairs = Object.entries(fields).map(([name, value]) => `${name}=${value}`);
    const child = spawn(BINARY, ["request", tool, ...pairs, "--url", this.url.replace("http", "ws")], {
      cwd: this.folder,
      env: { ...process.env, AGENT_TOKEN: token },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.children.push(child);
    let out = "";
    child.stdout.on("data", (text) => { out += text; });
    child.stderr.on("data", (text) => { out += text; });
    const reply = new Promise((go) => { child.on("exit", (code) => go({ code, out })); });
    reply.child = child;
    return reply;
  }

  /** The same, with the gate that it opens. */
  async ask(tool, fields, agent = "kitchen-pi") {
    const known = new Set(this.gates().map((gate) => gate.id));
    for (;;) {
      const reply = this.request(tool, fields, agent);
      const ended = reply.then((end) => ({ end }));
      for (;;) {
        const found = this.gates().find((gate) => !known.has(gate.id));
        if (found) return { id: found.id, reply };
        const { end } = await Promise.race([ended, new Promise((go) => { setTimeout(() => go({}), 40); })]);
        // Its last connection may still count as alive.
        if (end && !/already connected/.test(end.out)) throw new Error(`no gate: ${end.out}`);
        if (end) break;
      }
      await new Promise((go) => { setTimeout(go, 200); });
    }
  }

  /** The gate alone: the agent goes away, which cancels nothing. */
  async raise(tool, fields, agent = "kitchen-pi") {
    const { id, reply } = await this.ask(tool, fields, agent);
    reply.child.kill("SIGKILL");
    await reply;
    return id;
  }

  /** Writes the rules file, as it was or otherwise. */
  rules(text = RULES) {
    writeFileSync(join(this.folder, "permissions.yaml"), text, { mode: 0o600 });
  }

  /** The rules file as it is. */
  text() {
    return readFileSync(join(this.folder, "permissions.yaml"), "utf8");
  }

  /** What a person does at the command line. */
  run(...parts) {
    const { status, stdout, stderr } = spawnSync(BINARY, [...parts, "--config", "config.yaml"], { cwd: this.folder, encoding: "utf8" });
    return { code: status, out: stdout, err: stderr };
  }

  gates() {
    return JSON.parse(this.run("gates", "list", "--json").out);
  }

  async close() {
    for (const child of this.children) child.kill("SIGKILL");
    if (this.process.exitCode === null && this.process.signalCode === null) await this.end("SIGTERM");
    this.model.close();
    this.service.closeAllConnections();
    this.service.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
