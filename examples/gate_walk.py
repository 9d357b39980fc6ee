#!/usr/bin/env python3
"""Runs a whole session of one agent, one approver and one service with `countersign serve`, and checks each step.

    python3 examples/gate_walk.py [path to countersign]

It uses copies of the example files in its folder, with a Home Assistant and a Telegram of its own on loopback. The protocol
is described in docs/protocol/agent-gate.md. It needs no key and no network. The exit code is 0 only if all checks passed.
"""

import base64
import http.client
import http.server
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
FILES = ["config.yaml", "permissions.yaml", "homeassistant.yaml"]
PATIENCE = 20  # timeout in seconds of each step


class Report:
    """Prints each check, and keeps the failed ones."""

    def __init__(self):
        self.wrong = []

    def scene(self, title):
        print(f"\n{title}")

    def saw(self, what):
        print(f"      {what}")

    def check(self, holds, rule):
        print(f"  {'ok' if holds else 'FAILED'}  {rule}")
        if not holds:
            self.wrong.append(rule)


PERSON = 123456789  # the chat and the user of config.yaml


class Telephone:
    """A Telegram with one chat: the messages of the gateway, and the taps of users."""

    def __init__(self):
        self.changed = threading.Condition()
        self.cards, self.updates, self.answered = {}, [], []

    def call(self, method, body):
        with self.changed:
            if method == "getUpdates":
                self.changed.wait_for(lambda: len(self.updates) >= max(body["offset"], 1), 1)
                return [update for update in self.updates if update["update_id"] >= body["offset"]]
            if method in ("sendMessage", "editMessageText"):
                id = body.get("message_id", len(self.cards) + 1)
                rows = body.get("reply_markup", {}).get("inline_keyboard", [])
                self.cards[id] = body["text"], {key["text"]: key["callback_data"] for row in rows for key in row}
                self.changed.notify_all()
                return {"message_id": id, "chat": {"id": body["chat_id"]}, "date": 1, "text": body["text"]}
            if method == "answerCallbackQuery":
                self.answered.append(body["callback_query_id"])
            return True

    def card(self, *words):
        """Waits for the card that contains all of these words, and returns its number and text."""
        end = time.monotonic() + PATIENCE
        with self.changed:
            while time.monotonic() < end:
                for id, (text, _) in self.cards.items():
                    if all(word in text for word in words):
                        return id, text
                self.changed.wait(0.5)
        return None, f"(no card contains {words})"

    def tap(self, card, button, user):
        if card is None:
            return
        with self.changed:
            id = len(self.updates) + 1
            message = {"message_id": card, "chat": {"id": PERSON}, "date": 1}
            by = {"id": user, "username": "ana" if user == PERSON else "eve"}
            query = {"id": f"tap-{user}", "from": by, "message": message, "data": self.cards[card][1][button]}
            self.updates.append({"update_id": id, "callback_query": query})
            self.changed.notify_all()


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Ignores broken connections: the gateway is killed on purpose."""


class House(http.server.BaseHTTPRequestHandler):
    """A Home Assistant with one sensor and lights, which keeps the calls that it received."""

    token = secrets.token_hex(16)
    acts = []
    telephone = None

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self.answer(401, {"message": "who are you?"})
        elif self.path == "/api/":
            self.answer(200, {"message": "API running."})
        elif self.path == "/api/states/sensor.temperature":
            self.answer(200, {"entity_id": "sensor.temperature", "state": "21.5"})
        else:
            self.answer(404, {"message": "not found"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/bot"):
            method = self.path.rsplit("/", 1)[1]
            self.answer(200, {"ok": True, "result": self.telephone.call(method, json.loads(body))})
        elif self.headers.get("Authorization") != f"Bearer {self.token}":
            self.answer(401, {"message": "who are you?"})
        else:
            self.acts.append((self.path.removeprefix("/api/services/"), json.loads(body)))
            self.answer(200, [{"entity_id": json.loads(body).get("entity_id"), "state": "on"}])

    def log_message(self, *_):
        pass


class Closed(Exception):
    """The gateway closed the connection, with this code."""

    def __init__(self, code):
        super().__init__(f"closed with {code}")
        self.code = code


class Agent:
    """JSON-RPC over a WebSocket. Replies come in any order; pings are answered whenever frames are read."""

    last = 0  # ids increase over all connections, as those of one program do

    def __init__(self, port, token):
        self.replies = {}
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self.socket.sendall(
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        status = self.file.readline()
        if b" 101 " not in status:
            raise OSError(f"no WebSocket: {status!r}")
        while self.file.readline().strip():
            pass
        self.send("auth", {"token": token}, "auth-1")
        self.hello = self.reply("auth-1")

    def frame(self, opcode, data):
        length = len(data)
        head = bytes([0x80 | opcode]) + (
            bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack(">H", length)
        )
        mask = secrets.token_bytes(4)
        self.socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))

    def read(self, count):
        data = self.file.read(count)
        if len(data) < count:
            raise Closed(None)
        return data

    def pump(self):
        """Reads one frame and returns its opcode."""
        try:
            first, length = self.read(2)
            if length == 126:
                (length,) = struct.unpack(">H", self.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.read(8))
            data = self.read(length)
        except ConnectionError:
            raise Closed(None) from None
        opcode = first & 15
        if opcode == 8:
            raise Closed(struct.unpack(">H", data[:2])[0] if data else None)
        if opcode == 9:
            self.frame(10, data)
        if opcode == 1:
            message = json.loads(data)
            self.replies[message["id"]] = message
        return opcode

    def send(self, method, params, id=None):
        if id is None:
            Agent.last += 1
            id = Agent.last
        self.frame(1, json.dumps({"jsonrpc": "2.0", "method": method, "params": params, "id": id}).encode())
        return id

    def ask(self, tool, **args):
        return self.send("tool_request", {"tool": tool, "args": args})

    def reply(self, id):
        while id not in self.replies:
            self.pump()
        return self.replies.pop(id)

    def settle(self):
        """Returns when the gateway has received our pongs: its pong to our ping comes after them."""
        self.frame(9, b"")
        while self.pump() != 10:
            pass
        self.frame(9, b"")
        while self.pump() != 10:
            pass


class Gateway:
    """`countersign serve`, and an approver who uses the command line."""

    def __init__(self, binary, folder, environment):
        self.binary, self.folder, self.environment = binary, folder, environment
        self.process, self.port = None, 0
        self.log = open(folder / "stderr.txt", "ab")

    def start(self):
        command = [self.binary, "serve", "--config", "config.yaml", "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline().strip()
        if not line.startswith("countersign ready on http://"):
            raise SystemExit(f"the gateway did not start: {line}\n{(self.folder / 'stderr.txt').read_text()}")
        self.port = int(line.rsplit(":", 1)[1])
        return line

    def stop(self, how):
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.process = None
        return code

    def run(self, *words):
        done = subprocess.run([self.binary, *words], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout.rstrip() or done.stderr.strip()

    def gates(self):
        code, text = self.run("gates", "list", "--json", "--data", "data")
        return json.loads(text) if code == 0 else []

    def the_gate(self):
        """Waits for a pending approval and returns it."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            gates = self.gates()
            if gates:
                return gates[0]
            time.sleep(0.05)
        raise SystemExit("no approval is pending")

    def decide(self, *words):
        return self.run("gates", *words, "--data", "data")


