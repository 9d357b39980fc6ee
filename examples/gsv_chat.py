#!/usr/bin/env python3
"""A small client of the gsv adapter: sends a message to a session, prints the events of the session, and sends your input.

    python3 examples/gsv_chat.py ws://127.0.0.1:8443/ws SESSION "MESSAGE"      # the token is $CLIENT_TOKEN

A pending approval appears as a message; answer it with `yes` or `no`. The gateway queues any other text until the approval is
decided. The script exits when the agent has answered all of your messages. It needs Python 3.9 and no packages. It has no TLS:
use a WebSocket library in a real client.
"""

import base64
import json
import os
import socket
import struct
import sys
import threading
import uuid
from urllib.parse import urlsplit


class Connection:
    """A WebSocket connection with JSON objects in text frames."""

    def __init__(self, url):
        at = urlsplit(url)
        try:
            self.socket = socket.create_connection((at.hostname, at.port or 80))
        except OSError as error:
            raise SystemExit(f"cannot connect to {url}: {error}") from None
        self.stream, self.writing = self.socket.makefile("rb"), threading.Lock()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {at.path or '/'} HTTP/1.1", f"Host: {at.netloc}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        status = self.stream.readline().decode().strip()
        while self.stream.readline().strip():
            pass
        if " 101 " not in status:
            raise SystemExit(f"no gateway at {url}: {status or 'connection closed'}")

    def write(self, payload, kind=1):
        length, mask = len(payload), os.urandom(4)
        head = bytes([0x80 | kind])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 65536:
            head += bytes([0x80 | 126]) + struct.pack("!H", length)
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", length)
        with self.writing:
            self.socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)))

    def ask(self, method, request=None, **params):
        """Sends a request and returns its id. Responses have the id of their request, and come in any order."""
        request = request or str(uuid.uuid4())
        self.write(json.dumps({"type": "req", "id": request, "method": method, "params": params}).encode())
        return request

    def frames(self):
        """Yields the frames of the gateway until the connection is closed."""
        while head := self.stream.read(2):
            kind, length = head[0] & 15, head[1] & 127
            if length == 126:
                (length,) = struct.unpack("!H", self.stream.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self.stream.read(8))
            payload = self.stream.read(length)
            if kind == 9:
                self.write(payload, 10)  # answer a ping with a pong
            elif kind == 8:
                return
            else:
                yield json.loads(payload)


def text(message):
    """Returns the text of a message."""
    content = message.get("content", [])
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return "\n".join(part for part in parts if part)


class Conversation:
    """The runs for which an answer is outstanding, by the `runId` that the client gives to each message."""

    def __init__(self, connection, session):
        self.connection, self.session = connection, session
        self.open = set()  # runs that have not ended
        self.asking = set()  # runs that wait for an approval or an answer
        self.sent = set()  # all messages; the id of a request is that of its run

    def send(self, message):
        run = str(uuid.uuid4())
        self.open.add(run)
        self.sent.add(run)
        self.connection.ask("chat.send", request=run, sessionKey=self.session, message=message, runId=run)

    def respond(self, frame):
        """Handles the response to a message."""
        run = frame["id"]
        if not frame["ok"]:
            print("failed:", frame["error"]["message"], flush=True)
            self.open.discard(run)
            return
        result = frame["payload"]
        if result["status"] != "started":  # a slash command, or an answer that was not accepted
            print(result.get("response") or result.get("error") or result["status"], flush=True)
            self.open.discard(run)
        elif not result.get("queued"):
            self.continue_as(run)  # the message was an answer, if a run was waiting for one

    def continue_as(self, run):
        """A decided run continues under another id."""
        self.open -= self.asking - {run}
        self.asking &= {run}

    def show(self, frame):
        """Handles a chat event."""
        event = frame["payload"]
        run, state = event["runId"], event["state"]
        shown = text(event["message"]) if event.get("message") else ""
        if shown:
            print(shown, flush=True)
        if event.get("error"):
            print("failed:", event["error"], flush=True)
        if state == "error":
            self.open.discard(run)
            self.asking.discard(run)
        elif "seq" not in frame:
            pass  # a notice, for example about a queued message: not in the record, and not the end of a run
        else:
            if self.open & self.asking and run not in self.open:
                self.open.add(run)  # decided elsewhere, for example in the console
                self.continue_as(run)
            if state == "final" and shown.startswith(("Approval needed #", "Question #")):
                self.asking.add(run)
            elif state == "final":
                self.open.discard(run)
                self.asking.discard(run)


def main(url, session, message):
    token = os.environ.get("CLIENT_TOKEN")
    if not token:
        raise SystemExit("CLIENT_TOKEN is not set: it holds the token that the gateway's configuration has as clients.token")
    connection = Connection(url)
    client = {"id": "gsv_chat", "version": "1", "platform": sys.platform, "mode": "client"}
    connection.ask("connect", minProtocol=1, maxProtocol=1, client=client, auth={"token": token})
    conversation, tools = Conversation(connection, session), None
    typing = None

    def send_input():
        for typed in sys.stdin:
            if typed.strip():
                conversation.send(typed.strip())

    for frame in connection.frames():
        if frame["type"] == "res" and not frame["ok"] and not typing:
            raise SystemExit(f"{frame['error']['code']} {frame['error']['message']}")
        elif frame["type"] == "res" and frame["id"] in conversation.sent:
            conversation.respond(frame)
            if conversation.open and not typing:
                typing = threading.Thread(target=send_input, daemon=True)
                typing.start()
        elif frame["type"] == "res" and tools is None:
            tools = connection.ask("tools.list")
        elif frame["type"] == "res" and frame["id"] == tools:
            names = sorted(tool["name"] for tool in frame["payload"]["tools"])
            print("tools of nodes:", ", ".join(name for name in names if not name.startswith("gsv__")) or "none")
            conversation.send(message)
        elif frame["type"] == "evt" and frame["event"] == "chat" and frame["payload"]["sessionKey"] == session:
            conversation.show(frame)
        if conversation.sent and not conversation.open:
            return
    raise ConnectionError


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    try:
        main(*sys.argv[1:])
    except ConnectionError:
        raise SystemExit("the gateway closed the connection") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
