// An MCP server over stdio with the tools that the conformance suites call. `fixtures.mjs spare` has the spare tool instead.

import { createInterface } from "node:readline";

import { SPARE_TOOLS, TOOLS, definitions } from "./fixture_tools.mjs";

const tools = process.argv[2] === "spare" ? SPARE_TOOLS : TOOLS;
let requests = 0;

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

function hostOf(params) {
  return {
    progressToken: params._meta?.progressToken,
    notify: (method, sent) => send({ method, params: sent }),
    request: (method, sent) => send({ id: `fixture-${requests += 1}`, method, params: sent }),
  };
}

async function call(params) {
  try {
    return { content: await tools[params.name].call(hostOf(params)), isError: false };
  } catch (error) {
    return { content: [{ type: "text", text: error.message }], isError: true };
  }
}

async function answer({ id, method, params = {} }) {
  switch (method) {
    case "initialize": {
      const serverInfo = { name: "conformance-fixtures", version: "1" };
      const capabilities = { tools: {}, logging: {} };
      return send({ id, result: { protocolVersion: params.protocolVersion, capabilities, serverInfo } });
    }
    case "ping":
      return send({ id, result: {} });
    case "tools/list":
      return send({ id, result: { tools: definitions(tools) } });
    case "tools/call":
      return send({ id, result: await call(params) });
    default:
      return send({ id, error: { code: -32601, message: "Method not found" } });
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method !== undefined && message.id !== undefined) {
    answer(message);
  }
});
