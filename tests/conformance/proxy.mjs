// Proxy on loopback between a conformance suite and a gateway: `proxy.mjs GATEWAY_URL`, in the folder of the gateway.
//
// The suites can neither send a token nor name a tool `mcp__SERVER__TOOL`. The proxy adds TOKEN, and gives the tools of the server
// `fixtures` the names that the suites call. Everything else passes as it is. It prints its own address.

import { spawn } from "node:child_process";
import { createServer, request as send } from "node:http";
import { Transform } from "node:stream";

import { TOOLS } from "./fixture_tools.mjs";

const gateway = new URL(process.argv[2]);
const { TOKEN, COUNTERSIGN_BINARY } = process.env;
const PREFIX = "mcp__fixtures__";
// Headers that belong to one connection, or that the proxy sets.
const OWN = new Set(["authorization", "connection", "content-length", "keep-alive", "transfer-encoding"]);

const offeredName = (name) => (Object.hasOwn(TOOLS, name) ? PREFIX + name : name);

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

// Replaces the name of a called tool. A body that is no call stays byte for byte.
function renameCall(body) {
  const message = parsed(body);
  if (message?.method !== "tools/call" || !Object.hasOwn(TOOLS, message.params?.name)) {
    return body;
  }
  message.params.name = offeredName(message.params.name);
  return Buffer.from(JSON.stringify(message));
}

// A name of this port is the same name of the gateway's port. Names of others reach the gateway, which must refuse them.
const atGateway = (value) => (value.endsWith(`:${port}`) ? value.slice(0, -`${port}`.length) + gateway.port : value);

function requestHeaders(raw, body) {
  const headers = ["authorization", `Bearer ${TOKEN}`];
  for (let at = 0; at < raw.length; at += 2) {
    const [name, value] = [raw[at], raw[at + 1]];
    const lower = name.toLowerCase();
    if (OWN.has(lower)) {
      continue;
    }
    const isPlace = lower === "host" || lower === "origin";
    headers.push(name, isPlace ? atGateway(value) : lower === "mcp-name" ? offeredName(value) : value);
  }
  return body.length > 0 ? [...headers, "content-length", `${body.length}`] : headers;
}

const responseHeaders = (raw) => {
  const headers = [];
  for (let at = 0; at < raw.length; at += 2) {
    if (!OWN.has(raw[at].toLowerCase())) {
      headers.push(raw[at], raw[at + 1]);
    }
  }
  return headers;
};

// Gives listed tools their own names again, line by line: a message is one line.
function renameListed() {
  let rest = "";
  const rename = (text) => text.replaceAll(`"name":"${PREFIX}`, '"name":"');
  return new Transform({
    transform(chunk, _, done) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      done(null, lines.map((line) => `${rename(line)}\n`).join(""));
    },
    flush(done) {
      done(null, rename(rest));
    },
  });
}

let isSpareOffered = true;

// Changes the list of the gateway as its operator does.
function changeTools() {
  const change = isSpareOffered ? ["revoke", "spare"] : ["approve", "spare", "--yes"];
  isSpareOffered = !isSpareOffered;
  const command = spawn(COUNTERSIGN_BINARY, ["mcp-servers", ...change, "--config", "config.yaml"], { stdio: "ignore" });
  return new Promise((go) => { command.on("close", go); });
}

async function pass(incoming, response) {
  const chunks = [];
  for await (const chunk of incoming) {
    chunks.push(chunk);
  }
  const given = Buffer.concat(chunks);
  if (parsed(given)?.params?.name === "test_trigger_tool_change") {
    await changeTools();
  }
  const body = renameCall(given);
  const outgoing = send({
    host: gateway.hostname,
    port: gateway.port,
    method: incoming.method,
    path: incoming.url,
    headers: requestHeaders(incoming.rawHeaders, body),
    agent: false,
  });
  outgoing.on("response", (answer) => {
    response.writeHead(answer.statusCode, responseHeaders(answer.rawHeaders));
    response.flushHeaders();
    answer.setEncoding("utf8");
    answer.pipe(renameListed()).pipe(response);
    answer.on("error", () => response.destroy());
  });
  outgoing.on("error", () => response.destroy());
  response.on("close", () => outgoing.destroy());
  outgoing.end(body);
}

const server = createServer((incoming, response) => { pass(incoming, response).catch(() => response.destroy()); });
let port = 0;
server.listen(0, "127.0.0.1", () => {
  ({ port } = server.address());
  console.log(`http://127.0.0.1:${port}${gateway.pathname}`);
});
