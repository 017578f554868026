// Keeps a page up to date: on each event of the daemon it fetches its own address again and morphs <main>.
"use strict";
(() => {
  const POLL_MS = 10_000; // while there is no stream
  const status = document.getElementById("live");
  const root = document.documentElement.dataset.root;
  try { localStorage.setItem("root", root); } catch { /* only links from elsewhere need it: see RETURN_SCRIPT */ }
  const page = document.getElementById("main").dataset;
  let stream = null, etag = null, busy = false, again = false, timer = 0;

  const say = (state, text) => {
    if (status.textContent === text) return;
    status.dataset.state = state;
    status.textContent = text;
  };

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
    for (const time of document.querySelectorAll("main time")) {
      const s = Math.trunc((now - Date.parse(time.dateTime)) / 1000);
      const text = s === 0 ? "now" : s > 0 ? `${duration(s)} ago` : `in ${duration(-s)}`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // --- refreshing ---
  const typed = (node) =>
    (/radio|checkbox/.test(node.type) && node.checked !== node.defaultChecked)
    || ((node.tagName === "TEXTAREA" || node.tagName === "INPUT") && node.type !== "hidden" && node.value !== node.defaultValue)
    || (node.tagName === "SELECT" && Array.from(node.options).some((option) => option.selected !== option.defaultSelected));
  const callbacks = {
    beforeNodeMorphed: (node) => !typed(node),
    beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
  };
  const apply = (html) => {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const main = fresh.getElementById("main");
    if (!main) return;
    document.title = fresh.title;
    const icon = "link[rel=icon]";
    document.querySelector(icon).setAttribute("href", fresh.querySelector(icon).getAttribute("href"));
    Idiomorph.morph(document.getElementById("main"), main, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
    tick();
    document.dispatchEvent(new Event("refreshed"));
  };
  const refresh = async () => {
    if ("still" in page) return;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
      if (answer.status === 200) {
        etag = answer.headers.get("ETag");
        apply(await answer.text());
      } else if (answer.status === 401) {
        say("down", "Signed out: run symphony open");
      }
      if (answer.ok || answer.status === 304) live();
    } catch {
      down();
    } finally {
      setTimeout(() => { busy = false; if (again) { again = false; refresh(); } }, Number(page.pause));
    }
  };

  // --- the stream ---
  const live = () => { if (stream && stream.readyState === EventSource.OPEN) say("live", "Live"); };
  const down = () => say("down", "Not live: trying again");
  const concerns = (scope) => !page.scope || scope === "all" || scope === page.scope;
  const connect = () => {
    clearTimeout(timer);
    if (stream || document.hidden || "still" in page) return;
    stream = new EventSource(`${root}api/v1/events`);
    stream.onopen = () => { live(); refresh(); };
    stream.addEventListener("changed", (event) => {
      let scope = "all";
      try { scope = JSON.parse(event.data).scope; } catch { /* an unknown event changes everything */ }
      if (concerns(scope)) refresh();
    });
    stream.onerror = () => {
      down();
      if (stream.readyState !== EventSource.CLOSED) return; // it connects again by itself
      stream = null;
      timer = setTimeout(connect, POLL_MS);
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
  setInterval(() => { if (!stream && !document.hidden) refresh(); }, POLL_MS);

  // --- the editor of skills: the server checks what is typed ---
  const form = document.querySelector("form[data-check]");
  let checks = 0, typing = 0;
  const check = async () => {
    const number = ++checks;
    try {
      const answer = await fetch(form.dataset.check, { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "error" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
      if (fresh && number === checks) Idiomorph.morph(document.getElementById("preview"), fresh, { morphStyle: "outerHTML" });
    } catch { /* saving checks, too */ }
  };
  if (form) form.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(check, 300); });

  // --- the keyboard ---
  const move = (step) => {
    const rows = [...document.querySelectorAll("main a[data-row]")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  };
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details.confirm[open]")) open.open = false;
      if (target.id === "search") target.blur();
      return;
    }
    if (target.closest("input, textarea, select, dialog[open]")) return;
    const search = document.getElementById("search");
    if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") document.getElementById("keys").showModal();
  });
  // A click elsewhere closes an open confirmation.
  document.addEventListener("click", (event) => {
    for (const open of document.querySelectorAll("details.confirm[open]"))
      if (!open.contains(event.target)) open.open = false;
  });
})();
