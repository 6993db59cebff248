// SPDX-License-Identifier: Apache-2.0
// The page is whole without this: it keeps it up to date, by one stream of Server-Sent Events.
"use strict";
(() => {
  const hour = 3600e3, body = document.body, $ = id => document.getElementById(id);
  const rows = new Map([...document.querySelectorAll("tr[data-name]")].map(tr => [tr.dataset.name, tr]));
  const counts = new Map([...document.querySelectorAll(".counts li")].map(li => [li.dataset.state, li]));
  const text = (node, is) => { if (node && node.textContent !== is) node.textContent = is; };
  const utc = t => new Date(t).toISOString().slice(0, 19).replace("T", " ");

  // Times: what they say in full, and how long ago that is.
  function ago(ms) {
    const s = Math.max(0, Math.round(ms / 1e3));
    for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (s >= 2 * unit) return Math.floor(s / unit) + " " + name + " ago";
    return s + " s ago";
  }
  function setTime(node, t) {
    node.dateTime = new Date(t).toISOString();
    node.title = utc(t) + " UTC";
    text(node, utc(t).slice(0, 10) === utc(Date.now()).slice(0, 10) ? utc(t).slice(11) : utc(t));
    text(node.nextElementSibling, ago(Date.now() - t));
  }
  function tick() {
    if (document.hidden) return;
    text($("clock"), utc(Date.now()).slice(11) + " UTC");
    for (const node of document.querySelectorAll("main time[datetime]")) setTime(node, Date.parse(node.dateTime));
    judge();
    tellAway();
    for (const li of document.querySelectorAll("#values li")) li.classList.toggle("stale", Date.now() > +li.dataset.until);
  }

  // Rows and their counts. What a row shows is what the server said, until that cannot be true any more: data that is due has not
  // come, or nothing is heard of the server.
  let heard = Date.now(), offset = 0, away = 0, retryAt = 0;
  const now = () => Date.now() + offset; // by the server's clock
  const asOf = () => " as of " + utc(heard + offset).slice(11);
  function judge() {
    const are = {};
    for (const tr of rows.values()) {
      const time = tr.querySelector("time"), late = tr.dataset.state === "Flowing" && tr.dataset.due && time.dateTime && now() > Date.parse(time.dateTime) + +tr.dataset.due;
      const state = late ? "Overdue" : tr.dataset.state, as = counts.get(state);
      are[state] = (are[state] || 0) + 1;
      tr.dataset.shows = state;
      if (!as) continue;
      text(tr.querySelector(".sign"), away ? "?" : as.dataset.sign);
      text(tr.querySelector(".sign + span"), as.dataset.word + (away ? late ? ", not confirmed" : asOf() : ""));
    }
    for (const [state, li] of counts) {
      text(li.querySelector("b"), String(are[state] || 0));
      text(li.querySelector(".sign"), away ? "?" : li.dataset.sign);
      text(li.querySelector("small"), away ? asOf().trim() : "");
      li.hidden = !are[state];
    }
  }
  // The server is away: the page says since when, and when it asks again.
  function tellAway() {
    if (!away) return;
    const left = Math.max(0, Math.ceil((retryAt - Date.now()) / 1e3));
    text($("away-since"), utc(away + offset).slice(11) + " UTC");
    text($("away-again"), left ? "It is asked again in " + left + " s." : "It is being asked again.");
  }
  function lose() {
    if (!away) away = heard;
    body.classList.add("lost");
    $("away").hidden = false;
    judge();
    tellLine();
    tellLevel();
    tellAway();
  }
  function hear(u) {
    heard = Date.now();
    if (u.now) offset = u.now - heard;
    if (!away) return;
    away = 0;
    body.classList.remove("lost");
    $("away").hidden = true;
    judge();
    tellLine();
    tellLevel();
  }
  function showRow(r) {
    const tr = rows.get(r.name), as = counts.get(r.state);
    if (!tr || !as) return;
    tr.dataset.state = r.state;
    if (r.received) setTime(tr.querySelector("time"), r.received);
    if (r.picture) showPicture(r, tr);
    if (set && !set.live && set.id.split("/")[0] === r.name && Date.now() - asked > 10e3) history(Date.now()); // it comes by objects
  }
  // The level of space weather, and the values that are known.
  const reading = v => v.quantity === "Bz" ? "Bz " + v.value.toFixed(1) + " nT" : v.quantity === "Speed" ? v.value.toFixed(0) + " km/s" : v.quantity + " " + v.value.toFixed(1);
  let level = $("level").textContent;
  const tellLevel = () => text($("level"), level + (away ? asOf() : ""));
  function showWeather(w) {
    const section = $("weather");
    section.hidden = !w.declared;
    section.dataset.level = w.level || "";
    level = w.level ? "level " + w.level : "no level";
    tellLevel();
    $("since").hidden = !w.since;
    if (w.since) setTime($("since").querySelector("time"), Date.parse(w.since));
    text($("why"), w.why || "");
    $("values").replaceChildren(...(w.values || []).map(v => {
      const li = document.createElement("li"), add = (tag, words, name) => {
        const e = document.createElement(tag);
        e.textContent = words;
        if (name) e.className = name;
        li.append(e, " ");
      };
      add("b", reading(v));
      add("small", v.spacecraft ? v.source + ", " + v.spacecraft : v.source);
      add("time", "");
      add("span", "", "ago");
      add("span", "stale: says nothing of now", "old");
      li.dataset.until = Date.parse(v.validTo) + v.staleAfterMillis;
      li.classList.toggle("stale", Date.now() > +li.dataset.until);
      setTime(li.querySelector("time"), Date.parse(v.validTo));
      return li;
    }));
  }
  function showPicture(r, tr) {
    const all = document.querySelector(".pictures");
    if (!all) return;
    let figure = [...all.children].find(f => f.dataset.name === r.name);
    if (!figure && all.children.length >= all.dataset.most) return;
    const next = new Image();
    next.alt = "Newest picture of " + r.name;
    next.decoding = "async";
    next.onload = () => {
      if (!figure) {
        figure = document.createElement("figure");
        figure.dataset.name = r.name;
        const make = (tag, words) => Object.assign(document.createElement(tag), {textContent: words || "", className: tag === "span" ? "ago" : ""});
        const a = make("a"), caption = make("figcaption");
        caption.append(make("b", r.name), " ", make("time"), " ", make("span"));
        if (tr.dataset.credit) caption.append(make("small", tr.dataset.credit));
        a.append(next);
        figure.append(a, caption);
        all.append(figure);
        document.querySelector("#pictures .none").hidden = true;
      } else figure.querySelector("img").replaceWith(next);
      figure.querySelector("a").href = r.picture.url;
      setTime(figure.querySelector("time"), Date.parse(r.picture.at));
    };
    next.src = r.picture.url;
  }

  // Find: by all that a row says, and by its station.
  const find = $("find");
  function filter() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const tbody of document.querySelectorAll("tbody")) {
      const station = tbody.querySelector(".station"), of = station ? station.textContent : "";
      let some = false;
      for (const tr of tbody.querySelectorAll("tr[data-name]")) {
        const is = (of + " " + tr.cells[0].textContent + " " + tr.cells[1].textContent).toLowerCase();
        tr.hidden = !words.every(w => is.includes(w));
        if (!tr.hidden) { some = true; found++; }
      }
      tbody.hidden = !some;
    }
    text($("found"), words.length ? found + " of " + rows.size : "");
  }

  // The line: points are [time in ms, value, …].
  const select = $("dataset"), chart = $("chart");
  let set = null, points = new Map(), live = false, asking = 0, asked = 0;
  function choose() {
    set = JSON.parse(select.selectedOptions[0].dataset.set);
    points = new Map();
    live = false;
    draw();
    connect();
    if (!set.live) history(Date.now());
  }
  function addLine(came) {
    for (const p of came) points.set(p[0], p);
    for (const t of points.keys()) if (t < Date.now() - hour) points.delete(t);
    const first = !live && Math.min(...points.keys());
    live = true;
    if (first && first > Date.now() - hour + 60e3) history(first); // the stream does not reach back so far
    draw();
  }
  // history asks HAPI for what came before an instant: for what is not known yet.
  async function history(until) {
    const of = set, mine = ++asking, known = of.live ? 0 : Math.max(0, ...points.keys());
    asked = Date.now();
    try {
      const query = "dataset=" + encodeURIComponent(of.id) + "&parameters=" + of.parameters.map(encodeURIComponent).join(",");
      const info = await (await fetch("/hapi/info?" + query)).json();
      const span = of.cadence ? Math.min(hour, 4000 * of.cadence) : hour; // some 4000 rows at most
      const start = Math.max(until - span, known, Date.parse(info.startDate)), stop = Math.min(until, Date.parse(info.stopDate));
      if (!(start < stop)) return;
      const at = t => new Date(t).toISOString().slice(0, 19) + "Z";
      const answer = await fetch("/hapi/data?" + query + "&start=" + at(start) + "&stop=" + at(stop + 999) + "&format=json");
      if (!answer.ok || mine !== asking) return;
      const fills = info.parameters.slice(1).flatMap(p => Array((p.size || [1]).reduce((a, b) => a * b)).fill(p.fill === null || p.fill === undefined ? NaN : Number(p.fill)));
      const means = new Map(), step = 5000;
      for (const [time, ...values] of (await answer.json()).data || []) {
        const t = Math.floor(Date.parse(time) / step) * step, m = means.get(t) || fills.map(() => [0, 0]);
        values.flat(Infinity).forEach((v, i) => { if (typeof v === "number" && v !== fills[i]) { m[i][0] += v; m[i][1]++; } });
        means.set(t, m);
      }
      for (const [t, m] of means) if (!of.live || !points.has(t)) points.set(t, [t, ...m.map(([sum, n]) => n ? sum / n : null)]);
    } catch { /* the archive is away: what is live shows all the same */ }
    draw();
  }
  function el(name, attributes, parent, words) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (words !== undefined) e.textContent = words;
    parent.append(e);
    return e;
  }
  const number = v => Math.abs(v) >= 1e5 || v && Math.abs(v) < 1e-3 ? v.toExponential(3) : String(+v.toFixed(Math.abs(v) >= 100 ? 2 : 3));
  function draw() {
    if (!set || document.hidden) return;
    const n = set.series.length, width = Math.max(260, chart.clientWidth), panel = Math.max(76, Math.floor(300 / n)), height = n * panel + 20;
    const all = [...points.values()].sort((a, b) => a[0] - b[0]), now = Date.now(), x = t => (t - now + hour) / hour * (width - 10);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [k, v] of [["viewBox", "0 0 " + width + " " + height], ["height", height], ["role", "img"]]) svg.setAttribute(k, v);
    for (let t = Math.ceil((now - hour) / 6e5) * 6e5; t <= now; t += width < 480 ? 12e5 : 6e5) {
      el("line", {x1: x(t), x2: x(t), y1: 0, y2: height - 18, class: "axis"}, svg);
      if (x(t) > 16 && x(t) < width - 20) el("text", {x: x(t), y: height - 4, "text-anchor": "middle"}, svg, utc(t).slice(11, 16));
    }
    const told = [];
    set.series.forEach((s, i) => {
      const values = all.map(p => p[i + 1]).filter(v => v !== null && v !== undefined), top = i * panel + 22, space = panel - 34;
      const low = Math.min(...values), high = Math.max(...values), y = v => top + space - (high > low ? (v - low) / (high - low) : .5) * space;
      el("line", {x1: 0, x2: width, y1: (i + 1) * panel, y2: (i + 1) * panel, class: "axis"}, svg);
      el("text", {x: 0, y: top - 8, class: "name"}, svg, s.name + (values.length ? "  " + number(values[values.length - 1]) : "") + (s.units ? " " + s.units : ""));
      if (!values.length) return;
      told.push(s.name + " from " + number(low) + " to " + number(high) + (s.units ? " " + s.units : ""));
      el("text", {x: width, y: top - 8, "text-anchor": "end"}, svg, number(low) + " … " + number(high));
      let d = "", before = 0, last;
      for (const p of all) {
        const v = p[i + 1];
        if (v === null || v === undefined) continue;
        d += (p[0] - before > Math.max(3 * (set.cadence || 0), 3e4) ? "M" : "L") + x(p[0]).toFixed(1) + " " + y(v).toFixed(1);
        before = p[0];
        last = v;
      }
      el("path", {d, class: "trace"}, svg);
      el("circle", {cx: x(before), cy: y(last), r: 3, class: "dot"}, svg);
    });
    svg.setAttribute("aria-label", told.length ? "Last hour of " + set.id + ": " + told.join("; ") : "Nothing of the last hour of " + set.id);
    chart.replaceChildren(svg);
    tellLine();
  }
  function tellLine() {
    if (!set) return;
    if (away) text($("line-state"), (live || !points.size ? "stopped" : "from the archive") + asOf());
    else text($("line-state"), live ? "live, means of 5 s" : points.size ? "from the archive" : set.live ? "waiting for data" : "nothing in the last hour");
  }

  // One stream of events; where it ends, the page comes again, each time later.
  let source = null, at = body.dataset.at, tries = 0, again = 0, leaving = 0;
  function say(state) { text($("connection"), state); }
  function connect() {
    clearTimeout(again);
    retryAt = 0;
    silence();
    if (source) source.close();
    source = new EventSource("/console/events?since=" + at + (set && set.live ? "&line=" + encodeURIComponent(set.id) : ""));
    source.addEventListener("update", e => {
      const u = JSON.parse(e.data);
      tries = 0;
      at = u.at;
      say("live");
      hear(u);
      silence();
      if (u.layout !== body.dataset.layout) $("changed").hidden = false;
      (u.rows || []).forEach(showRow);
      if (u.rows) { judge(); filter(); }
      if (u.spaceWeather) showWeather(u.spaceWeather);
      if (u.line) addLine(u.line);
    });
    source.addEventListener("alive", e => { hear(JSON.parse(e.data)); say("live"); silence(); });
    source.onerror = retry;
  }
  // A connection that is gone without a word is one as well: the server says something every 10 s.
  let quiet = 0;
  function silence() {
    clearTimeout(quiet);
    quiet = setTimeout(retry, 30e3);
  }
  function retry() {
    if (source) source.close();
    clearTimeout(quiet);
    const wait = Math.min(60e3, 1e3 * 2 ** tries++) * (.5 + Math.random());
    retryAt = Date.now() + wait;
    say("not connected");
    lose();
    clearTimeout(again);
    again = setTimeout(connect, wait);
  }
  document.addEventListener("visibilitychange", () => { // who is not looked at asks nothing
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(() => { clearTimeout(again); clearTimeout(quiet); if (source) source.close(); source = null; }, 30e3);
    else {
      if (!source) { lose(); connect(); } // what it shows is as old as it was left
      tick();
      draw();
    }
  });
  addEventListener("resize", draw);

  $("filter").hidden = rows.size < 2;
  find.addEventListener("input", filter);
  filter();
  setInterval(tick, 1e3);
  tick();
  say("connecting");
  if (select) {
    select.disabled = false;
    select.addEventListener("change", choose);
    choose();
  } else connect();
})();
