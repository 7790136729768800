"use strict";
(() => {
  const figures = {};
  const root = document.documentElement;
  const DASHES = ["solid", "dash", "dashdot", "dot"];
  const MARKERS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star"];
  const PATTERNS = ["", "/", ".", "\\", "x", "-", "|", "+"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const drawn = new Set();

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const slot = (number) => colour(`--slot-${number % 8}`);

  // Traces name a slot: its colour is the theme's, its dash and marker tell it apart without colour
  function styled(trace) {
    const number = trace.meta.slot, shade = slot(number);
    if (trace.meta.band) return { ...trace, line: { width: 0, color: shade }, fillcolor: shade + "33" };
    if (trace.type === "bar") {
      const pattern = { shape: PATTERNS[number % 8], fillmode: "overlay", solidity: 0.2 };
      return { ...trace, marker: { color: shade, pattern, line: { width: 0 } } };
    }
    return {
      ...trace,
      line: { color: shade, width: 2, dash: DASHES[number % 4] },
      marker: { color: shade, size: 7, symbol: MARKERS[number % 8] },
    };
  }

  function themed(layout) {
    const axis = {
      gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"),
    };
    return {
      ...layout,
      xaxis: { ...axis, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
      margin: { l: 50, r: 12, t: 12, b: 44 },
      legend: { ...layout.legend, orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
      hoverlabel: {
        align: "left", bgcolor: colour("--paper"), bordercolor: colour("--line"),
        font: { color: colour("--ink"), size: 13 },
      },
    };
  }

  function draw(place) {
    const figure = figures[place.dataset.plot];
    drawn.add(place);
    return Plotly.react(place, figure.data.map(styled), themed(figure.layout), {
      displayModeBar: false, responsive: true, scrollZoom: false,
    });
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });

  function watch(scope) {
    for (const place of scope.querySelectorAll(".plot")) {
      place.style.minHeight = `${figures[place.dataset.plot].layout.height}px`;
      seen.observe(place);
    }
  }

  const button = document.getElementById("theme");
  function colourKeys() {
    for (const key of document.querySelectorAll(".key")) {
      key.style.background = slot(Number(key.dataset.slot));
    }
  }
  function show(theme) {
    root.dataset.theme = theme;
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
    for (const place of drawn) draw(place);
    colourKeys();
  }
  button.hidden = false;
  button.addEventListener("click", () => show(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => show(dark.matches ? "dark" : "light"));
  show(root.dataset.theme || (dark.matches ? "dark" : "light"));

  // Paper is light, and has every plot
  let before = "light";
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    for (const place of document.querySelectorAll(".plot")) drawn.add(place);
    show("light");
  });
  window.addEventListener("afterprint", () => show(before));

  function ask(name) {
    const asked = document.getElementById("asked");
    const old = document.getElementById(`asked-${name.dataset.metric}`);
    if (old) return old.scrollIntoView({ block: "center" });
    const figure = document.createElement("figure");
    figure.id = `asked-${name.dataset.metric}`;
    const title = document.createElement("h4");
    title.textContent = name.dataset.title;
    title.id = `${figure.id}-title`;
    const place = document.createElement("div");
    place.className = "plot";
    place.dataset.plot = name.dataset.metric;
    place.setAttribute("role", "img");
    place.setAttribute("aria-labelledby", title.id);
    const meaning = document.createElement("figcaption");
    meaning.textContent = name.closest("tr").querySelector(".words").textContent;
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = `Remove ${name.dataset.title}`;
    close.addEventListener("click", () => {
      drawn.delete(place);
      figure.remove();
      name.focus();
    });
    figure.append(title, place, meaning, close);
    asked.prepend(figure);
    draw(place);
    figure.scrollIntoView({ block: "center", behavior: still.matches ? "auto" : "smooth" });
  }

  function metricTable() {
    for (const name of document.querySelectorAll("[data-metric]")) {
      name.addEventListener("click", () => ask(name));
    }
    const find = document.getElementById("find-metric");
    if (!find) return;
    const rows = [...document.querySelectorAll("#metric-table tbody")];
    const words = rows.map((row) => row.querySelector("th").textContent.toLowerCase()
      + " " + row.querySelector(".words").textContent.toLowerCase());
    const count = document.getElementById("metric-count");
    const filter = () => {
      const wanted = find.value.trim().toLowerCase();
      rows.forEach((row, i) => { row.hidden = !words[i].includes(wanted); });
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} metrics`;
    };
    find.addEventListener("input", filter);
    filter();
  }

  function samples() {
    const filters = [...document.querySelectorAll("[data-filter]")];
    const groups = [...document.querySelectorAll(".group")];
    function choose(chosen) {
      for (const one of filters) one.setAttribute("aria-pressed", String(one === chosen));
      const wanted = chosen.dataset.filter;
      for (const group of groups) group.hidden = wanted !== "all" && group.dataset.outcome !== wanted;
      const left = groups.filter((group) => !group.hidden).length;
      document.getElementById("sample-count").textContent = `${left} of ${groups.length} groups`;
    }
    for (const one of filters) one.addEventListener("click", () => choose(one));
    if (filters.length) choose(filters[0]);
  }

  // rlvr view puts the sections into its own page, and later draws what has changed in them
  window.rlvrReport = {
    start(made) {
      Object.assign(figures, made);
      drawn.clear();
      colourKeys();
      watch(document);
      metricTable();
      samples();
    },
    redraw(made) {
      Object.assign(figures, made);
      for (const place of drawn) draw(place);
    },
  };
  const data = document.getElementById("data");
  if (data) window.rlvrReport.start(JSON.parse(data.textContent));
})();
