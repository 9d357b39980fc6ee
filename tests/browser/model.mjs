// A provider of models on loopback that speaks the real wire of OpenAI and does what its last prompt says.

import { createServer } from "node:http";

/** What the model does when it hears a prompt; after the results it says how many there were. */
const script = [
  [/colour/, () => ({ text: "One question first.", calls: [["ask", { questions: [
    { id: "colour", question: "Which colour shall the door have?", options: [{ label: "Green" }, { label: "Blue" }], recommended: 0 },
  ] }]] })],
  [/^edit/, () => ({ thinking: "The greeting is wrong, so I change one line.", text: "I change the greeting.", calls: [["edit", {
    path: "greet.sh", old_text: "echo \"Hello, $nmae!\"\necho done\n", new_text: "echo \"Hello, $name!\"\necho done\n", _i: "Fix the misspelt variable",
  }]] })],
  [/^run (.*)/s, (found) => ({ text: "I run it.", calls: [["bash", { command: found[1], _i: "Run what was asked for" }]] })],
  [/slow/, () => ({ text: "word ".repeat(400), slowly: true })],
  [/.*/s, () => ({ text: "Hello. I am the model of the tests." })],
];

function answer(messages) {
  const last = messages.at(-1);
  if (last.role === "tool") return { text: `That is done. ${messages.filter((one) => one.role === "tool").length} results so far.` };
  const said = typeof last.content === "string" ? last.content : last.content.map((part) => part.text ?? "").join("");
  const [pattern, act] = script.find(([pattern]) => pattern.test(said));
  return act(said.match(pattern));
}

/** Starts it. */
export async function startModel() {
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request) text += piece;
    const { messages } = JSON.parse(text);
    const { text: said, thinking, calls = [], slowly } = answer(messages);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (delta, finish = null) => response.write(`data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", model: "small-1", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
    send({ role: "assistant", content: "" });
    if (thinking) send({ reasoning_content: thinking });
    for (const word of said.split(/(?<= )/)) {
      send({ content: word });
      if (slowly) await new Promise((go) => { setTimeout(go, 20); });
      if (response.destroyed) return;
    }
    calls.forEach(([name, fields], index) => send({ tool_calls: [{ index, id: `call_${messages.length}_${index}`, type: "function", function: { name, arguments: JSON.stringify(fields) } }] }));
    send({}, calls.length ? "tool_calls" : "stop");
    response.end("data: [DONE]\n\n");
  });
  await new Promise((go) => { server.listen(0, "127.0.0.1", go); });
  return { url: `http://127.0.0.1:${server.address().port}/v1`, close: () => { server.closeAllConnections(); server.close(); } };
}
