// Written by `countersign guard opencode`: each call asks the gateway before it runs. `countersign unguard opencode` removes it.
import { spawn } from "node:child_process"

const HOOK = @HOOK@

/** Runs the hook. It resolves with its answer, and rejects whenever there is none. */
function runHook(input) {
  return new Promise((resolve, reject) => {
    const child = spawn(HOOK[0], HOOK.slice(1), { stdio: ["pipe", "pipe", "pipe"] })
    let output = ""
    let problem = ""
    child.stdout.setEncoding("utf8").on("data", (text) => (output += text))
    child.stderr.setEncoding("utf8").on("data", (text) => (problem += text))
    // A hook that ends at once has no input any more.
    child.stdin.on("error", () => {})
    child.on("error", (error) => reject(new Error(`countersign: the call is blocked: the hook cannot be started: ${error.message}`)))
    child.on("close", (code) => {
      if (code !== 0) return reject(new Error(problem.trim() || `countersign: the call is blocked: the hook ended with ${code}`))
      try {
        resolve(output.trim() === "" ? {} : JSON.parse(output))
      } catch {
        reject(new Error("countersign: the call is blocked: the hook printed no JSON"))
      }
    })
    child.stdin.end(JSON.stringify(input))
  })
}

export const Countersign = async ({ client, directory }) => {
  // Calls that the gateway has allowed and that have not ended: opencode's own question about them is answered.
  const allowed = new Set()
  const keyOf = (session, call) => `${session} ${call}`
  const describe = (event, input, args) => ({
    hook_event_name: event,
    tool: input.tool,
    sessionID: input.sessionID,
    callID: input.callID,
    args,
    cwd: directory,
  })
  return {
    "tool.execute.before": async (input, output) => {
      const answer = await runHook(describe("tool.execute.before", input, output.args))
      if (answer.decision !== "allow") throw new Error(answer.reason || "countersign: the call is blocked")
      allowed.add(keyOf(input.sessionID, input.callID))
    },
    "tool.execute.after": async (input) => {
      allowed.delete(keyOf(input.sessionID, input.callID))
      // The call ran. The gateway reports it if it was changed after the decision.
      await runHook(describe("tool.execute.after", input, input.args)).catch((error) => console.error(error.message))
    },
    event: async ({ event }) => {
      const asked = event.properties
      if (event.type !== "permission.asked" || !asked.tool) return
      if (!allowed.has(keyOf(asked.sessionID, asked.tool.callID))) return
      // Never "always": it stores a wider rule than the call. Another client may have answered by now.
      const request = { path: { requestID: asked.id }, body: { reply: "once" }, headers: { "content-type": "application/json" } }
      await client._client.post({ url: "/permission/{requestID}/reply", ...request }).catch(() => {})
    },
  }
}
