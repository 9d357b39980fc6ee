// Script of the console: live updates, keyboard shortcuts and notifications.
"use strict";
(() => {
  const body = document.body;
  if (!body.dataset.after) return;
  document.documentElement.classList.add("scripted");
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const cards = find("#cards");
  // Path of the gateway on its host: that of its realm, where a port serves several.
  const root = new URL("../", document.currentScript.src).pathname;
  const isInbox = location.pathname === `${root}console/` && cards;
  const title = document.title;
  let skew = Number(body.dataset.now) - Date.now();

  // Times.
  const span = (milliseconds) => {
    const seconds = Math.max(0, Math.floor(milliseconds / 1000));
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
    return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
  };
  const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const tick = () => {
    const now = Date.now() + skew;
    for (const node of all("time[data-until]")) {
      const left = Number(node.dataset.until) - now;
      put(node, left > 0 ? `${span(left)} left` : "expired");
      node.classList.toggle("late", left < 60000);
    }
    for (const node of all("time[data-since]")) {
      const since = now - Number(node.dataset.since);
      put(node, `${since < 3600000 ? span(since).replace(/ \d+ s$/, since < 60000 ? "$&" : "") : span(since)} ago`);
    }
  };
  const local = (within) => {
    for (const node of all("time[datetime]:not([data-until]):not([data-since]):not([title])", within)) {
      const at = new Date(node.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      node.title = node.textContent;
      put(node, at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }));
    }
  };

  // Pending approvals.
  let waiting = Number(body.dataset.waiting);
  const count = () => {
    const badge = find("#count");
    badge.hidden = waiting === 0;
    badge.firstChild.textContent = String(waiting);
    document.title = waiting ? `(${waiting}) ${title}` : title;
    if (!isInbox) return;
    put(find("#lead"), waiting === 0 ? "No pending approvals."
      : `${waiting} pending approval${waiting === 1 ? "" : "s"}, the most urgent first.`);
    find("#nothing").hidden = all(".card", cards).length > 0;
  };
  const say = (text) => { find("#said").textContent = text; };
  const key = () => [...crypto.getRandomValues(new Uint8Array(12))].map((one) => one.toString(16).padStart(2, "0")).join("");
  const node = (html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    for (const name of root === "/" ? [] : ["href", "action", "data-page"]) {
      for (const link of all(`[${name}^="/"]`, holder.content)) {
        const path = link.getAttribute(name);
        if (!path.startsWith(root)) link.setAttribute(name, root + path.slice(1));
      }
    }
    const made = holder.content.firstElementChild;
    for (const field of all("input[name=csrf]", made)) field.value = body.dataset.csrf;
    for (const field of all("input[name=key]", made)) if (!field.value) field.value = key();
    local(made);
    return made;
  };
  const isTyping = (card) => card.contains(document.activeElement)
    && (document.activeElement.matches("textarea") || document.activeElement.matches("input[type=text]"))
    || all("textarea, input[type=text]", card).some((field) => field.value !== "")
    || all("input[type=checkbox]:not(.choose):checked, input[type=radio]:checked", card).length > 0;
  // A button that comes under a pointer, or moves below one, must not take the click that was meant for what was there.
  const REST = 600;
  const decides = () => all(".card[data-state=waiting] :is(button[name=answer], input.choose, a.always), #several button, form.saving button");
  const nameOf = (one) => [one.closest("[id]:not(button, input)")?.id, one.name, one.value, one.className.replace(" moved", "")].join(" ");
  const places = () => new Map(decides().map((one) => [nameOf(one), one.getBoundingClientRect()]));
  const rests = new WeakMap();
  const rest = (one) => {
    clearTimeout(rests.get(one));
    one.classList.add("moved");
    rests.set(one, setTimeout(() => one.classList.remove("moved"), REST));
  };
  /** Changes the page, and lets buttons that it moved or brought rest. Whoever uses keys is not held up. */
  const steady = (change) => {
    const before = places();
    change();
    for (const one of decides()) {
      const [was, is] = [before.get(nameOf(one)), one.getBoundingClientRect()];
      if (!was || Math.abs(was.top - is.top) > 2 || Math.abs(was.left - is.left) > 2) rest(one);
    }
  };
  let byPointer = false;
  let touchedAt = -Infinity;
  addEventListener("pointerdown", (event) => { byPointer = true; if (event.pointerType !== "mouse") touchedAt = performance.now(); }, true);
  addEventListener("keydown", () => { byPointer = false; }, true);
  let pointer = null;
  addEventListener("pointermove", (event) => { pointer = event.pointerType === "mouse" ? event.clientY : null; }, true);
  document.documentElement.addEventListener("mouseleave", () => { pointer = null; });

  const replace = (old, fresh) => {
    const held = old.contains(document.activeElement);
    const chosen = find("input.choose", old)?.checked;
    // What follows a decided card stays where it is.
    if (fresh.dataset.state === "over" && isInbox) fresh.style.minHeight = `${old.getBoundingClientRect().height}px`;
    old.replaceWith(fresh);
    const box = find("input.choose", fresh);
    if (chosen && box) box.checked = true;
    if (held) fresh.focus({ preventScroll: true });
    tick();
  };
  const rank = (card) => [Number(card.dataset.deadline), Number(card.dataset.opened)];
  const isBefore = (one, other) => {
    const [left, right] = [rank(one), rank(other)];
    return left[0] < right[0] || left[0] === right[0] && left[1] < right[1];
  };
  /** The last card that must not move: one that a pointer, a finger or the focus is on or has passed. */
  const firm = () => {
    const shown = all(".card", cards);
    const isTouched = performance.now() - touchedAt < 5000;
    const edge = isTouched ? innerHeight : pointer;
    return shown.findLastIndex((card) => card.contains(document.activeElement) || edge !== null && card.getBoundingClientRect().top <= edge);
  };
  /** Puts a new card where it belongs by its urgency, but not before one that must not move. */
  const place = (fresh) => {
    const behind = all(".card", cards).slice(firm() + 1);
    cards.insertBefore(fresh, behind.find((card) => card.dataset.state === "waiting" && isBefore(fresh, card)) ?? null);
  };
  const onGate = (told) => steady(() => {
    waiting = told.waiting;
    const old = document.getElementById(told.id);
    const isAlone = cards?.classList.contains("alone");
    if (old && old.dataset.state === "waiting") {
      if (told.state === "over" && isAlone) refetch();
      else if (told.state === "over" || !isTyping(old) && !isAlone) replace(old, node(told.html));
      if (told.state === "over") say(`Decided: ${told.title}`);
    } else if (!old && told.state === "waiting" && isInbox) {
      const fresh = node(told.html);
      fresh.classList.add("fresh");
      place(fresh);
      tick();
      say(`Pending: ${told.title}`);
    }
    count();
    chosen();
    if (told.isNew && told.state === "waiting") notify(told);
  });

  // Notifications, asked for by a button.
  const notify = (told) => {
    if (!("Notification" in window) || Notification.permission !== "granted" || !document.hidden) return;
    let shown;
    try {
      shown = new Notification("Approval needed", { body: told.title, tag: told.id });
    } catch {
      return;
    }
    shown.onclick = () => { window.focus(); location.href = `${root}console/gates/${told.id}`; };
  };
  // Where a page may show none by itself, as on Android, making one throws, whoever allowed what. While nobody was asked
  // it shows nothing.
  const mayNotify = () => {
    if (!window.isSecureContext || !("Notification" in window) || Notification.permission !== "default") return false;
    try {
      new Notification("").close();
      return true;
    } catch {
      return false;
    }
  };
  const bell = find("#notify");
  if (bell && mayNotify()) {
    bell.hidden = false;
    bell.addEventListener("click", async () => { await Notification.requestPermission(); bell.hidden = true; });
  }

  // Answering without leaving the page.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const card = form.closest(".card");
    const button = event.submitter;
    if (!card || !form.matches("form.answer") || !button?.name) return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(form));
    fields.set(button.name, button.value);
    const buttons = all("button", form);
    buttons.forEach((one) => { one.disabled = true; });
    try {
      const answer = await fetch(form.action, { method: "POST", body: fields, headers: { "x-fragment": "1" }, redirect: "manual" });
      const html = await answer.text();
      if (!html.startsWith("<article")) throw new Error(answer.status === 403 ? "The session expired: reload the page." : "The decision was not recorded.");
      if (cards?.classList.contains("alone")) {
        if (answer.ok) { await refetch(); find(".card")?.focus(); return; }
      }
      const fresh = node(html);
      const next = card.nextElementSibling;
      steady(() => replace(document.getElementById(card.id) ?? card, fresh));
      say(find(".problem", fresh)?.textContent ?? find(".outcome", fresh)?.textContent ?? "");
      if (fresh.dataset.state === "over") (next?.matches(".card[data-state=waiting]") ? next : fresh).focus({ preventScroll: byPointer });
    } catch (problem) {
      buttons.forEach((one) => { one.disabled = false; });
      let told = find(".problem", form);
      if (!told) { told = document.createElement("p"); told.className = "problem"; told.setAttribute("role", "alert"); form.append(told); }
      told.textContent = problem instanceof TypeError ? "The gateway cannot be reached. Nothing was decided." : problem.message;
    }
  });
  document.addEventListener("click", (event) => {
    const dismiss = event.target.closest(".dismiss");
    if (!dismiss) return;
    event.preventDefault();
    const card = dismiss.closest(".card");
    const next = card.nextElementSibling ?? card.previousElementSibling;
    steady(() => card.remove());
    (next?.matches(".card") ? next : find("#main")).focus({ preventScroll: byPointer });
    history.replaceState(null, "", `${root}console/`);
    count();
  });

  // Several at once.
  const several = find("#several");
  const chosen = () => {
    if (!several) return;
    several.hidden = all("input.choose").length < 2;
    const count = all("input.choose:checked").length;
    find("#chosen").textContent = count ? `${count} selected:` : "Select several to decide them at once.";
    all("button[name=answer]", several).forEach((one) => { one.disabled = count === 0; });
  };
  if (several) {
    find("#all").hidden = false;
    find("#all").addEventListener("click", () => {
      const boxes = all("input.choose");
      const isAll = boxes.every((box) => box.checked);
      boxes.forEach((box) => { box.checked = !isAll; });
      chosen();
    });
    document.addEventListener("change", (event) => { if (event.target.matches("input.choose")) chosen(); });
  }

  // What was edited since its effect was shown is not what would be saved.
  const rule = find("form.rule");
  const saving = find("form.saving");
  if (rule && saving) {
    const shown = new URLSearchParams(new FormData(rule)).toString();
    const told = find(".note", saving);
    const was = told.textContent;
    rule.addEventListener("input", () => {
      const isOther = new URLSearchParams(new FormData(rule)).toString() !== shown;
      all("button", saving).forEach((one) => { one.disabled = isOther; });
      put(told, isOther ? "The rule was edited: show its effect before you save it." : was);
    });
  }

  // Keys.
  let goes = false;
  const current = () => document.activeElement?.closest?.(".card");
  const step = (by) => {
    const found = all(".card");
    if (!found.length) return;
    const at = found.indexOf(current());
    found[at < 0 ? 0 : Math.min(found.length - 1, Math.max(0, at + by))].focus();
  };
  const press = (value) => {
    const card = current() ?? (all(".card[data-state=waiting]").length === 1 ? find(".card[data-state=waiting]") : null);
    const button = card && find(`button[name=answer][value=${value}]`, card);
    if (button) button.form.requestSubmit(button);
  };
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, dialog");
    if (event.key === "Escape" && field && !field.matches("dialog")) { (field.closest(".card") ?? find("#main")).focus(); return; }
    if (field?.matches(".reason") && event.key === "Enter") {
      event.preventDefault();
      field.form.requestSubmit(find("button[value=deny]", field.form));
      return;
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && field?.matches("textarea")) { field.form.requestSubmit(); return; }
    if (field || event.ctrlKey || event.metaKey || event.altKey) return;
    if (goes) {
      goes = false;
      const to = { i: "", s: "sessions", r: "record", p: "policy", a: "agents", m: "mcp" }[event.key];
      if (to !== undefined) location.href = `${root}console/${to}`;
      return;
    }
    // A key that is held must not go on to what comes next.
    if (event.repeat && event.key !== "j" && event.key !== "k") return;
    switch (event.key) {
      case "j": step(1); break;
      case "k": step(-1); break;
      case "a": press("once"); break;
      case "s": press("session"); break;
      case "d": {
        const card = current() ?? find(".card[data-state=waiting]");
        const reason = card && find(".reason", card);
        if (!reason) return;
        event.preventDefault();
        reason.focus();
        break;
      }
      case "l": {
        const card = current() ?? find(".card[data-state=waiting]");
        const always = card && find("a.always", card);
        if (always) location.href = always.href;
        break;
      }
      case "x": { const box = current() && find("input.choose", current()); if (box) { box.checked = !box.checked; chosen(); } break; }
      case "g": goes = true; setTimeout(() => { goes = false; }, 1200); break;
      case "Enter": if (event.target.matches(".card") && isInbox) location.href = event.target.dataset.page; break;
      case "?": find("#help").showModal(); break;
    }
  });

  // Colours.
  const theme = find("#theme");
  const paint = () => {
    let kept = null;
    try { kept = localStorage.getItem("theme"); } catch { /* it is not kept then */ }
    if (kept) document.documentElement.dataset.theme = kept; else delete document.documentElement.dataset.theme;
  };
  paint();
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const order = [null, "light", "dark"];
    const next = order[(order.indexOf(document.documentElement.dataset.theme ?? null) + 1) % 3];
    try { if (next) localStorage.setItem("theme", next); else localStorage.removeItem("theme"); } catch { return; }
    paint();
    say(`Theme: ${next ?? "system"}`);
  });

  // A page that looks at everything again, keeping what is being written.
  let fetching = null;
  let again = false;
  const refetch = () => {
    // What changed while it was fetched may not be in it.
    if (fetching) again = true;
    fetching ??= (async () => {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" } });
        if (!answer.ok || answer.redirected && new URL(answer.url).pathname === `${root}login`) { location.reload(); return; }
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        body.dataset.after = fresh.body.dataset.after;
        waiting = Number(fresh.body.dataset.waiting);
        const gone = isInbox ? await Promise.all(missing(fresh).map(settled)) : [];
        steady(() => renew(fresh, gone));
        for (const field of all("input[name=key]")) if (!field.value) field.value = key();
        local(document);
        tick();
        count();
        chosen();
      } finally {
        fetching = null;
        if (again) { again = false; setTimeout(refetch, 100); }
      }
    })();
    return fetching;
  };
  /** Cards that wait here and no more on the fresh page. */
  const missing = (fresh) => all(".card[data-state=waiting]", cards).filter((card) => !fresh.getElementById(card.id));
  const settled = async (card) => {
    const answer = await fetch(card.dataset.page);
    if (!answer.ok) return [card.id, null];
    const found = find(`#${card.id}`, new DOMParser().parseFromString(await answer.text(), "text/html"));
    if (found && !find(".dismiss", found)) find("header", found).append(node('<a class="button quiet dismiss" href="/console/">Dismiss</a>'));
    return [card.id, found];
  };
  const renew = (fresh, gone) => {
    for (const part of all("[data-follows]")) swap(part, fresh.getElementById(part.id));
    if (find("#transcript")) {
      for (const id of ["transcript", "state", "queue"]) swap(find(`#${id}`), fresh.getElementById(id));
      const [old, now] = [find("#speak"), find("#speak", fresh)];
      if (old && now) { const text = find("textarea", old).value; if (!old.contains(document.activeElement)) { old.replaceWith(document.adoptNode(now)); find("#speak textarea").value = text; } else { swapSpeak(old, now); } }
      stale.splice(0).forEach((one) => one.remove());
      tail(false);
    } else if (isInbox) {
      for (const [id, card] of gone) {
        const old = document.getElementById(id);
        if (card && old) replace(old, document.adoptNode(card)); else old?.remove();
      }
      for (const card of all("#cards .card", fresh)) {
        const old = document.getElementById(card.id);
        if (!old) place(document.adoptNode(card));
        else if (old.dataset.state === "waiting" && !isTyping(old)) replace(old, document.adoptNode(card));
      }
    } else if (cards?.classList.contains("alone")) {
      find("#main").replaceChildren(...[...find("#main", fresh).childNodes].map((one) => document.adoptNode(one)));
    }
  };
  const swapSpeak = (old, now) => {
    const labels = [find("label[for=message]", old), find("label[for=message]", now)];
    labels[0].textContent = labels[1].textContent;
    find("#say button", old).textContent = find("#say button", now).textContent;
    const [row, fresh] = [find(".row", old), find(".row", now)];
    if (!row.contains(document.activeElement)) row.replaceWith(document.adoptNode(fresh));
  };
  const swap = (old, now) => {
    if (!old || !now) return;
    const known = new Map(all(":scope > [id]", old).map((one) => [one.id, one]));
    const open = new Set(all("details[open]", old).map((one) => one.parentElement.closest("[id]")?.id));
    const list = [...now.childNodes].map((one) => {
      const same = one.id && known.get(one.id);
      if (same && same.dataset.html === one.outerHTML) return same;
      const fresh = document.adoptNode(one);
      if (fresh.dataset) { const html = fresh.outerHTML; fresh.dataset.html = html; if (open.has(fresh.id)) all("details", fresh).forEach((part) => { part.open = true; }); }
      return fresh;
    });
    const isAtEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 160;
    if (list.length === old.childNodes.length && list.every((one, at) => one === old.childNodes[at])) return;
    const held = old.contains(document.activeElement) ? document.activeElement : null;
    old.replaceChildren(...list);
    const again = held && (held.isConnected ? held : all("a[href]", old).find((one) => one.href === held.href));
    again?.focus({ preventScroll: true });
    if (isAtEnd && old.id === "transcript") scrollTo({ top: document.documentElement.scrollHeight });
  };

  // A session as it comes.
  const live = find("#live");
  const parts = new Map();
  /** What was shown as it came and is part of the transcript now. */
  const stale = [];
  const tail = (clear) => {
    if (!live) return;
    if (clear) { parts.clear(); stale.length = 0; live.replaceChildren(); }
    live.hidden = live.children.length === 0;
  };
  const part = (told) => {
    if (!live || parts.has(told.index)) return;
    find(".notice", live)?.remove();
    const article = document.createElement("article");
    article.className = `said ${told.kind === "thinking" ? "thinking" : "agent"}`;
    const head = document.createElement("header");
    head.textContent = told.kind === "call" ? `calls ${told.name}` : told.kind === "thinking" ? "thinking" : "Agent";
    const text = document.createElement("pre");
    text.className = told.kind === "call" ? "code" : "prose";
    text.textContent = told.text;
    article.append(head, text);
    live.append(article);
    parts.set(told.index, text);
    tail(false);
  };
  const append = (told) => {
    const text = parts.get(told.index);
    if (!text) return;
    const isAtEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 160;
    text.append(told.text);
    if (isAtEnd) scrollTo({ top: document.documentElement.scrollHeight });
  };
  // A provider that says nothing; gone with the next piece of the answer.
  const notice = (told) => {
    if (!live) return;
    const text = find(".notice", live) || document.createElement("p");
    text.className = "notice";
    text.setAttribute("role", "status");
    text.textContent = told.text;
    live.append(text);
    tail(false);
  };
  const progress = (told) => {
    if (!live) return;
    let text = all("pre.output", live).find((one) => !stale.includes(one));
    if (!text) { text = document.createElement("pre"); text.className = "output"; live.append(text); }
    text.textContent = told.text;
    tail(false);
  };
  // Lists that follow the record are read again when somebody looks.
  let isStirred = false;
  const stirred = () => { isStirred = document.hidden; if (!isStirred) refetch(); };
  document.addEventListener("visibilitychange", () => { if (isStirred && !document.hidden) stirred(); });
  let soon = 0;
  const changed = (told) => {
    if (told.done && live) { stale.push(...live.children); parts.clear(); }
    soon ||= setTimeout(() => { soon = 0; refetch(); }, 120);
  };

  // The stream. A browser comes back by itself, and says what it heard last.
  const follow = () => {
    const wanted = new URLSearchParams({ after: body.dataset.after });
    if (body.dataset.session) wanted.set("session", body.dataset.session);
    if (find("[data-follows]")) wanted.set("all", "1");
    const stream = new EventSource(`${root}console/live?${wanted}`);
    const on = (name, act) => stream.addEventListener(name, (event) => act(JSON.parse(event.data)));
    const link = find("#link");
    // What is being written follows whole.
    on("hello", (told) => { skew = told.now - Date.now(); link.hidden = true; tail(true); });
    on("gate", onGate);
    on("changed", changed);
    on("stirred", stirred);
    on("reload", refetch);
    on("begin", () => { parts.clear(); });
    on("part", part);
    on("delta", append);
    on("output", progress);
    stream.onerror = () => {
      link.hidden = false;
      // A refusal ends the stream for good: the login is over, or the gateway is another.
      if (stream.readyState === EventSource.CLOSED) setTimeout(async () => { await refetch().catch(() => {}); follow(); }, 3000);
    };
    addEventListener("pagehide", () => stream.close(), { once: true });
  };
  addEventListener("pageshow", (event) => { if (event.persisted) { follow(); refetch(); } });

  for (const field of all("input[name=key]")) field.value = key();
  for (const one of all("#transcript > [id], [data-follows] > [id]")) one.dataset.html = one.outerHTML;
  local(document);
  tick();
  setInterval(tick, 1000);
  count();
  chosen();
  follow();
})();
