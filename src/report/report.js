// Only what a page without scripts can do without: the light/dark switch and values under the pointer.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  label();

  const numbers = (text) => text.split(",").map((s) => (s === "" ? NaN : Number(s)));
  const show = (v) => (Math.abs(v) >= 1e4 ? v.toFixed(0) : String(Number(v.toPrecision(4))));
  const make = (parent, tag, name) => {
    const e = document.createElement(tag);
    e.className = name;
    parent.append(e);
    return e;
  };
  // The index whose x is nearest to `at`; x ascends.
  const nearest = (x, at) => {
    let lo = 0, hi = x.length - 1;
    while (hi - lo > 1) {
      const mid = (lo + hi) >> 1;
      if (x[mid] < at) lo = mid; else hi = mid;
    }
    return Math.abs(x[lo] - at) <= Math.abs(x[hi] - at) ? lo : hi;
  };

  for (const plot of document.querySelectorAll(".plot")) {
    const d = plot.dataset, lo = +d.lo, hi = +d.hi, ylo = +d.ylo, yhi = +d.yhi, log = "log" in d;
    const all = [...plot.querySelectorAll(".line")].map((line) => ({
      name: line.dataset.name, colour: line.classList[1], faint: line.classList.contains("faint"),
      x: numbers(line.dataset.x), y: numbers(line.dataset.y),
    }));
    let extra = [];
    const clear = () => { extra.forEach((e) => e.remove()); extra = []; };
    const move = (event) => {
      clear();
      const box = plot.getBoundingClientRect();
      const at = lo + (hi - lo) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      let snap = NaN;
      for (const s of all) {
        const x = s.x[nearest(s.x, at)];
        if (!(Math.abs(x - at) >= Math.abs(snap - at))) snap = x;
      }
      const left = (100 * (snap - lo)) / (hi - lo || 1);
      const cross = make(plot, "div", "cross"), tip = make(plot, "div", "tip");
      extra.push(cross, tip);
      cross.style.left = left + "%";
      make(tip, "b", "").textContent = "step " + snap;
      for (const s of all) {
        const i = nearest(s.x, snap);
        const row = make(tip, "div", "");
        make(row, "i", "key " + s.colour).style.opacity = s.faint ? 0.4 : 1;
        row.append(s.name + " " + (Number.isNaN(s.y[i]) ? "not a number" : show(s.y[i])));
        if (s.x[i] !== snap) row.append(" (step " + s.x[i] + ")");
        if (Number.isNaN(s.y[i]) || s.faint) continue;
        const mark = make(plot, "div", "mark " + s.colour);
        mark.style.left = (100 * (s.x[i] - lo)) / (hi - lo || 1) + "%";
        mark.style.top = 100 * (1 - ((log ? Math.log10(s.y[i]) : s.y[i]) - ylo) / (yhi - ylo)) + "%";
        extra.push(mark);
      }
      tip.style[left > 50 ? "right" : "left"] = (left > 50 ? 100 - left : left) + "%";
      tip.style.margin = "0 .7rem";
    };
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    plot.addEventListener("pointerleave", clear);
  }
})();
