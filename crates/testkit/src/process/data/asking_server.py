"""An MCP server whose tools ask a person: `open_door` for a name, `log_in` to open an address.

Each result is what the person answered, as JSON. Each call is written to `calls`.
"""
import json
import sys

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "title": "Your name"}, "hours": {"type": "integer", "minimum": 1}},
    "required": ["name", "hours"],
}
FORM = {"mode": "form", "message": "Who opens the door?", "requestedSchema": SCHEMA}
ADDRESS = {"mode": "url", "message": "Log in", "url": "https://login.example/start?x=1", "elicitationId": "e1"}
NO_ARGUMENTS = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "log_in", "description": "Log in.", "inputSchema": NO_ARGUMENTS},
    {"name": "open_door", "description": "Open a door.", "inputSchema": NO_ARGUMENTS},
]
open_calls = {}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method is None and message["id"] in open_calls:
        content = [{"type": "text", "text": json.dumps(message["result"], sort_keys=True)}]
        send({"id": open_calls.pop(message["id"]), "result": {"content": content}})
    elif method == "initialize":
        with open("capabilities", "w", encoding="utf-8") as file:
            json.dump(params["capabilities"], file)
        info = {"name": "asking", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": message["id"], "result": result})
    elif method == "tools/list":
        send({"id": message["id"], "result": {"tools": TOOLS}})
    elif method == "tools/call":
        with open("calls", "a", encoding="utf-8") as calls:
            calls.write(params["name"] + "\n")
        question = f"q{message['id']}"
        open_calls[question] = message["id"]
        asked = ADDRESS if params["name"] == "log_in" else FORM
        send({"id": question, "method": "elicitation/create", "params": asked})
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})
