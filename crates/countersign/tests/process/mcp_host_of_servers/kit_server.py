"""An MCP server with the kinds of tools that the conformance suites call."""
import json
import sys

PLAIN = {"type": "object", "properties": {}}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {"address": {"$ref": "#/$defs/address"}, "phone": {"type": "string"}, "email": {"type": "string"}},
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"phone": {"const": "none"}}},
    "then": {"required": ["email"]},
    "else": {"required": ["phone"]},
    "additionalProperties": False,
}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
RESULTS = {
    "text": {"type": "text", "text": "words"},
    "image": {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
    "broken": {"type": "text", "text": "it broke"},
    "schema": {"type": "text", "text": "words"},
    "region": {"type": "text", "text": "words"},
}
SCHEMAS = {"schema": SCHEMA, "region": REGION}


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        info = {"name": "kit", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        tools = [
            {"name": name, "description": "A tool of the kit.", "inputSchema": SCHEMAS.get(name, PLAIN)}
            for name in RESULTS
        ]
        return {"tools": tools}
    if method == "tools/call":
        return {"content": [RESULTS[params["name"]]], "isError": params["name"] == "broken"}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request)
    outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
