// The console in a real browser: every page looked at, everything that can be decided decided, by mouse, keys and without script.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { Gateway } from "./gateway.mjs";

const require = createRequire(import.meta.url);
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const SHOTS = process.env.SHOTS ?? "shots";
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const SIZES = { light: { colorScheme: "light" }, dark: { colorScheme: "dark" }, phone: { colorScheme: "light", viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true } };

let browser;
let gateway;

before(async () => {
  mkdirSync(SHOTS, { recursive: true });
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ARGUMENTS });
  gateway = await Gateway.make();
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

/** A window. What its console complains of, or asks of another host, fails the test. */
async function open(path = "/console/", options = {}, at = gateway) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB", timezoneId: "UTC", bypassCSP: false, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.complaints = [];
  page.requests = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error" && !/status of (4\d\d|503)|ERR_|EventSource/.test(message.text())) page.complaints.push(message.text()); });
  page.on("request", (request) => page.requests.push(request.url()));
  await page.goto(at.url + path);
  return page;
}

async function close(page) {
  assert.deepEqual(page.complaints, []);
  const foreign = page.requests.filter((url) => !url.startsWith("data:") && new URL(url).hostname !== "127.0.0.1");
  assert.deepEqual(foreign, [], "nothing is asked of another host");
  await page.context().close();
}

/** What axe finds serious. */
async function check(page, name) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((one) => ["serious", "critical"].includes(one.impact));
  assert.deepEqual(serious.map((one) => ({ id: one.id, at: one.nodes.map((node) => node.html.slice(0, 160)) })), [], name);
}

/** A picture of a page in each of the sizes, and axe in each. */
async function look(path, name, at = gateway) {
  for (const [size, options] of Object.entries(SIZES)) {
    // axe is put into the page, which the console's own policy of contents forbids.
    const page = await open(path, { ...options, bypassCSP: true }, at);
    await page.waitForSelector("h1");
    await page.screenshot({ path: join(SHOTS, `${name}-${size}.png`), fullPage: true });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `${name} is ${wide} pixels too wide for ${size}`);
    const hidden = await page.evaluate(() => [...document.querySelectorAll(".scroll")].filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1).map((one) => one.getAttribute("aria-label")));
    if (size === "phone") assert.deepEqual(hidden, [], `${name}: nothing is to be found by scrolling sideways only`);
    await check(page, `${name} ${size}`);
    await close(page);
  }
}

