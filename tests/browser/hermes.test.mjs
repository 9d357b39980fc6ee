// The front end of hermes, unmodified, in a real browser: every control that it shows is used, and none of them fails. HERMES_WEBUI names
// a copy of it, which is no part of this repository.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

import { Gateway } from "./gateway.mjs";

const SHOTS = process.env.SHOTS ?? "shots";
const WEBUI = process.env.HERMES_WEBUI;
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

let browser;
let gateway;
let page;

before(async () => {
  mkdirSync(SHOTS, { recursive: true });
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ARGUMENTS });
  gateway = await Gateway.make("", ["--webui", WEBUI]);
  writeFileSync(join(gateway.folder, "data", "agents", "main", "note.txt"), "one\ntwo\n");
  page = await open();
});
after(async () => {
  await browser?.close();
  await gateway?.close();
});

/** A window that notes what goes wrong: errors of the page, refused requests, and messages in red. */
async function open() {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB", acceptDownloads: true });
  const opened = await context.newPage();
  opened.setDefaultTimeout(15_000);
  opened.wrong = [];
  opened.asked = new Set();
  // Libraries that the front end would load from elsewhere are not part of this walk.
  await opened.route((url) => url.hostname !== "127.0.0.1", (route) => route.abort());
  opened.on("pageerror", (error) => opened.wrong.push(`page: ${error}`));
  opened.on("response", (response) => {
    const url = new URL(response.url());
    if (url.hostname !== "127.0.0.1") return;
    opened.asked.add(`${response.request().method()} ${url.pathname}`);
    if (response.status() >= 400) opened.wrong.push(`${response.status()} ${response.request().method()} ${url.pathname}${url.search}`);
  });
  await opened.exposeFunction("noteRed", (text) => opened.wrong.push(`in red: ${text}`));
  await opened.addInitScript(() => {
    addEventListener("DOMContentLoaded", () => {
      const toast = document.getElementById("toast");
      if (!toast) return;
      new MutationObserver(() => {
        if (toast.classList.contains("show") && toast.classList.contains("error")) window.noteRed(toast.dataset.toastMessage);
      }).observe(toast, { attributes: true });
    });
  });
  await opened.goto(gateway.url);
  await opened.waitForSelector("#msg");
  return opened;
}

/** Nothing has gone wrong since. A picture is taken for people to look at. */
async function fine(name) {
  await page.waitForTimeout(400);
  await page.screenshot({ path: join(SHOTS, `hermes-${name}.png`) });
  const wrong = page.wrong.splice(0);
  assert.deepEqual(wrong, [], name);
}

const idle = () => page.waitForFunction(() => !S.busy && !S.activeStreamId);
const session = () => page.evaluate(() => S.session?.session_id);
const said = () => page.evaluate(() => S.messages.filter((one) => one.role !== "tool").map((one) => one.content));
const load = (id) => page.evaluate(async (id) => (await (await fetch(`/api/session?session_id=${id}`)).json()).session, id);

async function say(text) {
  await page.locator("#msg").fill(text);
  await page.locator("#btnSend").click();
}

async function exchange(text) {
  const count = (await page.evaluate(() => S.messages.length));
  await say(text);
  await page.waitForFunction((count) => S.messages.length > count && !S.busy && S.messages.at(-1).role === "assistant", count);
  await idle();
}

async function fresh() {
  await page.locator("#btnNewChat").click();
  await page.waitForFunction(() => S.messages.length === 0);
}

/** Uses an entry of the menu of the conversation that is open. */
async function menu(label) {
  const row = page.locator(".session-item.active").first();
  await row.hover();
  await row.locator(".session-actions-trigger").click();
  await page.locator(".session-action-menu").getByText(label, { exact: true }).dispatchEvent("click");
}

const confirm = () => page.locator("#appDialogConfirm").click();
const card = async (command) => {
  await page.waitForFunction((command) => document.getElementById("approvalCard").classList.contains("visible") && document.getElementById("approvalCmd").textContent.includes(command), command);
};

test("it opens without a word in red, and shows no control of what is not here", async () => {
  await page.waitForTimeout(1500);
  const tabs = await page.locator(".rail .nav-tab:visible, .rail-btn:visible").evaluateAll((all) => all.map((one) => one.dataset.panel));
  assert.deepEqual([...new Set(tabs)].sort(), ["chat", "settings"]);
  for (const hidden of ["#btnAttach", "#btnMic", "#btnSavedPrompts", "#profileChip", ".project-bar"]) {
    assert.equal(await page.locator(hidden).locator("visible=true").count(), 0, hidden);
  }
  await fine("open");
});

