#!/usr/bin/env python3
"""A host of `countersign gjc --mode rpc` that nobody watches: it offers a tool and a URI scheme, and answers gates itself.

    python3 examples/gjc_host.py [path to countersign]
    python3 examples/gjc_host.py --self-test

Everything it expects stands in the RPC reference of gjc. The model is a script (local_provider.py), the agent directory and
the working folder are temporary: it needs no key and no network. With `--self-test` it speaks with a small peer of its own
in place of countersign. It ends with 0 only if everything was as the document says.
"""

import contextlib
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading

PATIENCE = 30

DECLARATION = {
    "actor": "examples/gjc_host",
    "budget": {"max_tokens": 200_000, "max_tool_calls": 50, "max_wall_time_ms": 600_000, "max_cost_usd": 1},
    "scopes": ["prompt", "control", "message:read", "host_tools", "host_uri"],
    "action_allowlist": [
        "command.control",
        "command.message_read",
        "command.host_tools",
        "command.host_uri",
        "host_tool.invoke",
        "host_uri.read",
    ],
}

ROWS = {"db://users/42": "id=42\nname=Alice\n"}


class Refused(Exception):
    """The answer to a command was `success: false`. `error` is a text or an object with a `code`."""

    def __init__(self, error):
        super().__init__(error if isinstance(error, str) else json.dumps(error))
        self.error = error


def policy(gate):
    """What we answer to a gate. A real host would look at it here, or ask its own agent."""
    if gate["kind"] == "question":
        options = gate.get("options") or []
        recommended = [option for option in options if option.get("description") == "recommended"]
        chosen = (recommended or options)[:1]
        if chosen:
            return {"selected": [chosen[0]["value"]], "other": False}
        return {"selected": [], "other": True, "custom": "whatever you think is best"}
    plan = gate["context"].get("summary") or ""
    if gate["kind"] == "approval" and "drop the database" in plan:
        return {"decision": "reject", "comments": "not while nobody watches"}
    return {"decision": "approve"}