/** Presses Tab until something is reached. */
async function tab(page, wanted) {
  await page.locator("#main").focus();
  for (let count = 0; count < 80; count += 1) {
    if (await page.evaluate((wanted) => document.activeElement.matches(wanted), wanted)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`${wanted} is not reached by Tab`);
}

const card = (page, id) => page.locator(`#${id}`);
const waits = (page, id) => page.waitForSelector(`#${id}[data-state=waiting]`);
const over = (page, id) => page.waitForSelector(`#${id}[data-state=over]`);

describe("the inbox", () => {
  test("shows what comes at once, and what is denied with a reason reaches the agent", async () => {
    const page = await open();
    assert.match(await page.locator("#lead").textContent(), /No pending approvals/);
    const { id, reply } = await gateway.ask("turn", { thing: "door\u202e", way: "open" });
    await waits(page, id);
    assert.equal(await page.title(), "(1) Inbox · Countersign");
    assert.match(await card(page, id).textContent(), /kitchen-pi wants to use turn/);
    assert.match(await card(page, id).textContent(), /\\u\{202e\}/);
    await look("/console/", "inbox");
    await look(`/console/gates/${id}`, "gate");
    await card(page, id).getByLabel("Reason for denying").fill("not while nobody is home");
    await card(page, id).getByRole("button", { name: "Deny" }).click();
    await over(page, id);
    assert.match(await card(page, id).textContent(), /Denied by a local user.*not while nobody is home/s);
    assert.match((await reply).out, /not while nobody is home|denied/i);
    await card(page, id).getByText("Dismiss").click();
    assert.equal(await page.locator(".card").count(), 0);
    assert.equal(await page.title(), "Inbox · Countersign");
    await close(page);
  });

  test("is answered with keys alone", async () => {
    const first = await gateway.raise("turn", { thing: "lamp", way: "on" });
    const { id: second, reply } = await gateway.ask("turn", { thing: "fan", way: "off" }, "printer");
    const page = await open();
    await waits(page, second);
    await page.keyboard.press("j");
    assert.equal(await page.evaluate(() => document.activeElement.id), first);
    await page.keyboard.press("j");
    assert.equal(await page.evaluate(() => document.activeElement.id), second);
    await page.keyboard.press("a");
    await over(page, second);
    assert.equal((await reply).code, 0);
    await page.keyboard.press("k");
    await page.keyboard.press("k");
    assert.equal(await page.evaluate(() => document.activeElement.id), first);
    await page.keyboard.press("d");
    await page.keyboard.type("no lamp now");
    await page.keyboard.press("Enter");
    await over(page, first);
    assert.match(await card(page, first).textContent(), /no lamp now/);
    await page.keyboard.press("?");
    await page.waitForSelector("#help[open]");
    await page.screenshot({ path: join(SHOTS, "keys.png") });
    await page.keyboard.press("Escape");
    await page.keyboard.press("g");
    await page.keyboard.press("r");
    await page.waitForURL("**/console/record");
    await close(page);
  });

  test("tells the second of two windows who was first", async () => {
    const id = await gateway.raise("turn", { thing: "heater", way: "on" });
    const [one, other] = [await open(), await open()];
    await Promise.all([waits(one, id), waits(other, id)]);
    // This window hears nothing more, and so still shows what waits.
    await other.evaluate(() => { window.stop(); });
    await other.context().setOffline(true);
    await card(one, id).getByRole("button", { name: "Allow once" }).click();
    await over(one, id);
    await other.context().setOffline(false);
    const late = await other.evaluate(async (id) => {
      const form = document.querySelector(`#${id} form.answer`);
      const fields = form ? new URLSearchParams(new FormData(form)) : new URLSearchParams();
      fields.set("answer", "deny");
      const answer = await fetch(`/console/gates/${id}`, { method: "POST", body: fields, headers: { "x-fragment": "1" } });
      return { status: answer.status, text: await answer.text() };
    }, id);
    assert.equal(late.status, 409);
    assert.match(late.text, /A local user was first: allowed once/);
    await over(other, id);
    await one.screenshot({ path: join(SHOTS, "race.png") });
    await close(one);
    await close(other);
  });

  test("two windows that answer in the same moment have one effect", async () => {
    const id = await gateway.raise("turn", { thing: "blind", way: "down" });
    const [one, other] = [await open(), await open()];
    await Promise.all([waits(one, id), waits(other, id)]);
    await Promise.all([
      card(one, id).getByRole("button", { name: "Allow once" }).click(),
      card(other, id).getByRole("button", { name: "Deny" }).click().catch(() => {}),
    ]);
    await Promise.all([over(one, id), over(other, id)]);
    const ends = await Promise.all([one, other].map((page) => card(page, id).locator(".outcome strong").textContent()));
    assert.equal(ends[0], ends[1]);
    await close(one);
    await close(other);
  });

  test("a card that is decided elsewhere stays where it is, and no click on it decides another", async () => {
    for (const thing of ["first", "second", "third"]) await gateway.raise("turn", { thing, way: "x" });
    const page = await open();
    const cards = page.locator(".card[data-state=waiting]");
    await cards.nth(2).waitFor();
    const ids = await cards.evaluateAll((all) => all.map((one) => one.id));
    const places = () => page.locator(".card").evaluateAll((all) => all.map((one) => [one.id, Math.round(one.getBoundingClientRect().top)]));
    const before = await places();
    const box = await card(page, ids[0]).getByRole("button", { name: "Allow once" }).boundingBox();
    await page.mouse.move(box.x + 20, box.y + 10);
    assert.equal(gateway.run("gates", "allow", ids[0]).code, 0);
    await over(page, ids[0]);
    assert.deepEqual(await places(), before, "nothing moved");
    await page.mouse.down();
    await page.mouse.up();
    // What comes while the pointer is on a card goes behind it, however urgent.
    const last = await gateway.raise("turn", { thing: "fourth", way: "x" }, "printer");
    await waits(page, last);
    assert.deepEqual((await places()).slice(0, 3), before, "nothing moved");
    assert.deepEqual(new Set(gateway.gates().map((gate) => gate.id)), new Set([ids[1], ids[2], last]), "one click decided nothing");
    // A button that moved under the pointer takes no click.
    const rests = await page.evaluate(([gone, next]) => {
      document.querySelector(`#${gone} .dismiss`).click();
      const button = document.querySelector(`#${next} button[value=once]`);
      const box = button.getBoundingClientRect();
      return { marked: button.classList.contains("moved"), hit: document.elementFromPoint(box.x + 5, box.y + 5) === button };
    }, [ids[0], ids[1]]);
    assert.deepEqual(rests, { marked: true, hit: false });
    await page.locator(`#${ids[1]} button[value=once]:not(.moved)`).waitFor();
    for (const id of [ids[1], ids[2], last]) {
      await card(page, id).getByRole("button", { name: "Allow once" }).click();
      await over(page, id);
    }
    await close(page);
  });

  test("several are decided by a bar that is in nobody's way on a phone", async () => {
    const ids = [await gateway.raise("turn", { thing: "p", way: "x" }), await gateway.raise("turn", { thing: "q", way: "x" }, "printer")];
    const page = await open("/console/", SIZES.phone);
    await waits(page, ids[1]);
    const place = () => page.locator("#several").evaluate((one) => getComputedStyle(one).position);
    assert.equal(await place(), "static");
    await page.locator("input.choose").first().check();
    assert.equal(await place(), "sticky");
    for (const id of ids) assert.equal(gateway.run("gates", "allow", id).code, 0);
    await close(page);
  });

  test("decides several at once", async () => {
    const ids = [await gateway.raise("turn", { thing: "a", way: "x" }), await gateway.raise("turn", { thing: "b", way: "x" })];
    const page = await open();
    await waits(page, ids[1]);
    await page.getByRole("button", { name: "Select all" }).click();
    await page.locator("#several").getByRole("button", { name: "Deny" }).click();
    await page.waitForURL(/done=/);
    for (const id of ids) await over(page, id);
    assert.equal(gateway.gates().length, 0);
    await close(page);
  });

  test("keeps what waits over a restart, in a window that stays open", async () => {
    const id = await gateway.raise("turn", { thing: "valve", way: "shut" });
    const page = await open();
    await waits(page, id);
    await gateway.restart();
    const next = await gateway.raise("turn", { thing: "pump", way: "off" }, "printer");
    await waits(page, next);
    await waits(page, id);
    for (const one of [id, next]) {
      await card(page, one).getByRole("button", { name: "Allow once" }).click();
      await over(page, one);
    }
    await close(page);
  });
});

describe("without script", () => {
  test("everything is read and decided by forms", async () => {
    const id = await gateway.raise("turn", { thing: "oven", way: "off" });
    const page = await open("/console/", { javaScriptEnabled: false });
    await page.screenshot({ path: join(SHOTS, "no-script.png"), fullPage: true });
    await card(page, id).getByLabel("Reason for denying").fill("it is hot");
    await card(page, id).getByRole("button", { name: "Deny" }).click();
    assert.match(page.url(), /done=gate_/);
    assert.match(await card(page, id).textContent(), /Denied.*it is hot/s);
    const late = await gateway.raise("turn", { thing: "gate", way: "open" });
    await page.goto(`${gateway.url}/console/`);
    assert.equal(gateway.run("gates", "deny", late).code, 0);
    await card(page, late).getByRole("button", { name: "Allow once" }).click();
    assert.match(await page.locator("main").textContent(), /The command line .* was first: denied/);
    for (const at of ["sessions", "record", "figures", "policy", "agents", "mcp"]) {
      await page.goto(`${gateway.url}/console/${at}`);
      assert.ok(await page.locator("h1").count(), at);
    }
    await close(page);
  });
});

describe("rules", () => {
  test("are chosen with their effect on the record shown, saved, and taken back", async () => {
    for (const thing of ["east", "west"]) {
      const id = await gateway.raise("turn", { thing, way: "up" });
      assert.equal(gateway.run("gates", "allow", id).code, 0);
    }
    const id = await gateway.raise("turn", { thing: "east", way: "down" });
    const page = await open();
    await waits(page, id);
    await card(page, id).getByRole("link", { name: "For longer…" }).click();
    await page.waitForURL(/#longer/);
    const choice = page.locator("label.offered", { hasText: "turn(east, *)" });
    assert.match(await choice.textContent(), /recorded calls? [1-9]\d* would be allowed/);
    await look(`/console/gates/${id}`, "gate-longer");
    await choice.locator("input").check();
    await page.getByLabel("Duration", { exact: true }).selectOption({ label: "one hour" });
    await page.getByRole("button", { name: "Allow and save" }).click();
    await page.waitForSelector(".outcome");
    assert.match(await page.locator(".outcome").textContent(), /Allowed always/);
    const { code } = await gateway.request("turn", { thing: "east", way: "left" });
    assert.equal(code, 0, "nobody is asked about what was granted");
    await look("/console/policy", "policy");
    await page.goto(`${gateway.url}/console/policy`);
    await page.getByRole("button", { name: /^Revoke: .*turn\(east/ }).click();
    await page.waitForURL(/done=revoked/);
    assert.match(await page.locator("main").textContent(), /No standing approvals\./);
    await close(page);
  });

  test("are explained, tried on the record, and read again", async () => {
    const page = await open("/console/policy");
    await page.getByLabel("Tool").fill("turn");
    await page.getByLabel(/^Arguments/).fill("thing=lock\nway=open");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.waitForURL(/explain/);
    assert.match(await page.locator("main").textContent(), /Denied.*by rule "turn\(lock\*"/s);
    await look(new URL(page.url()).pathname + new URL(page.url()).search, "explain");
    await page.goto(`${gateway.url}/console/try?pattern=turn(*)&action=deny`);
    assert.match(await page.locator("main").textContent(), /Of \d+ recorded calls \d+ would be allowed/);
    assert.match(await page.locator("pre.copy").textContent(), /pattern: "turn\(\*\)", action: deny/);
    await look("/console/try?pattern=turn(*)&action=deny", "try");
    await page.goto(`${gateway.url}/console/policy`);
    gateway.rules("rules: [ { pattern: 5 } ]\n");
    await page.getByRole("button", { name: "Reload", exact: true }).click();
    assert.match(await page.getByRole("alert").textContent(), /were not loaded.*permissions\.yaml/s);
    gateway.rules();
    await page.getByRole("button", { name: "Reload", exact: true }).click();
    assert.match(await page.locator(".told").textContent(), /in force/);
    await close(page);
  });
});

describe("rules that are edited", () => {
  test("are saved with their effect shown, from a card, with keys alone", async () => {
    for (const way of ["up", "down"]) {
      const id = await gateway.raise("turn", { thing: "north", way });
      assert.equal(gateway.run("gates", "allow", id).code, 0);
    }
    const before = gateway.text();
    const { id, reply } = await gateway.ask("turn", { thing: "north", way: "left" });
    const page = await open();
    await waits(page, id);
    await page.keyboard.press("j");
    await page.keyboard.press("l");
    await page.waitForURL(/console\/try\?of=gate_/);
    assert.equal(await page.locator("#pattern").inputValue(), "turn(north, *)");
    assert.equal(await page.locator("#principal").inputValue(), "kitchen-pi");
    assert.match(await page.locator(".fits").textContent(), /2 recorded calls: 2 would be allowed, 0 would need approval, 0 would be denied/);
    assert.match(await page.locator("#save").textContent(), /The rule allows the pending call/);
    await look(`/console/try?of=${id}`, "rule-always");
    await tab(page, "#pattern");
    await page.keyboard.press("Control+a");
    await page.keyboard.type("turn(north, up)");
    assert.ok(await page.getByRole("button", { name: "Save and allow the pending call" }).isDisabled(), "what was edited is not what was shown");
    await page.keyboard.press("Enter");
    await page.waitForURL(/pattern=/);
    assert.match(await page.locator("#save").textContent(), /The rule does not allow the pending call/);
    await tab(page, "#pattern");
    await page.keyboard.press("Control+a");
    await page.keyboard.type("turn(north*)");
    await page.keyboard.press("Enter");
    await page.getByText("The rule allows the pending call").waitFor();
    assert.equal(gateway.text(), before, "nothing is saved before that is asked for");
    await tab(page, "button[value=allow]");
    await page.keyboard.press("Enter");
    await page.locator(".told").waitFor();
    assert.match(await page.locator(".told").textContent(), /Rule saved in .*permissions\.yaml\. The rules are in force\..*The pending call was allowed\./s);
    await page.screenshot({ path: join(SHOTS, "rule-saved.png"), fullPage: true });
    assert.equal((await reply).code, 0);
    assert.equal(gateway.text(), `${before}  - { pattern: "turn(north*)", principal: "kitchen-pi", action: allow }\n`);
    assert.equal((await gateway.request("turn", { thing: "north", way: "right" })).code, 0, "it is in force");
    await page.goto(`${gateway.url}/console/record?kind=policy`);
    assert.match(await page.locator("table.entries").textContent(), /web:open edits the rules file: \+ - \{ pattern: "turn\(north\*\)"/);
    await page.goto(`${gateway.url}/console/policy`);
    await page.getByRole("link", { name: /^Remove ?: turn\(north\*\)$/ }).click();
    await page.getByRole("button", { name: "Remove and save" }).waitFor();
    assert.match(await page.locator("main").textContent(), /under the current rules: /);
    await look(new URL(page.url()).pathname + new URL(page.url()).search, "rule-out");
    await page.getByRole("button", { name: "Remove and save" }).click();
    await page.locator(".told").waitFor();
    assert.equal(gateway.text(), before);
    await close(page);
  });

  test("are saved without script, and not over a file that changed meanwhile", async () => {
    const page = await open("/console/figures", { javaScriptEnabled: false });
    await page.getByRole("link", { name: /^Create a rule ?: turn\(north, \*\)$/ }).click();
    await page.getByLabel("Action", { exact: true }).selectOption({ label: "Deny" });
    await page.getByLabel("Description (optional)").fill("the north stays as it is");
    await page.getByRole("button", { name: "Show its effect" }).click();
    assert.match(await page.locator(".fits").textContent(), /0 would be allowed, 0 would need approval, [34] would be denied/);
    gateway.rules(`# somebody else was here\n${gateway.text()}`);
    const other = gateway.text();
    await page.getByRole("button", { name: "Save this rule" }).click();
    assert.match(await page.getByRole("alert").textContent(), /Nothing was saved: the rules file has changed/);
    assert.equal(gateway.text(), other);
    await page.screenshot({ path: join(SHOTS, "rule-changed.png"), fullPage: true });
    await page.getByRole("button", { name: "Save this rule" }).click();
    assert.match(await page.locator(".told").textContent(), /The rules are in force/);
    assert.match(gateway.text(), /pattern: "turn\(north, \*\)", principal: "kitchen-pi", action: deny, description: "the north stays as it is"/);
    const denied = await gateway.request("turn", { thing: "north", way: "up" });
    assert.match(denied.out, /denied/i);
    await page.goto(`${gateway.url}/console/try?pattern=look(&action=allow`);
    assert.match(await page.locator("main").textContent(), /This cannot be saved.*permissions\.yaml:\d+: "look\(" matches nothing/s);
    await look("/console/try?pattern=look(&action=allow", "rule-refused");
    await page.goto(`${gateway.url}/console/try?pattern=turn(north,+up)&principal=kitchen-pi&action=allow`);
    assert.match(await page.locator("main").textContent(), /The rule would have no effect.*turn\(north, \*\).*takes precedence/s);
    await look("/console/try?pattern=turn(north,+up)&principal=kitchen-pi&action=allow", "rule-void");
    gateway.rules();
    await page.goto(`${gateway.url}/console/policy`);
    await page.getByRole("button", { name: "Reload", exact: true }).click();
    await close(page);
  });

  test("are changed as they are written where fields cannot say all of them", async () => {
    const written = (args, action) => `rules:\n  # blinds\n  - tool: turn\n    args:${args}\n    action: ${action}\n`;
    gateway.rules(written(" { way: up } # never down", "ask"));
    const page = await open("/console/policy", { javaScriptEnabled: false });
    await page.getByRole("button", { name: "Reload", exact: true }).click();
    await page.getByRole("link", { name: /^Edit ?: turn \{"way":"up"\}/ }).click();
    const field = page.getByLabel("Rule in line 3 of the file");
    assert.equal(await field.inputValue(), "tool: turn\nargs: { way: up } # never down\naction: ask");
    await field.fill("tool: turn\nargs:\n  way: { in: [up, down] } # both\naction: deny");
    await page.getByRole("button", { name: "Show its effect" }).click();
    assert.match(await page.locator("pre.copy").textContent(), /-     args: \{ way: up \} # never down.*\+       way: \{ in: \[up, down\] \} # both/s);
    await look(new URL(page.url()).pathname + new URL(page.url()).search, "rule-written");
    await page.getByRole("button", { name: "Save this rule" }).click();
    assert.match(await page.locator(".told").textContent(), /The rules are in force/);
    assert.equal(gateway.text(), written("\n      way: { in: [up, down] } # both", "deny"));
    const denied = await gateway.request("turn", { thing: "roof", way: "down" });
    assert.match(denied.out, /denied/i);
    gateway.rules();
    await page.getByRole("button", { name: "Reload", exact: true }).click();
    await close(page);
  });
});

describe("what waits", () => {
  test("is counted in the title, and told by the browser while the window is not seen", async () => {
    const page = await open();
    await page.addInitScript(() => {
      window.told = [];
      window.Notification = class {
        static permission = "default";
        static async requestPermission() { this.permission = "granted"; return this.permission; }
        // As a browser's: what nobody allowed is made, and shown to nobody.
        constructor(title, options) {
          Object.assign(this, { title }, options);
          if (window.Notification.permission === "granted") window.told.push(this);
        }
        close() {}
      };
    });
    await page.reload();
    await page.getByRole("button", { name: "Notify me" }).click();
    assert.ok(await page.locator("#notify").isHidden());
    const seen = await gateway.raise("turn", { thing: "bell", way: "on" });
    await waits(page, seen);
    assert.equal(await page.title(), "(1) Inbox · Countersign");
    assert.equal(await page.evaluate(() => window.told.length), 0, "whoever looks need not be told");
    await page.evaluate(() => { Object.defineProperty(document, "hidden", { get: () => true }); });
    const unseen = await gateway.raise("turn", { thing: "bell", way: "off" }, "printer");
    await waits(page, unseen);
    assert.equal(await page.title(), "(2) Inbox · Countersign");
    const told = await page.evaluate(() => window.told.map(({ title, body, tag }) => ({ title, body, tag })));
    assert.deepEqual(told, [{ title: "Approval needed", body: "printer wants to use turn", tag: unseen }]);
    await page.evaluate(() => { window.told[0].onclick(); });
    await page.waitForURL(`**/console/gates/${unseen}`);
    for (const [id, count] of [[unseen, 1], [seen, 0]]) {
      assert.equal(gateway.run("gates", "deny", id).code, 0);
      await page.waitForFunction((count) => count ? document.title.startsWith(`(${count}) `) : !document.title.startsWith("("), count);
    }
    await close(page);
  });
});

describe("sessions", () => {
  test("a chat is started, asks, edits, is decided about and goes on", async () => {
    const page = await open("/console/sessions");
    await page.getByText("New session").click();
    await page.getByLabel("Message").fill("edit the greeting");
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/sessions\/[0-9a-f]{12}/);
    const inbox = await open();
    await inbox.waitForSelector(".card[data-state=waiting]");
    const id = await inbox.locator(".card[data-state=waiting]").getAttribute("id");
    assert.match(await card(inbox, id).locator(".diff .gone").textContent(), /\$nmae/);
    assert.match(await card(inbox, id).locator(".diff .come").textContent(), /\$name/);
    await look("/console/", "inbox-edit");
    await card(inbox, id).getByRole("button", { name: "Allow once" }).click();
    await over(inbox, id);
    await page.getByText(/That is done\. 1 results/).waitFor();
    await page.getByText("Thinking").first().waitFor();
    await page.locator("#transcript").getByText(/That is done\. 1 results/).waitFor();
    assert.match(await page.locator("#transcript").textContent(), /Allowed once by a local user/);

    await page.getByLabel("Message").fill("which colour?");
    await page.getByRole("button", { name: "Send" }).click();
    await inbox.waitForSelector(".card[data-state=waiting]");
    const question = await inbox.locator(".card[data-state=waiting]").getAttribute("id");
    await look("/console/", "inbox-question");
    await inbox.getByText("Blue").click();
    await card(inbox, question).getByRole("button", { name: "Answer" }).click();
    await over(inbox, question);
    assert.match(await card(inbox, question).textContent(), /Answered.*Blue/s);
    await page.getByText(/2 results so far/).waitFor();

    await page.getByLabel("Message").fill("run rm -rf ~");
    await page.getByRole("button", { name: "Send" }).click();
    await inbox.waitForSelector(".card[data-state=waiting]");
    const floor = inbox.locator(".card[data-state=waiting]");
    assert.equal(await floor.getByRole("button", { name: "For the session" }).count(), 0, "the floor offers once and deny");
    await floor.getByRole("button", { name: "Deny" }).click();
    await page.getByText(/3 results so far/).waitFor();
    await look(new URL(page.url()).pathname, "session");
    await look("/console/sessions", "sessions");
    await close(inbox);
    await close(page);
  });

  test("what is said is seen as it comes, and a run is stopped", async () => {
    const page = await open("/console/sessions");
    await page.getByText("New session").click();
    await page.getByLabel("Message").fill("a slow one");
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/sessions\/[0-9a-f]{12}/);
    await page.locator("#live").getByText(/word word word/).waitFor();
    await page.screenshot({ path: join(SHOTS, "session-live.png") });
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Send" }).waitFor();
    await page.getByLabel("Model").selectOption("local/small-2");
    await page.getByRole("button", { name: "Use" }).click();
    await page.locator("#state").getByText("local/small-2").waitFor();
    await close(page);
  });
});

describe("lists", () => {
  test("follow what happens, and what waits to be said is shown and taken back", async () => {
    const [list, record] = [await open("/console/sessions"), await open("/console/record")];
    const page = await open("/console/sessions");
    await page.getByText("New session").click();
    await page.getByLabel("Message").fill("a slow one that lists follow");
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/sessions\/[0-9a-f]{12}/);
    const session = page.url().slice(-12);
    await page.getByRole("button", { name: "Steer" }).waitFor();
    await page.getByLabel("Guidance for the running agent").fill("to the left");
    await page.getByRole("button", { name: "Steer" }).click();
    await page.locator("#queued").getByText("to the left").waitFor();
    await page.screenshot({ path: join(SHOTS, "session-queued.png") });
    await page.getByRole("button", { name: "Stop" }).click();
    await page.waitForURL(/back=/);
    assert.equal(await page.locator("#message").inputValue(), "to the left");
    assert.equal(await page.locator("#queued").count(), 0);
    await list.getByRole("link", { name: "a slow one that lists follow" }).waitFor();
    await record.locator("#entries").getByText(session).first().waitFor();
    for (const one of [page, list, record]) await close(one);
  });
});

describe("the record", () => {
  test("is searched, checked, drawn, and followed from request to outcome", async () => {
    const page = await open("/console/record");
    await page.getByRole("button", { name: "Verify the chain" }).click();
    assert.match(await page.locator(".told").textContent(), /Chain verified: \d+ entr(y|ies),/);
    await page.goto(`${gateway.url}/console/record`);
    await page.getByLabel("Text", { exact: true }).fill("not while nobody is home");
    await page.getByRole("button", { name: "Search" }).click();
    assert.ok(await page.locator("tbody tr").count() >= 1);
    await page.getByRole("link", { name: /^Details/ }).first().click();
    await page.waitForURL(/record\/(gate|call)_/);
    const text = await page.locator("main").textContent();
    for (const part of ["requested", "waiting for an approver", "not while nobody is home"]) assert.ok(text.includes(part), part);
    await look(new URL(page.url()).pathname, "decision");
    await look("/console/record", "record");
    await look("/console/figures", "figures");
    await look("/console/agents", "agents");
    await page.goto(`${gateway.url}/console/figures`);
    assert.match(await page.locator("main").textContent(), /kitchen-pi/);
    await look("/console/sessions/agent%3Akitchen-pi", "agent");
    await close(page);
  });
});

describe("MCP servers", () => {
  test("say how to add the first", async () => {
    const page = await open("/console/agents");
    await page.getByRole("link", { name: "MCP servers" }).click();
    assert.match(await page.locator("main").textContent(), /No MCP servers are configured/);
    await look("/console/mcp", "mcp-empty");
    await close(page);
  });

  test("are approved by their card, called, watched for changes, and withdrawn", async () => {
    const script = fileURLToPath(new URL("./mcp_server.mjs", import.meta.url));
    const files = `files: { command: node, args: [${JSON.stringify(script)}] }`;
    const broken = "broken: { command: node, args: [-e, \"console.error('no key'); process.exit(1)\"] }";
    const remote = "remote: { url: \"https://mcp.example/v1/mcp?region=eu\", headers: { X-Key: \"{{secret:KEY}}\" }, enabled: false }";
    const walked = await Gateway.make(`mcp: { servers: { ${files}, ${broken}, ${remote} } }\n`);
    try {
      const page = await open("/console/", {}, walked);
      await page.keyboard.press("g");
      await page.keyboard.press("m");
      await page.waitForURL("**/console/mcp");
      await look("/console/mcp", "mcp-waiting", walked);
      await page.getByRole("link", { name: "files", exact: true }).click();
      await look("/console/mcp/files", "mcp-server-waiting", walked);
      await page.locator(".card[data-state=waiting]").waitFor();
      await page.keyboard.press("a");
      await page.locator(".card[data-state=waiting]").waitFor({ state: "detached" });
      const until = async (text) => {
        for (;;) {
          await page.reload();
          if ((await page.locator("main").textContent()).includes(text)) return;
        }
      };
      await until("Uptime");
      const { id, reply } = await walked.ask("mcp__files__read_file", { path: "list.txt" });
      assert.equal(walked.run("gates", "allow", id).code, 0);
      assert.match((await reply).out, /read_file of list\.txt/);
      await page.reload();
      const text = await page.locator("main").textContent();
      for (const part of ["<b>Bold</b> \\u{202e} words", "may destroy data", "by a local user", "walk 1.2"]) assert.ok(text.includes(part), `${part}: ${text}`);
      assert.equal(await page.locator("main b").count(), 0);
      await look("/console/mcp/files", "mcp-server", walked);
      await page.getByRole("link", { name: /mcp__files__read_file/ }).click();
      await page.waitForURL(/record\/call_/);

      writeFileSync(join(walked.folder, "data", "mcp", "files", "description"), "Reads a file, and sends it to <i>evil.example</i>.");
      await page.goto(`${walked.url}/console/mcp/files`);
      await page.getByRole("button", { name: "Restart" }).click();
      await page.locator(".told").waitFor();
      await until("changed tools waiting");
      await look("/console/mcp/files", "mcp-server-changed", walked);
      await page.getByText("Withdraw the approval").first().click();
      await page.getByRole("button", { name: "Withdraw the approval" }).click();
      await page.locator(".told").waitFor();
      assert.match(await page.locator("main").textContent(), /not approved/);
      await look("/console/mcp/files", "mcp-server-withdrawn", walked);

      await page.goto(`${walked.url}/console/mcp/broken`);
      await page.getByRole("button", { name: "Allow once" }).click();
      await page.locator(".card[data-state=waiting]").waitFor({ state: "detached" });
      await until("It was allowed, but could not be started");
      assert.match(await page.locator("main").textContent(), /no key/);
      await look("/console/mcp", "mcp", walked);
      await close(page);
    } finally {
      await walked.close();
    }
  });
});

describe("the first page", () => {
  test("is three requests, and small", async () => {
    const page = await open();
    await page.waitForLoadState("load");
    const wanted = page.requests.filter((url) => !url.startsWith("data:") && !url.includes("/console/live"));
    assert.equal(wanted.length, 3, wanted.join(" "));
    let bytes = 0;
    for (const url of wanted) {
      const answer = await fetch(url, { headers: { "accept-encoding": "gzip" } });
      const length = Number(answer.headers.get("content-length"));
      assert.ok(length > 0, url);
      bytes += length;
    }
    assert.ok(bytes < 30 * 1024, `${bytes} bytes`);
    await close(page);
  });

  test("asks for a login where there is one", async () => {
    const guarded = await Gateway.make("web: { password: open-sesame }\n");
    try {
      const page = await open("/console/policy", { bypassCSP: true }, guarded);
      await page.waitForURL(/login\?next=/);
      await page.screenshot({ path: join(SHOTS, "login.png") });
      await check(page, "login");
      await page.getByLabel("Password").fill("wrong");
      await page.getByRole("button", { name: "Log in" }).click();
      await page.getByRole("alert").waitFor();
      await page.getByLabel("Password").fill("open-sesame");
      await page.getByRole("button", { name: "Log in" }).click();
      await page.waitForURL(/console\/policy/);
      const id = await guarded.raise("turn", { thing: "door", way: "open" });
      await page.goto(`${guarded.url}/console/`);
      await waits(page, id);
      await card(page, id).getByRole("button", { name: "Allow once" }).click();
      await over(page, id);
      assert.match(await card(page, id).textContent(), /by a console user/);
      // A card that came by itself knows the window's token.
      const next = await guarded.raise("turn", { thing: "door", way: "shut" });
      await waits(page, next);
      await card(page, next).getByRole("button", { name: "Deny" }).click();
      await over(page, next);
      await page.getByRole("button", { name: "Log out" }).click();
      await page.waitForURL(/login/);
      await close(page);
    } finally {
      await guarded.close();
    }
  });
});