test("a turn is read, its answer asked for again, and its message changed", async () => {
  await exchange("good morning");
  assert.deepEqual(await said(), ["good morning", "Hello. I am the model of the tests."]);
  await fine("answer");
  await page.locator(".assistant-turn, .msg-row").last().hover();
  const before = await page.evaluate(() => S.messages[1].id);
  await page.locator('.msg-action-btn[title="Regenerate response"]').last().click({ force: true });
  // Another answer than the one that was there when it was clicked.
  await page.waitForFunction((before) => !S.busy && S.messages.length === 2 && S.messages[1].role === "assistant" && S.messages[1].id !== before, before);
  await idle();
  await fine("again");
  await page.locator('.msg-action-btn[title="Edit message"]').last().click({ force: true });
  await page.locator(".msg-edit-area").fill("good evening");
  await page.locator(".msg-edit-send").click();
  await page.waitForFunction(() => S.messages[0]?.content === "good evening" && !S.busy && S.messages.length === 2);
  await idle();
  await fine("changed");
  assert.deepEqual((await load(await session())).messages.map((one) => one.content)[0], "good evening");
});

test("a card says its command once, and what was done is shown with its arguments", async () => {
  await fresh();
  await say("edit it");
  await card("greet.sh");
  await fine("card");
  await page.locator("#approvalBtnOnce").click();
  await idle();
  await page.waitForFunction(() => S.messages.at(-1)?.role === "assistant" && !S.busy);
  assert.match(readFileSync(join(gateway.folder, "data", "agents", "main", "greet.sh"), "utf8"), /\$name/);
  await fine("edited");
  await page.reload();
  await page.waitForFunction(() => S.messages?.length > 2);
  await fine("edited-loaded");
});

test("a denial is told, binds its conversation, and no other", async () => {
  await fresh();
  await say("run echo hi");
  await card("echo hi");
  const shown = await page.evaluate(() => ["approvalDesc", "approvalCmd"].map((id) => document.getElementById(id).textContent).join(" "));
  assert.equal(shown.split("echo hi").length - 1, 1, shown);
  await page.locator("#approvalBtnDeny").click();
  await page.waitForFunction(() => !S.busy && S.messages.at(-1)?.role === "assistant" && S.messages.length > 2);
  await idle();
  const count = await page.evaluate(() => S.messages.length);
  await say("run echo hi");
  await page.waitForFunction((count) => !S.busy && S.messages.length > count + 1 && S.messages.at(-1).role === "assistant", count);
  await idle();
  await fine("denied");
  await fresh();
  await say("run echo hi");
  await card("echo hi");
  await page.locator("#approvalBtnOnce").click();
  await page.waitForFunction(() => !S.busy && S.messages.length > 2 && S.messages.at(-1).role === "assistant");
  await idle();
  await fine("allowed");
});

test("arguments that are lists and objects do not break the page", async () => {
  await fresh();
  await say("colour");
  await page.locator("#clarifyCard.visible, #clarifyChoices button").first().waitFor();
  await fine("question");
  await page.locator("#clarifyChoices button").first().dispatchEvent("click");
  await page.waitForFunction(() => !S.busy && S.messages.at(-1)?.role === "assistant" && S.messages.length > 2);
  await idle();
  await page.reload();
  await page.waitForFunction(() => S.messages?.length > 2);
  await fine("answered");
});

test("a conversation is renamed, pinned, copied, put away, exported and deleted", async () => {
  await fresh();
  await exchange("a thing to keep");
  const id = await session();
  await menu("Rename conversation");
  await page.locator(".session-title-input, .session-item input").first().fill("kept");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => S.session.title === "kept");
  await menu("Pin conversation");
  await page.waitForFunction(() => S.session.pinned);
  await menu("Regenerate title");
  await page.waitForFunction(() => S.session.title === "a thing to keep");
  const [file] = await Promise.all([page.waitForEvent("download"), menu("Export as HTML")]);
  assert.match(readFileSync(await file.path(), "utf8"), /a thing to keep/);
  await menu("Duplicate conversation");
  await page.waitForFunction((id) => S.session.session_id !== id && /\(copy\)/.test(S.session.title), id);
  await fine("copied");
  await menu("Archive conversation");
  await page.waitForTimeout(500);
  await fine("archived");
  await page.evaluate((id) => loadSession(id), id);
  await page.waitForFunction((id) => S.session?.session_id === id, id);
  await menu("Delete conversation");
  await confirm();
  await page.waitForFunction((id) => S.session?.session_id !== id, id);
  const listed = await page.evaluate(async () => (await (await fetch("/api/sessions")).json()).sessions.map((one) => one.session_id));
  assert.ok(!listed.includes(id));
  await fine("deleted");
});

test("branch, undo, retry and compress work on the conversation", async () => {
  await fresh();
  await exchange("first");
  await exchange("second");
  const id = await session();
  await page.locator('.msg-action-btn[title="Fork from here"]').nth(1).click({ force: true });
  await page.waitForFunction((id) => S.session.session_id !== id && S.messages.length === 2, id);
  await fine("forked");
  await page.evaluate((id) => loadSession(id), id);
  await page.waitForFunction((id) => S.session.session_id === id && S.messages.length === 4, id);
  await say("/undo");
  await page.waitForFunction(() => S.messages.length === 2);
  assert.equal((await load(id)).messages.length, 2);
  await fine("undone");
  await say("/retry");
  await page.waitForFunction(() => !S.busy && S.messages.length === 2 && S.messages.at(-1).role === "assistant");
  await idle();
  await fine("retried");
  for (const number of [1, 2]) await exchange(`${number} ${"a long story ".repeat(9000)}`);
  await say("/compress");
  await page.waitForFunction(async (id) => {
    const told = await (await fetch(`/api/session/compress/status?session_id=${id}`)).json();
    return told.status === "done" && !S.busy && !/Compressing/.test(document.getElementById("messages").innerText);
  }, id, { timeout: 30_000, polling: 500 });
  await fine("compressed");
});