class Host:
    """The agent's process and everything that it asks of us."""

    def __init__(self, command, say=print, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.say, self.sent, self.seq = say, 0, 0
        self.answers, self.events, self.faults = {}, queue.Queue(), []
        self.ready, self.writing = threading.Event(), threading.Lock()
        self.tool_calls, self.reads, self.gates = [], [], []
        threading.Thread(target=self._read, daemon=True).start()
        if not self.ready.wait(PATIENCE):
            raise SystemExit("there was no ready frame")

    def write(self, frame):
        with self.writing:
            self.process.stdin.write(json.dumps(frame).encode() + b"\n")
            self.process.stdin.flush()

    def send(self, command, /, **fields):
        """Sends a command; its answer comes out of the queue that is returned."""
        self.sent += 1
        name = f"req_{self.sent}"
        answer = self.answers[name] = queue.Queue()
        self.write({"id": name, "type": command, **fields})
        return answer

    def ask(self, command, /, **fields):
        """Sends a command and returns the `data` of its answer."""
        frame = self.send(command, **fields).get(timeout=PATIENCE)
        if not frame["success"]:
            raise Refused(frame["error"])
        return frame.get("data")

    def until(self, event_type):
        """Waits for an event and returns it."""
        while True:
            event = self.events.get(timeout=PATIENCE)
            if event["type"] == event_type:
                return event

    def close(self):
        """Ends the input, which ends the process, and returns its exit code."""
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def _read(self):
        for line in self.process.stdout:
            try:
                frame = json.loads(line)
                self._take(frame)
            except Exception as error:  # A frame that we do not understand is a fault, whatever it does to us.
                self.faults.append(f"{line!r}: {error!r}")

    def _take(self, frame):
        kind = frame["type"]
        if kind == "ready":
            self.ready.set()
        elif kind == "response":
            # An answer that comes again, as after a prompt that fails late, is put behind the first.
            self.answers[frame["id"]].put(frame)
        elif kind == "event":
            self._take_event(frame)
        elif kind == "workflow_gate":
            # Answering waits for the answer to the answer, and must not keep us from reading it.
            threading.Thread(target=self._decide, args=(frame,), daemon=True).start()
        elif kind == "host_tool_call":
            self._call(frame)
        elif kind == "host_uri_request":
            self._serve(frame)
        elif kind in ("host_tool_cancel", "host_uri_cancel"):
            self.say(f"  {frame['targetId']} is wanted no more")
        elif kind == "extension_ui_request":
            if frame["method"] in ("select", "confirm", "input", "editor"):
                self.write({"type": "extension_ui_response", "id": frame["id"], "cancelled": True})
        elif kind != "extension_error":
            self.faults.append(f"an unknown frame: {frame}")

    def _take_event(self, frame):
        event = frame["payload"]["event"]
        if frame["payload"]["event_type"] != event["type"]:
            self.faults.append(f"two types in one event: {frame}")
        if frame["seq"] != self.seq + 1:
            self.faults.append(f"event {frame['seq']} behind {self.seq}")
        self.seq = frame["seq"]
        self.events.put(event)

    def _decide(self, gate):
        answer = policy(gate)
        self.gates.append((gate, answer))
        self.say(f"  gate {gate['gate_id']} ({gate['kind']}): {json.dumps(answer)}")
        try:
            told = self.ask(
                "workflow_gate_response",
                gate_id=gate["gate_id"],
                answer=answer,
                idempotency_key=f"{gate['gate_id']}:1",
            )
        except Refused as refused:
            self.faults.append(f"{gate['gate_id']}: {refused}")
            return
        if told is not None and told["status"] != "accepted":
            self.faults.append(f"{gate['gate_id']}: {told['error']}")

    def _call(self, call):
        self.tool_calls.append(call["arguments"])
        text = call["arguments"]["message"]
        self.say(f"  {call['toolName']} says {text!r}")
        working = {"content": [{"type": "text", "text": "working"}]}
        self.write({"type": "host_tool_update", "id": call["id"], "partialResult": working})
        done = {"content": [{"type": "text", "text": text}]}
        self.write({"type": "host_tool_result", "id": call["id"], "result": done})

    def _serve(self, request):
        self.reads.append(request["url"])
        row = ROWS.get(request["url"]) if request["operation"] == "read" else None
        self.say(f"  {request['operation']} {request['url']}: {'there' if row else 'not there'}")
        answer = {"type": "host_uri_result", "id": request["id"]}
        if row is None:
            answer.update(isError=True, error=f"{request['url']} is not there")
        else:
            answer.update(content=row, contentType="text/plain", notes=["fresh from cache"])
        self.write(answer)


ECHO = {
    "name": "echo_host",
    "label": "Echo Host",
    "description": "Echo a value from the embedding host",
    "parameters": {
        "type": "object",
        "properties": {"message": {"type": "string"}},
        "required": ["message"],
        "additionalProperties": False,
    },
}


def check(holds, what):
    if not holds:
        raise SystemExit(f"not as the document says: {what}")
    print(f"  {what}")


def refusal(host, command, /, **fields):
    try:
        host.ask(command, **fields)
    except Refused as refused:
        return refused.error
    raise SystemExit(f"{command} was not refused")


def day(host, asks):
    print("Starting")
    state = host.ask("get_state")
    check("dumpTools" not in state and "systemPrompt" not in state, "the state is slim")
    state = host.ask("get_state", include=["tools", "systemPrompt"])
    check("dumpTools" in state and "systemPrompt" in state, "the state has more if it is asked for")
    check(host.ask("set_host_tools", tools=[ECHO]) == {"toolNames": ["echo_host"]}, "our tool is offered")
    schemes = host.ask("set_host_uri_schemes", schemes=[{"scheme": "DB", "description": "Virtual rows"}])
    check(schemes == {"schemes": ["db"]}, "our scheme is in lower case")

    print("Leaving it alone")
    error = refusal(host, "negotiate_unattended", declaration={"actor": "nobody"})
    check("code" in error, "half a declaration is refused")
    accepted = host.ask("negotiate_unattended", declaration=DECLARATION)
    check(accepted["actor"] == DECLARATION["actor"], "ours is accepted")
    error = refusal(host, "bash", command="ls")
    check(error["code"] == "scope_denied" and error["scope"] == "bash", "what was not declared is denied")

    print("Working")
    acknowledged = host.send("prompt", message=asks).get(timeout=PATIENCE)
    check(acknowledged["success"], "the prompt is taken on at once")
    host.until("agent_end")
    check(host.tool_calls == [{"message": "hello"}], "our tool was called once")
    check(host.reads == ["db://users/42"], "our URI was read once")
    check(len(host.gates) > 0, f"{len(host.gates)} gates were answered by policy")

    print("Too late, and never")
    gate, answer = host.gates[0]
    again = dict(gate_id=gate["gate_id"], answer=answer, idempotency_key=f"{gate['gate_id']}:1")
    host.ask("workflow_gate_response", **again)
    check(True, "the same answer under the same key is the same answer")
    error = refusal(host, "workflow_gate_response", gate_id=gate["gate_id"], answer={}, idempotency_key="other")
    check(error["code"] == "already_resolved", "another one comes too late")
    error = refusal(host, "workflow_gate_response", gate_id="wg_none_ralplan_000001", answer={})
    check(error["code"] == "unknown_gate", "there is no other gate")
    check(host.close() == 0, "the end of input is the end, with code 0")
    check(not host.faults, "no frame was anything else" if not host.faults else "; ".join(host.faults))


MODELS = """\
providers:
  local:
    baseUrl: {base_url}
    auth: none
    api: openai-completions
    models:
      - {{ id: small-1, name: Small One, contextWindow: 128000, maxTokens: 64000 }}
"""


def with_countersign(binary):
    from local_provider import Call, LocalProvider, Say

    # It is started in a folder of its own, from where a relative path would lead nowhere.
    binary = pathlib.Path(binary).resolve()
    if not binary.is_file():
        sys.exit(f"{binary} is not there: cargo build --release, or name the binary")
    asks = "Echo hello, read user 42, and ask which way to go."
    question = {"id": "way", "question": "Which way?", "options": [{"label": "Left"}, {"label": "Right"}]}
    scripts = {
        asks: [
            [Call("echo_host", message="hello"), Call("read", path="db://users/42")],
            [Call("ask", questions=[question])],
            [Say("Left it is.")],
        ]
    }
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(LocalProvider(scripts)) as provider:
        home = pathlib.Path(folder)
        agent, work = home / "agent", home / "work"
        agent.mkdir()
        work.mkdir()
        (agent / "models.yml").write_text(MODELS.format(base_url=provider.base_url))
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "GJC_CODING_AGENT_DIR": str(agent)}
        command = [str(binary), "gjc", "--mode", "rpc", "--provider", "local", "--model", "small-1"]
        day(Host(command, cwd=work, env=environment), asks)


