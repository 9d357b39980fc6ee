// Client on the official SDK of the Agent Client Protocol: `acp_client.mjs SDK KIND FOLDER PROMPT COMMAND...`.
//
// SDK is the file of its package. The client starts the agent with COMMAND, opens a session in FOLDER, makes one prompt, selects the
// option of KIND at each request for a permission, and leaves. It prints the stop reason. Its exit code is that of the agent, or 1 if
// the schemas of the SDK refused a message.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, kind, folder, prompt, command, ...words] = process.argv.slice(2);
const { PROTOCOL_VERSION, client, methods, ndJsonStream } = await import(pathToFileURL(sdk));

// The SDK reports here which messages its schemas refuse.
let refused = 0;
const report = console.error;
console.error = (...parts) => {
  refused += 1;
  report(...parts);
};

function selectOption({ params }) {
  const option = params.options.find((offered) => offered.kind === kind);
  if (option === undefined) {
    throw new Error(`no ${kind} in ${JSON.stringify(params.options)}`);
  }
  return { outcome: { outcome: "selected", optionId: option.optionId } };
}

async function runPrompt(connection) {
  await connection.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await connection.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
  const blocks = [{ type: "text", text: prompt }];
  const { stopReason } = await connection.request(methods.agent.session.prompt, { sessionId, prompt: blocks });
  return stopReason;
}

const agent = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
const ended = once(agent, "exit");
const stopReason = await client({ name: "acp-client" })
  .onRequest(methods.client.session.requestPermission, selectOption)
  .onNotification(methods.client.session.update, () => {})
  .connectWith(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), runPrompt);
console.log(stopReason);
agent.stdin.end();
const [code] = await ended;
process.exit(refused > 0 ? 1 : (code ?? 1));