test("what was said is found, and what was begun to be written is kept", async () => {
  await page.locator("#sessionSearch").fill("model of the tests");
  await page.waitForTimeout(1200);
  await fine("found");
  assert.ok(page.asked.has("GET /api/sessions/search"));
  await page.locator("#sessionSearch").fill("");
  await fresh();
  await exchange("hello");
  const id = await session();
  await page.locator("#msg").fill("half a thought");
  await page.waitForResponse((response) => response.url().includes("/api/session/draft"));
  await page.evaluate(() => localStorage.clear());
  await page.goto(`${gateway.url}/session/${id}`);
  await page.waitForFunction(() => document.getElementById("msg").value === "half a thought");
  await page.locator("#msg").fill("");
  await page.waitForTimeout(600);
  await fine("draft");
});

test("the model and its effort are chosen", async () => {
  await page.locator("#composerModelChip").click();
  await page.locator("#composerModelDropdown .model-opt").filter({ hasText: "small-2" }).first().click();
  await page.waitForFunction(() => S.session.model === "small-2");
  const id = await session();
  await page.waitForTimeout(500);
  assert.equal((await load(id)).model, "small-2");
  await fine("model");
  await page.locator("#composerModelChip").click();
  await page.locator("#composerModelDropdown .model-opt").filter({ hasText: "small-1" }).first().click();
  await page.waitForFunction(() => S.session.model === "small-1");
  await page.locator("#composerReasoningChip").click();
  await page.locator('.reasoning-option[data-effort="high"]').click();
  await page.waitForTimeout(500);
  assert.equal((await page.evaluate(async () => (await fetch("/api/reasoning")).json())).reasoning_effort, "high");
  await fine("effort");
});

test("files of the workspace are listed and read", async () => {
  await page.locator("#btnWorkspacePanelEdgeToggle:visible, #btnWorkspacePanelToggle:visible").first().click();
  await page.locator(".file-item").filter({ hasText: "note.txt" }).click();
  await page.waitForFunction(() => document.body.innerText.includes("two"));
  await fine("file");
  for (const hidden of ["#btnNewFile", "#btnNewFolder", "#btnUploadWorkspace", "#btnEditFile", ".file-del-btn"]) {
    assert.equal(await page.locator(hidden).locator("visible=true").count(), 0, hidden);
  }
  await page.locator("#btnClearPreview").click();
});

test("every section of the settings opens, and what is set is kept", async () => {
  await page.locator('.rail .nav-tab[data-panel="settings"]:visible, .rail-btn[data-panel="settings"]:visible').first().click();
  const sections = await page.locator(".side-menu-item[data-settings-section]:visible").evaluateAll((all) => all.map((one) => one.dataset.settingsSection));
  assert.deepEqual(sections, ["conversation", "appearance", "preferences", "system", "help"]);
  for (const section of sections) {
    await page.locator(`.side-menu-item[data-settings-section="${section}"]`).click();
    await page.waitForTimeout(700);
    await fine(`settings-${section}`);
  }
  await page.locator('.side-menu-item[data-settings-section="system"]').click();
  const system = await page.locator("#settingsPaneSystem").innerText();
  assert.match(system, /WebUI: \d+\.\d+\.\d+\s/);
  assert.match(system, /Unauthenticated/);
  assert.doesNotMatch(system, /Save|Agent:|Check now|Password/);
  await page.locator('.side-menu-item[data-settings-section="preferences"]').click();
  await page.locator("#settingsSendKey").selectOption("ctrl+enter");
  await page.waitForResponse((response) => response.request().method() === "POST" && response.url().endsWith("/api/settings"));
  await page.locator("#settingsSendKey").selectOption("enter");
  await page.waitForTimeout(1200);
  await page.locator('.side-menu-item[data-settings-section="conversation"]').click();
  for (const button of ["#btnDownload", "#btnExportJSON", "#btnExportHTML"]) {
    const [file] = await Promise.all([page.waitForEvent("download"), page.locator(button).click()]);
    assert.match(readFileSync(await file.path(), "utf8"), /hello/, button);
  }
  await page.locator("#btnClearConvModal").click();
  await confirm();
  await page.waitForFunction(() => S.messages.length === 0);
  await fine("cleared");
});

test("what was set and listed is so after a restart", async () => {
  await gateway.restart();
  await page.goto(gateway.url);
  await page.waitForTimeout(2500);
  page.wrong.splice(0);
  await page.reload();
  await page.waitForTimeout(1500);
  await fine("restarted");
});