class Peer:
    """As much of the program as the day above needs, for the self-test: it plays the document's own examples."""

    QUESTION = {
        "type": "workflow_gate",
        "gate_id": "wg_4845_deep-interview_000001",
        "stage": "deep-interview",
        "kind": "question",
        "schema": {"type": "object"},
        "schema_hash": "0" * 64,
        "options": [{"value": "A", "label": "A"}, {"value": "B", "label": "B", "description": "recommended"}],
        "context": {"title": "Which?"},
        "created_at": "2026-06-05T05:00:00.000Z",
        "required": True,
    }
    APPROVAL = {
        **QUESTION,
        "gate_id": "wg_4845_ralplan_000001",
        "stage": "ralplan",
        "kind": "approval",
        "options": [{"value": "approve", "label": "approve"}],
        "context": {"title": "Approve plan?", "summary": "drop the database"},
    }

    def __init__(self):
        self.seq, self.unattended, self.accepted = 0, False, {}
        self.write({"type": "ready"})

    def write(self, frame):
        print(json.dumps(frame), flush=True)

    def event(self, name, **fields):
        self.seq += 1
        payload = {"event_type": name, "event": {"type": name, **fields}}
        envelope = {"protocol_version": 2, "session_id": "s", "seq": self.seq, "frame_id": str(self.seq)}
        self.write({**envelope, "type": "event", "payload": payload})

    def answer(self, command, data=None, error=None):
        frame = {"id": command.get("id"), "type": "response", "command": command["type"], "success": error is None}
        frame.update({} if data is None else {"data": data}, **({} if error is None else {"error": error}))
        self.write(frame)

    def take(self, frame):
        kind = frame["type"]
        if kind == "get_state":
            more = {"dumpTools": [], "systemPrompt": []} if frame.get("include") else {}
            self.answer(frame, {"sessionId": "s", "isStreaming": False, **more})
        elif kind == "set_host_tools":
            self.answer(frame, {"toolNames": [tool["name"] for tool in frame["tools"]]})
        elif kind == "set_host_uri_schemes":
            self.answer(frame, {"schemes": [scheme["scheme"].lower() for scheme in frame["schemes"]]})
        elif kind == "negotiate_unattended":
            if "budget" not in frame["declaration"]:
                self.answer(frame, error={"code": "invalid_unattended_declaration", "message": "scopes"})
            else:
                self.answer(frame, {"run_id": "s", **frame["declaration"]})
        elif kind == "bash":
            self.answer(frame, error={"code": "scope_denied", "scope": "bash", "pre_side_effect": True})
        elif kind == "prompt":
            self.answer(frame)
            self.event("agent_start")
            call = {"id": "host_1", "toolCallId": "toolu_123", "toolName": "echo_host"}
            self.write({"type": "host_tool_call", **call, "arguments": {"message": "hello"}})
        elif kind == "host_tool_update":
            self.event("tool_execution_update", partialResult=frame["partialResult"])
        elif kind == "host_tool_result":
            assert frame["result"]["content"][0]["text"] == "hello", frame
            self.write({"type": "host_uri_request", "id": "uri_1", "operation": "read", "url": "db://users/42"})
        elif kind == "host_uri_result":
            assert frame["content"].startswith("id=42"), frame
            self.write(self.QUESTION)
        elif kind == "workflow_gate_response":
            self.decide(frame)
        else:
            self.answer(frame, error=f"Unknown command: {kind}")

    def decide(self, frame):
        name, key = frame["gate_id"], (frame.get("idempotency_key"), json.dumps(frame["answer"]))
        wanted = {
            self.QUESTION["gate_id"]: {"selected": ["B"], "other": False},
            self.APPROVAL["gate_id"]: {"decision": "reject", "comments": "not while nobody watches"},
        }
        if name not in wanted:
            return self.answer(frame, error={"code": "unknown_gate", "message": name})
        if name in self.accepted and self.accepted[name] != key:
            return self.answer(frame, error={"code": "already_resolved", "message": name})
        first = name not in self.accepted
        self.accepted[name] = key
        assert frame["answer"] == wanted[name], frame
        self.answer(frame, {"gate_id": name, "status": "accepted", "answer_hash": "0" * 64, "resolved_at": "now"})
        if first and name == self.QUESTION["gate_id"]:
            self.write(self.APPROVAL)
        elif first:
            self.event("agent_end", messages=[])


def main(arguments):
    if arguments == ["--peer"]:
        peer = Peer()
        for line in sys.stdin:
            peer.take(json.loads(line))
    elif arguments == ["--self-test"]:
        day(Host([sys.executable, __file__, "--peer"]), "Say hello.")
    else:
        beside = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "countersign"
        if not beside.exists():
            beside = shutil.which("countersign") or beside
        with_countersign(arguments[0] if arguments else os.environ.get("COUNTERSIGN_BIN", beside))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