def prepared(folder, house):
    """Copies the example files, with the addresses of our own servers."""
    for name in FILES:
        shutil.copy(HERE / name, folder / name)
    change(folder, "http://homeassistant.local:8123", house)
    change(folder, "    chat_id: 123456789 ", f'    api_url: "{house}"\n    chat_id: 123456789 ')


def change(folder, old, new):
    path = folder / "config.yaml"
    text = path.read_text()
    if text.count(old) != 1:
        raise SystemExit(f"config.yaml must contain {old!r} exactly once")
    path.write_text(text.replace(old, new))


def error(reply):
    return reply.get("error", {}).get("code"), reply.get("error", {}).get("message")


def walk(report, gateway, token):
    acts, telephone = House.acts, House.telephone
    report.scene("The gateway starts with the example files")
    report.saw(gateway.start())
    health = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE)
    health.request("GET", "/healthz")
    answer = health.getresponse()
    checks = json.loads(answer.read())["checks"]
    health.close()
    report.check(answer.status == 200 and checks["services"] == {"homeassistant": True}, "gateway and service are healthy")

    report.scene("An agent connects")
    stranger = Agent(gateway.port, "not-the-token")
    report.check(error(stranger.hello) == (-32005, "Invalid token"), "a wrong token is rejected")
    agent = Agent(gateway.port, token)
    report.check(agent.hello.get("result") == {"status": "authenticated"}, "the right token is accepted")
    tools = agent.reply(agent.send("list_tools", {}))["result"]["tools"]
    report.check([tool["name"] for tool in tools][:2] == ["ha_get_state", "ha_get_states"], "the agent gets the tools, in order")

    report.scene("Allow: the agent reads a sensor")
    reply = agent.reply(agent.ask("ha_get_state", entity_id="sensor.temperature"))
    report.saw(json.dumps(reply.get("result", reply)))
    wanted = {"status": "executed", "data": {"entity_id": "sensor.temperature", "state": "21.5"}}
    report.check(reply.get("result") == wanted, "the rules allow the call, and the agent gets the answer at once")

    report.scene("Deny: the agent tries to open the door")
    reply = agent.reply(agent.ask("ha_call_service", domain="lock", service="unlock", entity_id="lock.front"))
    report.saw(json.dumps(reply.get("error", reply)))
    report.check(error(reply) == (-32003, "Denied by policy"), "the rules deny the call")
    reply = agent.reply(agent.ask("ha_call_service", domain="light", service="turn_on", entity_id="light.*"))
    report.check(error(reply)[0] == -32600, "an argument with a wildcard is rejected")
    report.check(acts == [], "no call reached Home Assistant")

    report.scene("Ask and approve: the agent turns on a light")
    id = agent.ask("ha_call_service", domain="light", service="turn_on", entity_id="light.bedroom")
    gate = gateway.the_gate()
    report.saw(f"{gate['id']} is pending: {gate['subject']}")
    report.check(gate["subject"] == "ha_call_service(light.turn_on, light.bedroom)", "the approver sees the exact call")
    report.check(acts == [], "nothing runs before the approval")
    report.check(gateway.decide("allow", gate["id"][-8:])[0] == 0, "the approver allows the call")
    reply = agent.reply(id)
    report.saw(json.dumps(reply.get("result", reply)))
    report.check(reply.get("result", {}).get("status") == "executed", "the agent gets the result")
    report.check(acts == [("light/turn_on", {"entity_id": "light.bedroom"})], "the call ran once, exactly as shown")
    late = gateway.decide("deny", gate["id"])
    report.saw(late[1])
    report.check(late[0] == 1, "a late answer is rejected")

    report.scene("Ask and tap: approval in Telegram")
    id = agent.ask("ha_call_service", domain="light", service="turn_on", entity_id="light.kitchen")
    card, text = telephone.card("light.kitchen")
    for line in text.splitlines():
        report.saw(line)
    telephone.tap(card, "Allow", 999)
    telephone.tap(card, "Allow", PERSON)
    reply = agent.reply(id)
    report.check(reply.get("result", {}).get("status") == "executed", "a tap on Allow approves the call")
    _, text = telephone.card("light.kitchen", "Approved by @ana")
    report.saw(text.splitlines()[-1])
    report.check("Approved by @ana" in text, "the card shows the approver and the time")
    report.check("tap-999" not in telephone.answered, "the tap of an unknown user is ignored")

    report.scene("Ask and deny: the approver denies the call")
    id = agent.ask("ha_call_service", domain="light", service="turn_on", entity_id="light.garden")
    gateway.decide("deny", gateway.the_gate()["id"], "--reason", "someone sleeps there")
    reply = agent.reply(id)
    report.saw(json.dumps(reply.get("error", reply)))
    report.check(error(reply) == (-32001, "Denied by user"), "the agent gets the denial with its reason")
    reply = agent.reply(agent.ask("ha_call_service", domain="light", service="turn_on", entity_id="light.garden"))
    report.check(error(reply)[0] == -32003, "the repeated call is denied without asking")

    report.scene("Restart with a pending approval: kill -9, then approval while the agent is disconnected")
    before = len(acts)
    agent.settle()
    id = agent.ask("ha_call_service", domain="switch", service="turn_on", entity_id="switch.heater")
    gate = gateway.the_gate()
    gateway.stop(signal.SIGKILL)
    try:
        agent.reply(id)
        report.check(False, "the connection of the agent is closed")
    except Closed:
        report.check(True, "the connection of the agent is closed")
    report.check([waits["id"] for waits in gateway.gates()] == [gate["id"]], "the approval is still pending in the record")
    report.saw(gateway.start())
    report.check([waits["id"] for waits in gateway.gates()] == [gate["id"]], "the approval is pending in the new process")
    report.check(gateway.decide("allow", gate["id"])[0] == 0, "the approver allows the call")
    # The card changes when the outcome is in the record, which is after the call of Home Assistant.
    _, text = telephone.card("switch.heater", "while the agent was away")
    report.saw(text.splitlines()[-1])
    report.check("while the agent was away" in text, "the card shows that the agent was disconnected")
    agent = Agent(gateway.port, token)
    missed = agent.reply(agent.send("get_pending_results", {}))["result"]
    rows = [(row["request_id"], json.loads(row["result"])["status"]) for row in missed["results"]]
    # The usual reply follows under the agent's own id; this list has the id of the gate.
    report.check(rows == [(gate["id"], "executed")], "the agent reconnects and finds its result under the id of the gate")
    queued = [(row["request_id"], row["status"]) for row in missed["queued"]]
    report.check(queued == [(str(id), "executed")], "the result is listed under the id of the request too")
    report.check(agent.reply(id).get("result", {}).get("status") == "executed", "the agent gets the reply to its request")
    agent.settle()
    missed = agent.reply(agent.send("get_pending_results", {}))["result"]
    report.check(missed == {"results": [], "queued": []}, "a received result is not sent again")
    report.check(acts[before:] == [("switch/turn_on", {"entity_id": "switch.heater"})], "the call ran once")

    report.scene("Shutdown")
    begun = time.monotonic()
    code = gateway.stop(signal.SIGTERM)
    report.check(code == 0 and time.monotonic() - begun < 5, "SIGTERM stops the gateway within five seconds, with exit code 0")
    try:
        while True:
            agent.pump()
    except Closed as closed:
        report.check(closed.code == 1012, "agents are asked to reconnect (close code 1012)")

    report.scene("Ask and time out: with a timeout of one second")
    change(gateway.folder, "approval_timeout: 900", "approval_timeout: 1")
    report.saw(gateway.start())
    before = len(acts)
    agent = Agent(gateway.port, token)
    reply = agent.reply(agent.ask("ha_call_service", domain="light", service="turn_off", entity_id="light.attic"))
    report.saw(json.dumps(reply.get("error", reply)))
    report.check(error(reply) == (-32002, "Approval timed out"), "without an answer, the call is denied")
    report.check(len(acts) == before and gateway.gates() == [], "nothing ran, and no approval is pending")
    report.check(telephone.card("light.attic", "Expired")[0] is not None, "the card shows that the approval expired")

    report.scene("The record")
    code, text = gateway.run("audit", "tail", "-n", "60", "--log", "data/countersign.db")
    print(text)
    report.check(code == 0, "the record can be read while the gateway runs")
    code, text = gateway.run("audit", "verify", "--log", "data/countersign.db")
    print(text)
    report.check(code == 0, "the hash chain is intact")
    code, text = gateway.run("audit", "export", "--log", "data/countersign.db")
    report.check(code == 0 and token not in text and House.token not in text, "the record contains no credentials")
    gateway.stop(signal.SIGTERM)


