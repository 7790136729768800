"use strict";
(() => {
  const EVERY = 2000, REPORT_EVERY = 10000;
  const root = document.documentElement;

  // A browser may keep nothing
  function keep(name, value) {
    try { localStorage.setItem(name, value); } catch { /* then it is not kept */ }
  }
  function recall(name) {
    try { return localStorage.getItem(name); } catch { return null; }
  }

  // The theme is kept for the next page; report.js changes it
  const theme = recall("rlvr-theme");
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");

  function keepTheme() {
    const button = document.getElementById("theme");
    button.addEventListener("click", () => keep("rlvr-theme", root.dataset.theme));
  }

  // Parts with data-live are taken again from the server when its records have changed. What the
  // server sends is its own markup, in which everything a model wrote is escaped
  function replace(page) {
    for (const old of document.querySelectorAll("[data-live]")) {
      const made = page.getElementById(old.id);
      if (!made || old.contains(document.activeElement) || old.innerHTML === made.innerHTML) continue;
      const scroll = old.querySelector(".scroll")?.scrollLeft;
      old.replaceWith(document.adoptNode(made));
      const box = made.querySelector(".scroll");
      if (box && scroll) box.scrollLeft = scroll;
    }
  }

  const report = { shown: false, busy: false, due: 0, stale: true };
  async function drawReport() {
    const place = document.getElementById("report");
    if (!place || report.busy || !report.stale || Date.now() < report.due) return;
    document.getElementById("drawing")?.removeAttribute("hidden");
    report.busy = true;
    report.stale = false;
    try {
      await takeReport(place);
    } catch {
      report.stale = true;  // the viewer has ended, or is busy: the next try tells
    }
    report.busy = false;
    report.due = Date.now() + REPORT_EVERY;
  }
  async function takeReport(place) {
    const answer = await fetch(place.dataset.report);
    const made = await answer.json();
    if (!answer.ok) {
      const told = document.getElementById("drawing");
      if (told) told.textContent = made.error;
      return;
    }
    const body = parsed(made.body);
    if (parts(place) === parts(body)) {
      refresh(place, body);
      window.rlvrReport.redraw(made.figures);
      return;
    }
    const wanted = document.getElementById("find-metric")?.value, top = scrollY, first = !report.shown;
    report.shown = true;
    place.replaceChildren(...body.body.childNodes);
    const links = document.getElementById("links");
    links.replaceChildren(...parsed(made.links).body.childNodes);
    links.hidden = false;
    const find = document.getElementById("find-metric");
    if (find && wanted) find.value = wanted;
    window.rlvrReport.start(made.figures);
    if (!first) scrollTo(0, top);
    else if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }

  // A young run gets new sections and metrics as it goes on
  function parts(scope) {
    const found = [...scope.querySelectorAll("section, figure:not([id^=asked-]) [data-plot], [data-metric]")];
    return found.map((one) => one.id || one.dataset.plot || one.dataset.metric).join(" ");
  }

  // Plots stay where they are, with what is open; tables and cards are replaced
  function refresh(place, body) {
    for (const section of place.querySelectorAll("section")) {
      const made = body.getElementById(section.id);
      if (!made || section.id === "metrics") continue;
      const [old, fresh] = [section, made].map((one) => [...one.querySelectorAll("table, .card")]);
      if (old.length === fresh.length) old.forEach((one, i) => one.replaceWith(fresh[i]));
    }
  }

  let before;
  async function look() {
    const address = document.body.dataset.state;
    if (document.hidden || !address) return 0;
    const began = Date.now();
    const answer = await fetch(address);
    const took = Date.now() - began;
    if (!answer.ok) return took;
    const { state } = await answer.json();
    if (before !== undefined && state !== before) {
      const page = await fetch(location.href);
      if (page.ok) replace(parsed(await page.text()));
      report.stale = true;
    }
    before = state;
    drawReport();
    return took;
  }

  async function follow() {
    let took = 0;
    try {
      took = await look();
      document.body.removeAttribute("data-gone");
    } catch {
      document.body.dataset.gone = "";  // the viewer has ended, or is busy: the next try tells
    }
    setTimeout(follow, Math.max(EVERY, Math.min(10 * took, REPORT_EVERY)));
  }

  function tokens() {
    const side = document.querySelector(".side");
    if (!side) return;
    for (const one of document.querySelectorAll("[name=colour]")) {
      if (one.value === recall("rlvr-colour")) one.checked = true;
      one.addEventListener("change", () => {
        side.dataset.colour = one.value;
        keep("rlvr-colour", one.value);
      });
    }
    for (const one of document.querySelectorAll("[name=colour]")) {
      if (one.checked) side.dataset.colour = one.value;
    }
    const readout = document.getElementById("readout");
    const tell = (event, chosen) => {
      const token = event.target.closest?.(".t[title]");
      if (!token) return;
      readout.textContent = token.title;
      if (!chosen) return;
      side.querySelector(".chosen")?.classList.remove("chosen");
      token.classList.add("chosen");
    };
    side.addEventListener("mouseover", (event) => tell(event, false));
    side.addEventListener("click", (event) => tell(event, true));
  }

  const KEYS = {
    j: () => document.querySelector("a[rel=next]")?.click(),
    k: () => document.querySelector("a[rel=prev]")?.click(),
    "/": () => {
      const field = document.querySelector("input[type=search]");
      if (field) return field.focus();
      document.querySelector('.crumbs a[href*="/rollouts"]')?.click();
    },
  };
  function keys() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("input, textarea, select")) return;
      if (!KEYS[event.key]) return;
      event.preventDefault();
      KEYS[event.key]();
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    keepTheme();
    tokens();
    keys();
    follow();
  });
})();
