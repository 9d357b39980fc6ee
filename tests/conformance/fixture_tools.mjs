// Tools that the conformance suites call. The gateway offers them as those of any MCP server: approved, allowed by a rule, and called
// through its own client.

// One red pixel, and a tenth of a second of silence.
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

const NO_ARGUMENTS = { type: "object", properties: {} };
const pause = () => new Promise((go) => { setTimeout(go, 50); });
const text = (words) => ({ type: "text", text: words });
const image = { type: "image", data: PNG, mimeType: "image/png" };
const resource = (uri, mimeType, words) => ({ type: "resource", resource: { uri, mimeType, text: words } });

// Each has a description, a schema, and the content of its result. `host` sends messages to the gateway during a call.
export const TOOLS = {
  test_simple_text: {
    description: "Returns a text",
    call: () => [text("This is a simple text response for testing.")],
  },
  test_image_content: { description: "Returns an image", call: () => [image] },
  test_audio_content: {
    description: "Returns audio",
    call: () => [{ type: "audio", data: WAV, mimeType: "audio/wav" }],
  },
  test_embedded_resource: {
    description: "Returns a resource",
    call: () => [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")],
  },
  test_multiple_content_types: {
    description: "Returns a text, an image and a resource",
    call: () => [
      text("Multiple content types test:"),
      image,
      resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
  },
  test_error_handling: {
    description: "Fails",
    call: () => { throw new Error("This tool intentionally returns an error for testing"); },
  },
  test_tool_with_progress: {
    description: "Reports its progress",
    call: async (host) => {
      for (const progress of [0, 50, 100]) {
        host.notify("notifications/progress", { progressToken: host.progressToken, progress, total: 100 });
        await pause();
      }
      return [text("done")];
    },
  },
  test_logging_tool: {
    description: "Writes to the log of its client",
    call: (host) => {
      host.notify("notifications/message", { level: "info", data: "a line of the log" });
      return [text("logged")];
    },
  },
  test_streaming_elicitation: {
    description: "Requests input from its client, and waits for no answer",
    call: async (host) => {
      host.request("elicitation/create", {
        message: "Which colour?",
        requestedSchema: { type: "object", properties: { colour: { type: "string" } } },
      });
      await pause();
      return [text("requested")];
    },
  },
  // The proxy changes the list of the gateway before this call.
  test_trigger_tool_change: { description: "Marks a change of the list", call: () => [text("changed")] },
  test_custom_header: {
    description: "Has an argument that is a header too",
    schema: {
      type: "object",
      properties: { region: { type: "string", "x-mcp-header": "Region" }, query: { type: "string" } },
      required: ["region"],
    },
    call: () => [text("called")],
  },
  json_schema_2020_12_tool: {
    description: "Tool with JSON Schema 2020-12 features",
    schema: {
      $schema: "https://json-schema.org/draft/2020-12/schema",
      type: "object",
      $defs: {
        address: {
          $anchor: "addressDef",
          type: "object",
          properties: { street: { type: "string" }, city: { type: "string" } },
        },
      },
      properties: {
        name: { type: "string" },
        address: { $ref: "#/$defs/address" },
        contactMethod: { type: "string", enum: ["phone", "email"] },
        phone: { type: "string" },
        email: { type: "string" },
      },
      allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
      if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
      then: { required: ["phone"] },
      else: { required: ["email"] },
      additionalProperties: false,
    },
    call: () => [text("called")],
  },
};

// The definitions as `tools/list` has them.
export const definitions = (tools) => Object.entries(tools).map(([name, { description, schema }]) => (
  { name, description, inputSchema: schema ?? NO_ARGUMENTS }
));

// A tool of a second server, which the proxy approves and revokes to change the list.
export const SPARE_TOOLS = { spare: { description: "Returns a text", call: () => [text("spare")] } };