def main():
    usual = HERE.parent / "target" / "release" / "countersign"
    if not usual.exists():
        usual = pathlib.Path(shutil.which("countersign") or usual)
    binary = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else usual
    if not binary.exists():
        raise SystemExit(f"{binary} does not exist; build it with: cargo build --release -p countersign")
    House.telephone = Telephone()
    server = Server(("127.0.0.1", 0), House)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    report = Report()
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="countersign-walk-") as folder:
        folder = pathlib.Path(folder)
        prepared(folder, f"http://127.0.0.1:{server.server_port}")
        variables = {"AGENT_TOKEN": token, "HA_TOKEN": House.token, "GUARDIAN_BOT_TOKEN": "1:none"}
        variables["WEB_PASSWORD"] = secrets.token_hex(16)
        gateway = Gateway(str(binary.resolve()), folder, {**os.environ, **variables})
        try:
            walk(report, gateway, token)
        except (Closed, TimeoutError, ConnectionError) as gone:
            report.check(False, f"connection lost: {gone!r}")
        finally:
            if gateway.process:
                gateway.process.kill()
                gateway.process.wait()
            gateway.log.close()
    server.shutdown()
    print()
    if report.wrong:
        print("Failed checks:", *report.wrong, sep="\n  ")
        return 1
    print("All checks passed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
