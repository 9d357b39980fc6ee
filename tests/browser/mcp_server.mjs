// An MCP server with two tools, for the walk through the console. A file `description` in its folder replaces that of the first tool.

import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const path = { type: "string" };
const described = existsSync("description") ? readFileSync("description", "utf8") : "Reads a file of the share as text.\nPaths are relative to the share.";
const tools = [
  { name: "read_file", description: described, inputSchema: { type: "object", properties: { path }, required: ["path"] }, annotations: { readOnlyHint: true, openWorldHint: false } },
  { name: "write_file", description: "Replaces a file. <b>Bold</b> \u202e words do no harm.", inputSchema: { type: "object", properties: { path, content: path }, required: ["path", "content"] }, annotations: { title: "Write", destructiveHint: true } },
];
const answers = {
  initialize: (params) => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "walk", version: "1.2" } }),
  "tools/list": () => ({ tools }),
  "tools/call": (params) => ({ content: [{ type: "text", text: `${params.name} of ${params.arguments.path}` }] }),
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  const outcome = answer ? { result: answer(params ?? {}) } : { error: { code: -32601, message: "unknown method" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...outcome })}\n`);
});
