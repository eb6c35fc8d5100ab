"use strict";
// Draws the timeline's pictures on canvases that share one zoom; everything else is plain HTML.
(() => {
  const data = JSON.parse(document.getElementById("timeline").textContent);
  const canvases = [...document.querySelectorAll("canvas[data-picture]")];
  if (!data || !canvases.length) return;
  const said = document.getElementById("said");
  const longest = Math.max(...data.pictures.map((p) => p.length_ns));
  // one step at first, the longest of all pictures
  const longestStep = (p) => Math.max(...p.step_ends_ns.map((ns, i) => ns - (i ? p.step_ends_ns[i - 1] : 0)), 0) || p.length_ns;
  const oneStep = Math.min(1.04 * Math.max(...data.pictures.map(longestStep)), longest);
  const LEFT = 112, ROW = 24, GAP = 7, AXIS = 22;
  const view = { from: 0, to: oneStep };
  const style = () => getComputedStyle(document.documentElement);
  const color = (kind) => style().getPropertyValue("--k" + kind).trim();
  const isWait = data.kinds.indexOf("wait");
  const time = (ns) => (ns >= 1e6 ? (ns / 1e6).toPrecision(3) + " ms" : (ns / 1e3).toPrecision(3) + " µs");

  // the first span that ends after a moment; spans of a lane do not overlap
  function firstAfter(lane, ns) {
    let low = 0, high = lane.start_ns.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.start_ns[middle] + lane.length_ns[middle] <= ns) low = middle + 1; else high = middle;
    }
    return low;
  }

  function ticks(from, to, width) {
    const rough = ((to - from) / width) * 110;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
    const found = [];
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push(t);
    return found;
  }

  function draw(canvas) {
    const picture = data.pictures[canvas.dataset.picture];
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = picture.lanes.length * (ROW + GAP) + AXIS;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const ink = style().getPropertyValue("--ink").trim(), dim = style().getPropertyValue("--dim").trim();
    const line = style().getPropertyValue("--line").trim(), card = style().getPropertyValue("--card").trim();
    const scale = (width - LEFT) / (view.to - view.from);
    const x = (ns) => LEFT + (ns - view.from) * scale;
    c.font = "12px system-ui";
    c.textBaseline = "middle";
    const bottom = height - AXIS;
    for (const t of ticks(view.from, view.to, width - LEFT)) {
      c.fillStyle = line;
      c.fillRect(x(t), 0, 1, bottom);
      c.fillStyle = dim;
      c.textAlign = "center";
      const covered = picture.step_ends_ns.some((ns) => x(ns) - LEFT > 130 && x(t) > x(ns) - 160 && x(t) < x(ns) + 30);
      if (x(t) < width - 24 && !covered) c.fillText(t === 0 ? "0" : time(t), Math.max(x(t), LEFT + 4), height - AXIS / 2);
    }
    picture.lanes.forEach((lane, place) => {
      const top = place * (ROW + GAP);
      let until = -1;
      for (let i = firstAfter(lane, view.from); i < lane.start_ns.length && lane.start_ns[i] < view.to; i++) {
        let left = x(Math.max(lane.start_ns[i], view.from));
        const right = x(Math.min(lane.start_ns[i] + lane.length_ns[i], view.to));
        if (right <= until) continue; // nothing of it would be seen
        left = Math.max(left, until);
        const wide = Math.max(right - left, 0.6);
        c.fillStyle = color(lane.kind[i]);
        c.globalAlpha = Math.max(Math.min((right - left) / 0.6, 1), 0.08); // as much ink as time
        const high = lane.height ? (ROW * lane.height[i]) / 100 : ROW;
        c.fillRect(left, top + ROW - high, wide, high);
        c.globalAlpha = 1;
        until = left + wide;
        if (wide > 40 && !lane.height) {
          c.save();
          c.beginPath();
          c.rect(left + 3, top, wide - 6, ROW);
          c.clip();
          c.fillStyle = readable(color(lane.kind[i]));
          c.textAlign = "left";
          c.fillText(data.labels[lane.label[i]], left + 5, top + ROW / 2 + 0.5);
          c.restore();
        }
        if (wide > 9 && !lane.height) { c.fillStyle = card; c.fillRect(left + wide - 0.6, top, 0.6, ROW); }
      }
      c.fillStyle = card;
      c.fillRect(0, top, LEFT, ROW);
      c.fillStyle = ink;
      c.textAlign = "left";
      c.fillText(lane.name, 0, top + ROW / 2 + 0.5, LEFT - 8);
    });
    picture.step_ends_ns.forEach((ns, i) => {
      if (ns < view.from || ns > view.to) return;
      c.fillStyle = ink;
      for (let y = 0; y < bottom; y += 6) c.fillRect(x(ns) - 0.5, y, 1, 3);
      c.textAlign = "right";
      if (x(ns) - LEFT > 130) c.fillText("step ends " + time(ns), x(ns) - 4, bottom + 1 + AXIS / 2);
    });
  }

  function readable(hex) {
    const value = parseInt(hex.slice(1), 16);
    const bright = 0.299 * (value >> 16) + 0.587 * ((value >> 8) & 255) + 0.114 * (value & 255);
    return bright > 140 ? "#111827" : "#ffffff";
  }

  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; canvases.forEach(draw); });
  }

  function show(from, to) {
    const least = 2000;
    let span = Math.min(Math.max(to - from, least), longest);
    from = Math.min(Math.max(from, 0), longest - span);
    view.from = from;
    view.to = from + span;
    redraw();
  }
  function zoom(factor, at) {
    const middle = at === undefined ? (view.from + view.to) / 2 : at;
    show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  }

  function at(canvas, event) {
    const box = canvas.getBoundingClientRect();
    const px = event.clientX - box.left, py = event.clientY - box.top;
    const ns = view.from + ((px - LEFT) / (box.width - LEFT)) * (view.to - view.from);
    const lane = data.pictures[canvas.dataset.picture].lanes[Math.floor(py / (ROW + GAP))];
    return { ns, lane, inside: px >= LEFT };
  }
  function tell(lane, i) {
    said.textContent = data.labels[lane.label[i]] + " · " + data.kinds[lane.kind[i]] + " · " +
      time(lane.length_ns[i]) + " from " + time(lane.start_ns[i]) + " · " + lane.name;
  }

  for (const canvas of canvases) {
    let dragged = null;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), at(canvas, event).ns);
      else { const by = (event.deltaX / canvas.clientWidth) * (view.to - view.from); show(view.from + by, view.to + by); }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.clientX, from: view.from, to: view.to };
      canvas.setPointerCapture(event.pointerId);
      canvas.style.cursor = "grabbing";
    });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged) {
        const by = ((dragged.x - event.clientX) / (canvas.clientWidth - LEFT)) * (dragged.to - dragged.from);
        show(dragged.from + by, dragged.to + by);
        return;
      }
      const found = at(canvas, event);
      if (!found.lane || !found.inside) return;
      const i = firstAfter(found.lane, found.ns);
      if (i < found.lane.start_ns.length && found.lane.start_ns[i] <= found.ns) tell(found.lane, i);
      else said.textContent = "nothing recorded at " + time(found.ns) + " · " + found.lane.name;
    });
    for (const name of ["pointerup", "pointercancel"])
      canvas.addEventListener(name, () => { dragged = null; canvas.style.cursor = ""; });
    canvas.addEventListener("dblclick", (event) => zoom(0.4, at(canvas, event).ns));
    canvas.addEventListener("keydown", (event) => {
      const by = (view.to - view.from) / 8;
      const keys = {
        ArrowLeft: () => show(view.from - by, view.to - by), ArrowRight: () => show(view.from + by, view.to + by),
        "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 1: () => show(0, oneStep), 0: () => show(0, longest), Home: () => show(0, longest),
        n: () => next(canvas, 1), p: () => next(canvas, -1),
      };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) { keys[event.key](); event.preventDefault(); }
    });
  }

  // the next wait of the CPU in a picture, brought to the middle and said
  const reached = new Map();
  function next(canvas, by) {
    const waits = [];
    for (const lane of data.pictures[canvas.dataset.picture].lanes)
      lane.kind.forEach((kind, i) => { if (kind === isWait) waits.push([lane, i]); });
    if (!waits.length) { said.textContent = "no wait in this picture"; return; }
    waits.sort((a, b) => a[0].start_ns[a[1]] - b[0].start_ns[b[1]]);
    const before = reached.has(canvas) ? reached.get(canvas) : by > 0 ? -1 : 0;
    const place = (before + by + waits.length) % waits.length;
    reached.set(canvas, place);
    const [lane, i] = waits[place];
    const span = Math.max(lane.length_ns[i] * 3, (view.to - view.from) / 4);
    const middle = lane.start_ns[i] + lane.length_ns[i] / 2;
    show(middle - span / 2, middle + span / 2);
    tell(lane, i);
  }

  const act = { in: () => zoom(0.6), out: () => zoom(1 / 0.6), one: () => show(0, oneStep), all: () => show(0, longest), next: () => next(canvases[0], 1) };
  for (const button of document.querySelectorAll("button[data-act]"))
    button.addEventListener("click", act[button.dataset.act]);
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  canvases.forEach(draw);
})();
