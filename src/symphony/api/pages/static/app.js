// Keeps a page up to date: on each event of the daemon it fetches its own address again and morphs <main>.
"use strict";
(() => {
  const POLL_MS = 4_000; // while there is no stream
  const SILENCE_MS = 4_500; // the daemon sends a heartbeat at least each 2.5 s: HEARTBEAT_S in live.py
  const ANSWER_MS = 10_000;
  const MAX_ENTRIES = 2_000; // of a transcript that is followed
  const html = document.documentElement;
  const root = html.dataset.root;
  try { localStorage.setItem("root", root); } catch { /* only links from elsewhere need it: see RETURN_SCRIPT */ }
  const page = document.getElementById("main").dataset;
  const isStill = "still" in page;
  const parse = (text) => new DOMParser().parseFromString(text, "text/html");
  html.classList.add("js");

  // --- relative times ---
  const UNITS = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"]];
  const duration = (s) => {
    for (const [size, name, part, partName] of UNITS)
      if (s >= size) {
        const rest = Math.floor((s % size) / part);
        return `${Math.floor(s / size)} ${name}${rest ? ` ${rest} ${partName}` : ""}`;
      }
    if (s < 60) return `${s} s`;
    return `${Math.floor(s / 60)} min${s < 600 && s % 60 ? ` ${s % 60} s` : ""}`;
  };
  const tick = () => {
    if (document.hidden) return;
    const now = Date.now();
    for (const time of document.querySelectorAll("main time:not(.clock)")) {
      const s = Math.trunc((now - Date.parse(time.dateTime)) / 1000);
      const text = s === 0 ? "now" : s > 0 ? `${duration(s)} ago` : `in ${duration(-s)}`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // --- what the page says of the connection ---
  // While there is none, all that may be stale is grey and no form can be sent. What is typed stays.
  const status = document.getElementById("live");
  let heard = Date.now(), isLost = false;
  const unkept = new Set(); // fields with a text that the daemon does not have

  const say = (state, ...parts) => {
    const shown = document.createElement("p");
    shown.append(...parts);
    if (status.innerHTML === shown.innerHTML) return;
    status.dataset.state = state;
    status.replaceChildren(...shown.childNodes);
  };
  const setLost = (lost) => {
    isLost = lost;
    html.classList.toggle("stale", lost);
    for (const button of document.querySelectorAll('form[method="post"] button, button[form]'))
      if (lost) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
  };
  const connected = () => {
    heard = Date.now();
    if (isLost) for (const field of unkept) if (field.isConnected) keep(field);
    setLost(false);
    if (!stream) say("live", `Checked every ${POLL_MS / 1000} s`);
    else say("live", isStill ? "Connected" : "Live");
  };
  const lost = (why) => {
    setLost(true);
    const since = new Date(heard).toLocaleTimeString([], { hour12: false });
    if (why !== "signed out") { say("down", `${why} since ${since}`); return; }
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Sign in";
    say("down", `Signed out since ${since}: run `, Object.assign(document.createElement("code"), { textContent: "symphony open" }), " or ", link, ...(unkept.size ? [". Copy what you typed since then: it is only here."] : []));
  };
  document.addEventListener("submit", (event) => {
    if (isLost && event.target.method === "post") event.preventDefault();
  }, true);

  // --- refreshing ---
  let etag = null, isBusy = false, isAskedAgain = false;
  const typed = (node) =>
    (/radio|checkbox/.test(node.type) && node.checked !== node.defaultChecked)
    || ((node.tagName === "TEXTAREA" || node.tagName === "INPUT") && node.type !== "hidden" && node.value !== node.defaultValue)
    || (node.tagName === "SELECT" && Array.from(node.options).some((option) => option.selected !== option.defaultSelected));
  const callbacks = {
    beforeNodeMorphed: (node, fresh) => {
      if (node.id === "entries" && isSameTranscript(node, fresh)) { updateEntries(node, fresh); return false; }
      return !typed(node);
    },
    beforeNodeRemoved: (node) => node.className !== "offer",
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
  };
  const morph = (node, fresh) => {
    const isTyping = document.activeElement.matches("textarea, input, select"); // else a focused link would stay as it is
    Idiomorph.morph(node, fresh, { morphStyle: "outerHTML", ignoreActiveValue: isTyping, callbacks });
  };
  const apply = async (text) => {
    const fresh = parse(text);
    const main = fresh.getElementById("main");
    if (!main) return;
    const hadNewest = isAtNewest();
    await closeGap(fresh);
    document.title = fresh.title;
    const icon = "link[rel=icon]";
    document.querySelector(icon).setAttribute("href", fresh.querySelector(icon).getAttribute("href"));
    morph(document.getElementById("main"), main);
    follow(hadNewest);
    tick();
    document.dispatchEvent(new Event("refreshed"));
  };
  // A page on which a person works is never replaced; it only asks whether the daemon is there.
  const ask = () => {
    const signal = AbortSignal.timeout(ANSWER_MS);
    if (isStill) return fetch(`${root}api/v1/state?waiting=0`, { method: "HEAD", cache: "no-store", redirect: "error", signal });
    return fetch(location.href, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store", redirect: "error", signal });
  };
  const refreshNow = async () => {
    let answer, text;
    try {
      answer = await ask();
      text = await answer.text();
    } catch {
      if (!stream || stream.readyState !== EventSource.OPEN) lost("Not connected");
      return;
    }
    if (answer.status === 200 && !isStill) {
      etag = answer.headers.get("ETag");
      await apply(text);
    }
    if (answer.ok || answer.status === 304) connected();
    else if ([401, 403, 421].includes(answer.status)) lost("signed out");
    else lost(`The daemon answers ${answer.status}`);
  };
  const refresh = async () => {
    if (isStill && !isLost && stream) return;
    if (isBusy) { isAskedAgain = true; return; }
    isBusy = true;
    try { await refreshNow(); } finally {
      setTimeout(() => { isBusy = false; if (isAskedAgain) { isAskedAgain = false; refresh(); } }, Number(page.pause));
    }
  };

  // --- the stream ---
  let stream = null, timer = 0, listened = 0; // since when the stream has been silent
  const concerns = (scope) => !page.scope || scope === "all" || scope === page.scope;
  const hear = () => { listened = Date.now(); if (!isLost) heard = listened; };
  const connect = () => {
    clearTimeout(timer);
    if (stream || document.hidden) return;
    listened = Date.now();
    stream = new EventSource(`${root}api/v1/events`);
    stream.onopen = () => {
      hear();
      if (isStill) connected();
      refresh();
    };
    stream.addEventListener("heartbeat", hear);
    stream.addEventListener("changed", (event) => {
      hear();
      let scope = "all";
      try { scope = JSON.parse(event.data).scope; } catch { /* an unknown event changes everything */ }
      if (concerns(scope)) refresh();
    });
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) { lost("Not connected"); listened = Date.now(); return; } // it connects again by itself
      stream = null;
      timer = setTimeout(connect, POLL_MS);
      refresh(); // tells why
    };
  };
  const disconnect = () => { clearTimeout(timer); if (stream) stream.close(); stream = null; };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else { connect(); refresh(); }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  setInterval(tick, 1000);
  setInterval(() => { if ((!stream || isLost) && !document.hidden) refresh(); }, POLL_MS);
  setInterval(() => {
    if (!stream || document.hidden || Date.now() - listened < SILENCE_MS) return;
    lost("Not connected"); // the other end is gone without a word
    disconnect();
    connect();
  }, 500);

  // --- the transcript: it grows at its end, and upwards by pages ---
  const newer = document.getElementById("newer");
  const entriesOf = (where) => where.getElementById("entries");
  const numberOf = (entry) => Number(entry.id.slice(1));
  const isSameTranscript = (shown, fresh) =>
    shown && fresh && "follow" in shown.dataset && "follow" in fresh.dataset && shown.dataset.run === fresh.dataset.run;
  let seen = 0; // the last entry that was on the screen as the newest

  const isAtNewest = () => {
    const last = entriesOf(document)?.lastElementChild;
    if (!last || document.activeElement.matches("main textarea, main input")) return false;
    const { bottom } = last.getBoundingClientRect();
    return bottom > 0 && bottom < innerHeight + 48;
  };
  const follow = (hadNewest) => {
    const shown = entriesOf(document);
    if (!shown || !("follow" in shown.dataset)) { newer.hidden = true; return; }
    if (hadNewest && shown.lastElementChild.getBoundingClientRect().bottom > innerHeight) toNewest();
    if (hadNewest || !seen) seen = numberOf(shown.lastElementChild);
    let count = 0;
    for (let entry = shown.lastElementChild; entry && numberOf(entry) > seen; entry = entry.previousElementSibling) count += 1;
    newer.hidden = !count;
    newer.textContent = `${count} new ${count === 1 ? "entry" : "entries"}`;
  };
  const toNewest = () => entriesOf(document).lastElementChild.scrollIntoView({ block: "end" });
  newer.addEventListener("click", () => { toNewest(); follow(true); });
  addEventListener("scroll", () => { if (!newer.hidden && isAtNewest()) follow(true); }, { passive: true });
  if (entriesOf(document)) seen = numberOf(entriesOf(document).lastElementChild);

  // Entries are added and updated one by one, so that those that were loaded before stay.
  const updateEntries = (shown, fresh) => {
    let place = null;
    for (const entry of [...fresh.children]) {
      const old = document.getElementById(entry.id);
      if (!old && place) place.after(entry);
      else if (!old) shown.append(entry);
      else if (!old.isEqualNode(entry)) morph(old, entry);
      place = document.getElementById(entry.id);
    }
    shown.dataset.last = fresh.dataset.last;
  };
  const fetchPage = async (link) => {
    try {
      const answer = await fetch(link.getAttribute("href"), { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(ANSWER_MS) });
      return answer.ok ? parse(await answer.text()) : null;
    } catch { return null; }
  };
  // Puts the page before in front of a transcript; false if there is none.
  const prepend = async (where) => {
    const link = where.querySelector("[data-earlier]"), shown = entriesOf(where);
    const older = link && shown ? await fetchPage(link) : null;
    if (!older || !entriesOf(older)) return false;
    shown.prepend(...[...entriesOf(older).children].filter((entry) => !where.getElementById(entry.id)));
    shown.dataset.first = entriesOf(older).dataset.first;
    const next = older.querySelector("[data-earlier]");
    if (next) link.setAttribute("href", next.getAttribute("href"));
    else link.remove();
    return true;
  };
  // A fresh page has the newest entries only; afterwards it follows on those that are shown.
  const closeGap = async (fresh) => {
    const shown = entriesOf(document), news = entriesOf(fresh);
    if (!isSameTranscript(shown, news)) return;
    const isGap = () => Number(news.dataset.first) > Number(shown.dataset.last) + 1;
    for (let pages = 0; isGap() && pages < 20; pages += 1) if (!(await prepend(fresh))) break;
    if (isGap() || (shown.children.length > MAX_ENTRIES && isAtNewest())) {
      for (const entry of [...shown.children]) if (!fresh.getElementById(entry.id)) entry.remove();
      shown.dataset.first = news.dataset.first;
    } else if (Number(shown.dataset.first) < Number(news.dataset.first)) {
      const link = document.querySelector("[data-earlier]"), freshLink = fresh.querySelector("[data-earlier]");
      if (link) freshLink?.setAttribute("href", link.getAttribute("href"));
      else freshLink?.remove();
    }
  };
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-earlier]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const shown = entriesOf(document), { bottom } = shown.getBoundingClientRect();
    if (await prepend(document)) scrollBy({ top: shown.getBoundingClientRect().bottom - bottom, behavior: "instant" });
    else location.href = link.href; // which shows why
  });

  // --- the daemon keeps what is typed until it is sent: see typed.py ---
  const typing = new Map();
  const send = (field, text) => {
    const body = new URLSearchParams({ csrf: field.form.elements.csrf.value, place: field.dataset.keep, text });
    return fetch(`${root}actions/keep-text`, { method: "POST", body, redirect: "error" });
  };
  const keep = async (field) => {
    const text = field.value;
    try {
      const answer = await send(field, text);
      if (answer.ok && field.value === text) unkept.delete(field);
    } catch { /* it is kept once the daemon is there again */ }
  };
  const change = (field, text) => {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("input", ({ target }) => {
    if (!target.dataset.keep) return;
    unkept.add(target);
    clearTimeout(typing.get(target));
    typing.set(target, setTimeout(keep, 500, target));
  });
  document.addEventListener("submit", () => { for (const timer of typing.values()) clearTimeout(timer); });
  // A text of a former sign-in may be another person's: who typed it says so.
  const offer = (field, text) => {
    const offered = document.createElement("div"), quote = document.createElement("pre");
    offered.className = "offer";
    quote.className = "quote";
    quote.textContent = text;
    const button = (label, act) => {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: label });
      made.addEventListener("click", () => { act(); field.focus(); offered.remove(); });
      return made;
    };
    const use = button("Use it", () => change(field, text));
    const drop = button("Drop it", async () => { await send(field, text); await keep(field); }); // it takes it over first
    offered.append("Typed here before the last sign-out or restart. If it is yours:", quote, use, " ", drop);
    field.after(offered);
  };
  const restore = async () => {
    const fields = [...document.querySelectorAll("[data-keep]")];
    if (!fields.length) return;
    let own, left;
    try { ({ own, left } = await (await fetch(`${root}typed`, { cache: "no-store", redirect: "error" })).json()); } catch { return; }
    for (const field of fields) {
      const place = field.dataset.keep, isNew = (text) => text && text !== field.value;
      if (isNew(own[place]) && field.value === field.defaultValue) change(field, own[place]);
      if (isNew(left[place])) offer(field, left[place]);
    }
  };
  restore();

  // --- copying ---
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = button.parentElement.querySelector("pre, code");
    try {
      await navigator.clipboard.writeText(text.textContent);
    } catch { // not on an address without TLS
      getSelection().selectAllChildren(text);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2_000);
  });

  // --- the editor of skills: the server checks what is typed ---
  const form = document.querySelector("form[data-check]");
  let checks = 0, pending = 0;
  const check = async () => {
    const number = ++checks;
    try {
      const answer = await fetch(form.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "error" });
      const fresh = parse(await answer.text()).getElementById("preview");
      if (fresh && number === checks) Idiomorph.morph(document.getElementById("preview"), fresh, { morphStyle: "outerHTML" });
    } catch { /* saving checks, too */ }
  };
  if (form) form.addEventListener("input", () => { clearTimeout(pending); pending = setTimeout(check, 300); });

  // --- the keyboard ---
  // A key leads to what a page offers for it by data-key. Nothing is decided by a key alone: a link is
  // followed, a confirmation is opened, and a button that sends something only gets the focus.
  const keys = document.getElementById("keys"), keysOn = document.getElementById("keys-on");
  keysOn.checked = true;
  try { keysOn.checked = localStorage.getItem("keys") !== "off"; } catch { /* it was never switched off */ }
  keysOn.addEventListener("change", () => {
    try { localStorage.setItem("keys", keysOn.checked ? "on" : "off"); } catch { /* for this page only */ }
  });
  document.getElementById("keys-link").addEventListener("click", (event) => { event.preventDefault(); keys.showModal(); });
  const move = (step) => {
    const rows = [...document.querySelectorAll("main a[data-row]")];
    const card = document.activeElement.closest("main article, main tr, main li, main .card");
    let at = rows.indexOf(document.activeElement);
    if (at < 0 && card) at = rows.findIndex((row) => card.contains(row));
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  };
  const offered = (key) => {
    const card = document.activeElement.closest("main article, main tr, main li, main .card");
    const found = card?.querySelector(`[data-key="${key}"]`);
    if (found) return found;
    const all = document.querySelectorAll(`main [data-key="${key}"]`);
    return all.length === 1 ? all[0] : null; // several belong to several cards
  };
  const press = (target) => {
    target.scrollIntoView({ block: "nearest" });
    if (target.tagName === "SUMMARY") {
      target.parentElement.open = true;
      (target.parentElement.querySelector("textarea, select, button") ?? target).focus();
    } else if (target.tagName === "A" || target.type === "button") target.click();
    else target.focus();
  };
  const FIELDS = 'textarea, select, [contenteditable], dialog[open], input:not([type="checkbox"], [type="radio"])';
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details.confirm[open]")) open.open = false;
      if (target.id === "search") target.blur();
      return;
    }
    if (!keysOn.checked || target.closest(FIELDS)) return;
    const search = document.getElementById("search");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") keys.showModal();
    else if ("das".includes(event.key) && !event.repeat && offered(event.key)) { event.preventDefault(); press(offered(event.key)); }
  });
  // A click elsewhere closes an open confirmation.
  document.addEventListener("click", (event) => {
    for (const open of document.querySelectorAll("details.confirm[open]"))
      if (!open.contains(event.target)) open.open = false;
  });
})();
