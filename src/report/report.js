// Draws the report of a run from the JSON block "run"; src/report/data.c says what is in it.
// What a log says becomes text, never markup: everything passes through make().
"use strict";
(() => {
  const run = JSON.parse(document.getElementById("run").textContent);

  // --- elements ---

  const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

  // make("td.n", { title: "..." }, text, [elements], null): the tag with its classes, then attributes and children.
  const fill = (e, part) => {
    if (part === null || part === undefined || part === false) return;
    if (Array.isArray(part)) part.forEach((one) => fill(e, one));
    else if (part instanceof Node) e.append(part);
    else if (typeof part === "object") for (const [name, value] of Object.entries(part)) e.setAttribute(name, value);
    else e.append(String(part).replace(HIDDEN, "\ufffd"));
  };
  const build = (e, classes, parts) => {
    if (classes.length) e.setAttribute("class", classes.join(" "));
    fill(e, parts);
    return e;
  };
  const make = (what, ...parts) => {
    const [tag, ...classes] = what.split(".");
    return build(document.createElement(tag), classes, parts);
  };
  const draw = (what, ...parts) => {
    const [tag, ...classes] = what.split(".");
    return build(document.createElementNS("http://www.w3.org/2000/svg", tag), classes, parts);
  };
  const section = (id, title, ...parts) => make("section", { id }, make("h2", title), parts);
  const table = (...rows) => make("div.card.scroll", make("table", rows));
  const key = (classes, ...name) => make("span", make("i.key." + classes), name);

  // --- numbers as people read them ---

  const is = (v) => typeof v === "number" && Number.isFinite(v);
  const short = (v) => String(Number(v.toPrecision(4)));
  const plain = (v) => (!is(v) ? "–" : Math.abs(v) >= 1e4 && Math.abs(v) < 1e15 ? v.toFixed(0) : short(v));
  const count = (v) => Math.round(v).toLocaleString("en-US");
  const percent = (share) => (100 * share).toFixed(1) + "%";
  const list = (v) => (Array.isArray(v) ? v : []);
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const scaled = (v, step, units) => {
    let unit = 0;
    while (unit + 1 < units.length && Math.abs(v) >= step * 0.9995) { v /= step; unit++; }
    return v.toFixed(unit === 0 || Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2) + " " + units[unit];
  };
  const bytes = (v) => (is(v) ? scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) : "–");
  const seconds = (v) => (v > 0 ? scaled(v * 1e9, 1000, ["ns", "us", "ms", "s"]) : "0 ms");
  const duration = (v) => {
    const minutes = Math.round(v / 60);
    if (!(v > 0 && v < 1e12)) return "–";
    if (v < 120) return v < 60 ? seconds(v) : v.toFixed(0) + " s";
    if (minutes < 60) return minutes + " min";
    if (minutes < 48 * 60) return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
    return Math.floor(minutes / 1440) + " days " + (Math.floor(minutes / 60) % 24) + " h";
  };

  // --- charts ---

  // 1, 2 or 5 times a power of ten, so that about `count` of them fill `range`.
  const niceStep = (range, n) => {
    const rough = range / n, power = 10 ** Math.floor(Math.log10(rough)), lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
  };
  const linearAxis = (lo, hi, n, widen) => {
    if (!(hi - lo > 1e-9 * Math.abs(lo))) { // also where a tick would be lost in rounding
      const pad = lo !== 0 ? Math.abs(lo) * 0.1 : 1;
      hi += pad;
      lo -= pad;
    }
    const step = niceStep(hi - lo, n), ticks = [];
    if (widen) {
      lo = Math.floor(lo / step + 1e-9) * step;
      hi = Math.ceil(hi / step - 1e-9) * step;
    }
    for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9 && ticks.length < 12; k++)
      ticks.push(k * step);
    return { at: (v) => (v - lo) / (hi - lo), ticks };
  };
  const logAxis = (least, most) => {
    const pad = (Math.log10(most) - Math.log10(least)) * 0.04;
    const lo = Math.log10(least) - pad, hi = Math.log10(most) + pad, span = hi - lo, every = Math.ceil(span / 6);
    const at = (v) => (Math.log10(v) - lo) / span, ticks = [];
    for (let decade = Math.floor(lo); decade <= Math.ceil(hi); decade++)
      for (const lead of span < 2.2 ? [1, 2, 5] : [1]) {
        const value = lead * 10 ** decade;
        if (decade % every === 0 && at(value) >= 0 && at(value) <= 1 && ticks.length < 12) ticks.push(value);
      }
    return { at, ticks, log: true };
  };
  const tick = (v) => {
    if (Math.abs(v) >= 1e6) return short(v / 1e6) + "M";
    if (Math.abs(v) >= 1e4) return short(v / 1e3) + "k";
    return Math.abs(v) < 1e-12 ? "0" : short(v);
  };

  // A null is a gap; a point between two gaps is a line of no length, which has round ends.
  const path = (s, X, Y) => {
    let d = "", pen = false;
    s.y.forEach((y, i) => {
      if (is(y)) d += (pen ? "L" : "M") + X(s.x[i]) + " " + Y(y) + (!pen && !is(s.y[i + 1]) ? "h.1" : "");
      pen = is(y);
    });
    return d;
  };
  const dots = (s, X, Y) => s.y.map((y, i) => (is(y) ? "M" + X(s.x[i]) + " " + Y(y) + "h.1" : "")).join("");

  // The index whose x is nearest to `at`; x ascends.
  const nearest = (x, at) => {
    let lo = 0, hi = x.length - 1;
    while (hi - lo > 1) {
      const mid = (lo + hi) >> 1;
      if (x[mid] < at) lo = mid; else hi = mid;
    }
    return Math.abs(x[lo] - at) <= Math.abs(x[hi] - at) ? lo : hi;
  };

  const GAP = 11, MARGIN = 50; // of the values beside their line, and of the axis within its card; pixels
  // Values under the pointer, or at the step that the arrow keys have reached.
  const explore = (plot, series, x, y, lo, hi) => {
    const steps = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
    let extra = [], place = steps.length - 1;
    const clear = () => { extra.forEach((e) => e.remove()); extra = []; };
    const add = (e) => { plot.append(e); extra.push(e); };
    const show = (where) => {
      clear();
      place = Math.max(0, Math.min(steps.length - 1, where));
      const step = steps[place];
      const rows = series.map((s) => {
        const i = nearest(s.x, step), known = is(s.y[i]);
        if (known && !s.faint)
          add(make("div.mark.c" + s.colour, { style: `left:${100 * x.at(s.x[i])}%;top:${100 * (1 - y.at(s.y[i]))}%` }));
        return make("div", make("i.key.c" + s.colour + (s.faint ? ".faint" : "")),
          s.name + " " + (known ? plain(s.y[i]) : "not a number") + (s.x[i] === step ? "" : " (step " + s.x[i] + ")"));
      });
      add(make("div.cross", { style: `left:${100 * x.at(step)}%` }));
      const tip = make("div.tip", { role: "status" }, make("b", "step " + count(step)), rows);
      add(tip);
      // Beside the line, where there is more room, and not beyond the card on a narrow screen.
      const width = plot.clientWidth, at = width * x.at(step);
      const beside = at > width / 2 ? at - tip.offsetWidth - GAP : at + GAP;
      tip.style.left = Math.max(-MARGIN, Math.min(width - tip.offsetWidth, beside)) + "px";
    };
    const move = (event) => {
      const box = plot.getBoundingClientRect();
      show(nearest(steps, lo + (hi - lo) * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))));
    };
    plot.addEventListener("pointermove", move);
    plot.addEventListener("pointerdown", move);
    plot.addEventListener("pointerleave", clear);
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) show(place); });
    plot.addEventListener("blur", clear);
    plot.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: place - 1, ArrowRight: place + 1, PageUp: place - 20, PageDown: place + 20,
        Home: 0, End: steps.length - 1 }[event.key];
      if (event.key === "Escape") clear();
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    });
  };

  const extent = (values) => values.reduce(([lo, hi], v) => [Math.min(lo, v), Math.max(hi, v)], [Infinity, -Infinity]);

  // null when no series has a value.
  const chart = (title, o, all) => {
    const series = all.filter((s) => s.y.some(is));
    if (!series.length) return null;
    const [first, last] = extent(series.flatMap((s) => s.x.filter((_, i) => is(s.y[i]))));
    const [least, most] = extent(series.flatMap((s) => s.y.filter(is)));
    const y = o.log && least > 0 && most > 30 * least ? logAxis(least, most)
      : linearAxis(o.zero ? Math.min(0, least) : least, o.zero ? Math.max(0, most) : most, 5, true);
    const x = linearAxis(first, last, 6, false);
    const X = (v) => (1000 * x.at(v)).toFixed(1), Y = (v) => (1000 * (1 - y.at(v))).toFixed(1);
    const lines = series.map((s) => [
      draw("path.line.c" + s.colour + (s.faint ? ".faint" : ""), { d: path(s, X, Y) }),
      s.dots && s.x.length <= 30 && draw("path.dots.c" + s.colour, { d: dots(s, X, Y) }),
    ]);
    const range = `${count(first)} to ${count(last)}: from ${plain(least)} to ${plain(most)}`;
    const plot = make("div.plot",
      { tabindex: 0, role: "group", "aria-label": `${title} by step, ${range}; arrow keys show values` },
      draw("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" },
        draw("path.grid", { d: y.ticks.map((v) => `M0 ${Y(v)}H1000`).join("") }), lines),
      y.ticks.map((v) => make("span.ty", { style: `top:${100 * (1 - y.at(v))}%` }, tick(v))),
      x.ticks.filter(Number.isInteger) // there is no half step
        .map((v) => make("span.tx", { style: `left:${100 * x.at(v)}%` }, tick(v))));
    explore(plot, series, x, y, ...(first < last ? [first, last] : [first - 1, last + 1]));
    const notes = [o.unit, y.log && "log scale"].filter(Boolean).join(", ");
    const legend = series.filter((s) => !s.faint).map((s) => key("c" + s.colour, s.name));
    return make("figure.chart",
      make("figcaption", make("b", title), notes && make("small", " " + notes), make("span.legend", legend)), plot);
  };
  const faint = (name, colour, of) => ({ ...of, name, colour, faint: true });
  const line = (name, colour, of) => ({ ...of, name, colour });
  const dotted = (name, colour, of) => ({ ...of, name, colour, dots: true });
  const charts = (...all) => all.some(Boolean) && make("div.charts", all);

  // --- head and figures ---

  const themeButton = () => {
    const root = document.documentElement, button = make("button", { type: "button" });
    const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const dark = () => (root.dataset.theme || system()) === "dark";
    const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      label();
    });
    label();
    return button;
  };
  const STATES = {
    unfinished: ["unfinished", ".open"],
    signal: ["stopped by a signal", ".open"],
    early: ["stopped early: no more progress", ""],
  };
  const header = () => {
    const [state, kind] = (Object.hasOwn(STATES, run.state) && STATES[run.state]) || ["finished", ""];
    const f = run.facts, ranks = f.ranks >= 1 && plain(f.ranks) + (f.ranks > 1 ? " ranks" : " rank");
    const about = [f.model, f.mesh, ranks, f.device, f.precision, run.begun].filter((s) => s && typeof s === "string");
    return make("header", make("div",
      make("div", make("h1", run.name, " ", make("span.badge" + kind, state)), make("p", about.join(" · "))),
      themeButton()));
  };

  const figures = () => {
    const f = run.figures, where = run.best_epoch ? "validation, epoch " + run.best_epoch : "at the end";
    const score = (v) => is(v) && v.toFixed(4);
    const tiles = [
      ["Mean IoU", score(f.mean_iou), where],
      ["Accuracy", score(f.accuracy), where],
      ["Top-5 accuracy", score(f.top5), where],
      ["Validation loss", is(f.val_loss) && plain(f.val_loss), where],
      is(f.train_loss) ? ["Training loss", plain(f.train_loss), "mean of epoch " + run.epoch_rows.at(-1).epoch]
        : ["Training loss", is(f.steps) && plain(f.last_loss), "last step"],
      ["Training time", duration(f.seconds), count(f.steps || 0) + " steps, " + count(f.epochs) + " epochs"],
      ["Throughput", is(f.mpx_per_s) && short(f.mpx_per_s) + " Mpx/s", "all ranks"],
      ["Parameters", f.parameters >= 0 && f.parameters < 9e15 && count(f.parameters), run.facts.model],
      ["Memory per rank", is(f.used_bytes) && bytes(f.used_bytes), run.n_ranks > 1 && "the rank with the most"],
    ];
    return make("div.tiles", tiles.filter(([, value]) => value).map(([name, value, note]) =>
      make("div.tile", make("span", name), make("b", value), typeof note === "string" && make("small", note))));
  };

  // What needs attention.
  const alerts = () => {
    const f = run.figures, many = f.damaged_lines > 1;
    return [
      !is(f.steps) && !Object.keys(run.facts).length &&
        "The log has no step yet: write the report again when training has begun.",
      f.bad_losses && `The loss was not a finite number in ${f.bad_losses} of ${f.logged_steps} logged steps, ` +
        `first in step ${f.first_bad_loss}: try a smaller learning rate, or f32 instead of f16.`,
      f.damaged_lines && `${f.damaged_lines} ${many ? "lines" : "line"} of log.jsonl ${many ? "were" : "was"} damaged ` +
        "and passed over, as happens when a run is killed while it writes.",
      is(f.lost_lines) && `A part of log.jsonl is lost: when the run was resumed, it had ${f.lost_lines} unreadable ` +
        `lines and lacked ${f.lost_epochs} epochs.` + (run.lost_kept ? ` What it was then is kept as ${run.lost_kept}.` : ""),
    ].filter(Boolean).map((text) => make("p.alert", text));
  };

  // --- curves ---

  const epochTable = () => {
    const [name, member] = run.per_image ? ["top-5", "top5"] : ["mean IoU", "mean_iou"], rows = run.epoch_rows;
    const titles = ["epoch", "step", "train loss", "validation loss", "accuracy", name];
    return rows.length > 0 && make("details",
      make("summary", (rows.length < run.n_epochs ? "The last" : "All") + " epochs in numbers"),
      table(make("tr", titles.map((title) => make("th.n", title)), make("th")),
        rows.map((e) => make("tr", make("td.n", e.epoch), make("td.n", e.step),
          [e.train_loss, e.val_loss, e.accuracy, e[member]].map((v) => make("td.n", plain(v))),
          make("td", e.best && "best so far")))));
  };
  const curves = () => {
    const s = run.steps, e = run.epochs;
    const drawn = charts(
      chart("Loss", { log: true },
        [faint("each step", 1, s.loss), line("training", 1, s.loss_average), dotted("validation", 2, e.val_loss)]),
      chart("Validation", {}, [
        run.per_image ? dotted("top-5", 3, e.top5) : dotted("mean IoU", 3, e.mean_iou),
        dotted("accuracy", 4, e.accuracy),
      ]),
      chart("Learning rate", { zero: true }, [line("learning rate", 1, s.lr)]));
    return section("curves", "Curves", drawn || make("p", "The log has no step with numbers in it."), epochTable());
  };

  // --- classes ---

  const afterEpoch = (epoch) => {
    const last = run.epoch_rows.at(-1);
    return "after epoch " + epoch +
      (run.is_best && epoch === run.best_epoch ? ", the best" : last && epoch === last.epoch ? ", the last" : "");
  };
  const meter = (share, text, colour) => make("div.meter.c" + colour,
    make("span", make("i", { style: `width:${100 * Math.min(1, Math.max(0, share))}%` })), make("b", text));

  // The matrix as numbers, or null where the log has no square one.
  const confusionCounts = () => {
    const rows = list(run.confusion);
    const square = rows.length > 0 && rows.every((row) => Array.isArray(row) && row.length === rows.length);
    return square ? rows.map((row) => row.map((v) => (is(v) && v >= 0 ? v : 0))) : null;
  };
  const confusionTable = (counts) => {
    const cell = (v, all) => {
      const share = all > 0 ? v / all : 0;
      return make("td", { style: `--v:${share}` }, percent(share), make("small", plain(v)));
    };
    return make("div.card.scroll.apart", make("b", "Confusion"), " ",
      make("small", run.confusion_epoch > 0 && afterEpoch(run.confusion_epoch) + "; ",
        "rows are the truth, columns what was predicted"),
      make("table.confusion",
        make("thead", make("tr", make("th"), counts.map((_, i) => make("th", run.classes[i])))),
        make("tbody", counts.map((row, i) =>
          make("tr", make("th", run.classes[i]), row.map((v) => cell(v, sum(row))))))));
  };

  // Titles, colours and the values by class of what is known.
  const measures = (counts) => {
    const scores = run.scores || {};
    // One table, one epoch: recall and precision, which the matrix has and the lists may lack.
    const same = counts && (!run.best_epoch || !run.confusion_epoch || run.confusion_epoch === run.best_epoch);
    const shares = (of) => (same ? counts.map((row, i) => (of(i) > 0 ? row[i] / of(i) : null)) : []);
    const pick = (name, otherwise) => (list(scores[name]).some(is) ? scores[name] : otherwise);
    const all = [
      ["IoU", 3, run.per_image ? [] : list(scores.iou)],
      [run.per_image ? "F1" : "Dice", 1, list(scores.dice)],
      ["accuracy (recall)", 4, pick("class_accuracy", shares((i) => sum(counts[i])))],
      ["precision", 2, pick("precision", shares((i) => sum(counts.map((row) => row[i]))))],
    ];
    return all.filter(([, , values]) => values.some(is));
  };
  const classTable = (known) => {
    const mean = (values) => {
      const all = values.slice(0, run.classes.length).filter(is);
      return all.length ? sum(all) / all.length : null;
    };
    const swatch = (i) => /^#[0-9a-f]{6}$/i.test(list(run.palette)[i]) &&
      make("i.swatch", { style: "background:" + run.palette[i] });
    const cell = (v, colour) => make("td", is(v) ? meter(v, v.toFixed(3), colour) : "–");
    return table(make("tr", make("th", "class"), known.map(([title]) => make("th", title))),
      run.classes.map((name, i) => make("tr", make("td.wrap", swatch(i), name),
        known.map(([, colour, values]) => cell(values[i], colour)))),
      make("tr.mean", make("td", "mean"), known.map(([, colour, values]) => cell(mean(values), colour))));
  };
  const classes = () => {
    const counts = confusionCounts(), known = measures(counts), n = run.classes.length;
    return section("classes", "Classes",
      !known.length && make("p", "No validation has been done yet."),
      known.length > 0 && run.best_epoch > 0 && make("p", "On the validation images, " + afterEpoch(run.best_epoch) + "."),
      known.length > 0 && classTable(known),
      n < run.n_classes && make("p.note", `The first ${n} of ${run.n_classes} classes.`),
      counts && confusionTable(counts));
  };

  // --- domains ---

  const domainNames = list(run.domains).map((d, k) => (k ? "target " + k : "source"));
  const domainColour = (k) => 1 + (k % 8);
  const domainTable = () => {
    const columns = run.per_image ? [["accuracy", "accuracy"]] : [["mean IoU", "mean_iou"], ["accuracy", "accuracy"]];
    const cell = (d, name, k) => make("td", d.scores && is(d.scores[name])
      ? meter(d.scores[name], d.scores[name].toFixed(3), domainColour(k)) : "–");
    return table(make("tr", ["domain", "data"].map((name) => make("th", name)), columns.map(([name]) => make("th", name)),
        make("th.n", "loss")),
      run.domains.map((d, k) => make("tr", make("td", key("box.c" + domainColour(k), domainNames[k])), make("td.wrap", d.data),
        columns.map(([, name]) => cell(d, name, k)), make("td.n", plain(d.scores && d.scores.loss)))));
  };
  // Points of each domain, [x, y, x, y, ...], on axes of one scale.
  const scatter = (title, all, share) => {
    const pairs = list(all).map((flat) => list(flat).reduce((to, x, i) =>
      (i % 2 === 0 && is(x) && is(flat[i + 1]) ? [...to, [x, flat[i + 1]]] : to), []));
    const most = Math.max(0, ...pairs.flat(2).map(Math.abs));
    if (!(most > 0)) return null;
    const at = (v) => (500 + (480 * v) / most).toFixed(0);
    const parts = list(share).map((v) => (is(v) ? percent(v) : "–")).join(" and ");
    return make("figure.chart.square",
      make("figcaption", make("b", title), parts && make("small", ` ${parts} of the variance`),
        make("span.legend", pairs.map((_, k) => key("box.c" + domainColour(k), domainNames[k])))),
      make("div.plot", draw("svg", { viewBox: "0 0 1000 1000", role: "img", "aria-label": title + " by domain" },
        draw("path.grid", { d: "M0 500H1000M500 0V1000" }),
        pairs.map((points, k) => draw("path.points.c" + domainColour(k),
          { d: points.map(([x, y]) => `M${at(x)} ${at(-y)}h.1`).join("") })))));
  };
  const rebuilt = (r) => make("div.card.sample",
    make("h3", make("span", key("box.c" + domainColour(r.domain), domainNames[r.domain] || "domain"))),
    make("div.triple.four", [["image", "input"], ["shared", "shared code"], ["private", "private code"], ["both", "both"]]
      .map(([kind, name]) => make("figure", picture({ ...r, name: domainNames[r.domain] }, kind), make("figcaption", name)))));
  const domains = () => {
    if (!list(run.domains).length) return null;
    const codes = run.codes || {}, n = run.domains.length, all = list(run.reconstructions);
    const drawn = charts(
      chart(run.per_image ? "Accuracy" : "Mean IoU", {},
        run.domains.map((d, k) => dotted(domainNames[k], domainColour(k), d.curve))),
      scatter("Shared codes", codes.shared, codes.shared_share),
      scatter("Private codes", codes.private, codes.private_share));
    return section("domains", "Domains",
      make("p", "Validation images of each domain" + (run.best_epoch > 0 ? ", " + afterEpoch(run.best_epoch) : "") +
        "; labels of targets are used for this alone. Codes are shown by their first two principal components: " +
        "where adaptation works, the shared codes of the domains lie among each other."),
      domainTable(), n < run.n_domains && make("p.note", `The first ${n} of ${run.n_domains} domains.`), drawn,
      all.length > 0 && make("p.apart", "Validation images as the decoder rebuilds them from the shared code alone, the " +
        "private code alone, and both; each picture from its darkest to its brightest value."),
      all.length > 0 && make("div.samples", all.map(rebuilt)));
  };

  // --- samples ---

  const picture = (s, kind) =>
    (s[kind] ? make("img", { alt: kind + " of " + s.name, src: s[kind] }) : make("div.none", "not there"));
  const triple = (s) => make("div.card.sample",
    make("h3", make("span", s.name || "without a name"), is(s.mean_iou) && make("b", "IoU " + s.mean_iou.toFixed(3))),
    make("div.triple", ["image", "label", "prediction"].map((kind) =>
      make("figure", picture(s, kind), make("figcaption", kind)))));
  // A classifier's: the image, what it is and what it was taken for.
  const verdict = (s) => make("figure.card.verdict", picture(s, "image"),
    make("figcaption", make("b", s.truth), ", taken for ", make("b", s.guess || "another"), make("small", s.name)));
  const samples = () => {
    const all = run.samples, n = all.length, epoch = n && all[0].epoch;
    const none = run.state === "unfinished" ? "None yet: they are chosen when a run ends." : "This run kept none.";
    if (!run.n_samples) return section("samples", "Samples", make("p", none));
    return section("samples", "Samples",
      make("p", "Validation images, the worst first" + (epoch > 0 ? `, after epoch ${epoch}, the last.` : ".")),
      make(n && all[0].truth ? "div.verdicts" : "div.samples", all.map((s) => (s.truth ? verdict(s) : triple(s)))),
      n < run.n_samples && make("p.note", `The ${n} worst of ${run.n_samples}; the others are in the folder samples/.`));
  };

  // --- memory ---

  const memory = () => {
    const ranks = list(run.ranks).filter((r) => r && typeof r === "object"), n = ranks.length;
    const most = Math.max(0, ...ranks.flatMap((r) => [r.planned_bytes, r.used_bytes]).filter(is));
    const bar = (v, colour) => make("i.c" + colour, { style: `width:${v > 0 ? (100 * v) / most : 0}%` });
    const change = (r) => {
      if (!(r.planned_bytes > 0 && is(r.used_bytes))) return "–";
      const more = 100 * (r.used_bytes / r.planned_bytes - 1);
      return (more < 0 ? "" : "+") + more.toFixed(1) + "%";
    };
    if (!(most > 0))
      return section("memory", "Memory", make("p", "The log does not say what each rank planned and used."));
    const legend = make("span.legend.left", key("box.c1", "planned"), key("box.c3", "used"));
    return section("memory", "Memory",
      make("p", "What the plan said before the run, and what each rank then used."),
      table(
        make("tr", make("th.n", "rank"), make("th", legend),
          ["planned", "used", "difference"].map((name) => make("th.n", name))),
        ranks.map((r) => make("tr", make("td.n", plain(r.rank)),
          make("td.half", make("div.bar2", bar(r.planned_bytes, 1), bar(r.used_bytes, 3))),
          [bytes(r.planned_bytes), bytes(r.used_bytes), change(r)].map((text) => make("td.n", text))))),
      n < run.n_ranks && make("p.note", `The first ${n} of ${run.n_ranks} ranks.`));
  };

  // --- time ---

  // Parts are [name, colour, seconds].
  const stack = (title, note, parts) => {
    const all = sum(parts.map((part) => part[2])) || 1;
    const bar = ([, colour, s]) => make("i.c" + colour, { style: `width:${(100 * s) / all}%` });
    const text = ([name, colour, s]) =>
      key("box.c" + colour, name, " ", make("b", seconds(s)), " ", make("small", percent(s / all)));
    return make("div.card.stacked", make("b", title), " ", make("small", note),
      make("div.stack", parts.filter((part) => part[2] > 0).map(bar)), make("div.split", parts.map(text)));
  };
  const split = (mean) => {
    const known = [["compute", 1, mean.compute_ms / 1000], ["communication", 2, mean.comm_ms / 1000],
      ["input", 4, mean.input_ms / 1000]];
    // What overlaps is counted twice, and then nothing is left over.
    const other = Math.max(0, mean.ms / 1000 - sum(known.map((part) => part[2])));
    const foretold = (run.facts.foretold || {}).step_seconds;
    return stack("The mean step", (foretold > 0 ? `took ${seconds(mean.ms / 1000)}, foretold ${seconds(foretold)}; ` : "") +
      "communication is what a rank waits for, input what the loader is waited for", [...known, ["other", 0, other]]);
  };
  const wall = (by) => {
    const parts = [["start-up", 2, by.startup], ["steps", 1, by.steps], ["input", 4, by.input],
      ["validation", 3, by.validation], ["checkpoints", 5, by.checkpoints], ["rest", 0, by.rest]];
    return parts.every((part) => part[2] >= 0 && part[2] < 1e12) &&
      stack("The command", "its wall time; checkpoints: what training waited for them", parts);
  };
  const staleness = () => {
    const counts = list(run.staleness).map((v) => (is(v) && v >= 0 ? v : 0)), all = sum(counts);
    const row = (v, behind) => make("tr", make("td.n", behind), make("td.n", count(v)),
      make("td", meter(v / all, percent(v / all), 0)));
    return all > 0 && make("div.card.scroll.apart", make("b", "Staleness"), " ",
      make("small", "gradients that the server applied, by how many updates they were behind"),
      make("table", make("tr", make("th.n", "behind"), make("th.n", "gradients"), make("th", "share")),
        counts.slice(0, 64).map(row)));
  };
  const timeline = () => run.timeline && make("div.card.apart", make("b", "The last step of every rank"),
    make("img.timeline", {
      alt: "what each rank computed, what was in flight meanwhile, and when it waited",
      src: run.timeline,
    }));
  const time = () => {
    const s = run.steps;
    const drawn = charts(
      chart("Throughput", { unit: "Mpx/s", zero: true },
        [faint("each step", 3, s.mpx_per_s), line("average", 3, s.mpx_per_s_average)]),
      chart("Step time", { unit: "ms", zero: true }, [
        line("compute", 1, s.compute_ms_average),
        line("communication", 2, s.comm_ms_average),
        line("input", 4, s.input_ms_average),
      ]));
    return section("time", "Time", run.seconds_by && wall(run.seconds_by), run.mean_ms && split(run.mean_ms), drawn,
      !drawn && !run.mean_ms && make("p", "The log has no times."), staleness(), timeline());
  };

  // --- the network ---

  const network = () => run.network && section("network", "Network", make("div.card.scroll",
    make("img.network", {
      alt: "the layers of the network, by resolution from the image downwards, with its skips",
      src: run.network,
    })));

  // --- config and environment ---

  const factText = (v) => (typeof v === "boolean" ? (v ? "yes" : "no") : is(v) ? plain(v) : v);
  const factRows = (facts, before = "") => Object.entries(facts).filter(([, v]) => v !== null).map(([name, v]) =>
    (typeof v === "object" ? factRows(v, name === "foretold" ? "foretold " : "") : make("tr", make("td", before + name), make("td.wrap", factText(v)))));
  const setup = () => {
    const times = run.resumed + (run.resumed > 1 ? " times" : " time");
    return section("setup", "Config and environment", make("div.two",
      make("div.card", make("p.note", "config.yaml"),
        make("pre", run.config || "There is none, or it is too long to be shown here.")),
      table(factRows(run.facts), run.resumed > 0 && make("tr", make("td", "resumed"), make("td", times)))));
  };

  const links = Object.entries(
    { curves: "Curves", classes: "Classes", ...(list(run.domains).length && { domains: "Domains" }), samples: "Samples", ...(run.network && { network: "Network" }), memory: "Memory", time: "Time", setup: "Config" });
  document.body.append(header(),
    make("nav", make("div", links.map(([id, name]) => make("a", { href: "#" + id }, name)))),
    make("main", alerts(), figures(), curves(), classes(), domains(), samples(), network(), memory(), time(), setup(),
      make("footer", `Written by widefield ${run.version} from log.jsonl; everything is in this file.`)));
})();
