// Keys, selection of rows, and what falls due as a chart. Every page works without it.
(() => {
  const typing = (element) => element && (element.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName));
  document.addEventListener("keydown", (event) => {
    const find = document.getElementById("find");
    if (event.key === "/" && find && !typing(document.activeElement) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      find.focus();
      find.select();
    } else if (event.key === "Escape" && document.activeElement === find) {
      find.blur();
    }
  });

  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches("[data-select-all]")) {
      for (const one of box.closest("form").querySelectorAll("input[name=id]")) one.checked = box.checked;
    }
  });

  // --- charts ---
  const tone = (name) => {
    const probe = document.createElement("span");
    probe.className = `tone ${name}`;
    probe.hidden = true;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const whole = new Intl.NumberFormat("en");
  const two = (number) => String(number).padStart(2, "0");
  const days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const clock = (s, span) => {
    const at = new Date(s * 1000);
    const time = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
    return span > 90000 ? `${days[at.getUTCDay()]} ${time}` : time;
  };

  const plots = new Map();
  const tip = (names, span) => {
    let box;
    return { hooks: {
      init: (plot) => { box = document.createElement("div"); box.className = "tip"; box.hidden = true; plot.over.append(box); },
      setCursor: (plot) => {
        const { idx, left, top } = plot.cursor;
        box.hidden = idx == null || left < 0;
        if (box.hidden) return;
        box.replaceChildren();
        const head = document.createElement("b");
        head.textContent = `${clock(plot.data[0][idx], span)} UTC`;
        box.append(head);
        names.forEach(({ label, values }) => {
          const line = document.createElement("div");
          line.textContent = `${label} ${whole.format(Math.round(values[idx]))}`;
          box.append(line);
        });
        const right = left + box.offsetWidth + 16 > plot.over.clientWidth;
        box.style.left = `${right ? left - box.offsetWidth - 12 : left + 12}px`;
        box.style.top = `${Math.max(0, Math.min(top, plot.over.clientHeight - box.offsetHeight))}px`;
      },
    } };
  };

  const draw = (element) => {
    plots.get(element)?.destroy();
    const given = JSON.parse(element.dataset.chart);
    const span = given.x[given.x.length - 1] - given.x[0];
    const axis = tone("axis"), grid = tone("grid"), bars = uPlot.paths.bars({ size: [0.72, 64], align: 1, radius: 0.1 });
    const data = [given.x], series = [{}];
    for (const one of given.series) {
      const color = tone(one.tone), isBar = one.as === "bars";
      data.push(one.stacked || one.values);
      series.push({
        label: one.label, stroke: color, width: isBar ? 0 : 2, points: { show: false },
        dash: one.as === "limit" ? [5, 5] : undefined, scale: one.scale || "y",
        ...(isBar ? { fill: color, paths: bars } : one.as === "limit" ? {} : { paths: uPlot.paths.linear() }),
      });
    }
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const common = { stroke: axis, font, labelFont: font, labelSize: 18, labelGap: 2, ticks: { show: false } };
    const values = (_, splits) => splits.map((value) => short.format(value));
    const incrs = [1, 2, 5].flatMap((step) => [...Array(12).keys()].map((power) => step * 10 ** power)).sort((a, b) => a - b);
    const axes = [
      { ...common, grid: { show: false }, size: 30, values: (_, splits) => splits.map((value) => clock(value, span)), space: 72 },
      { ...common, label: "envelopes", grid: { stroke: grid, width: 1 }, size: 40, values, space: 36, incrs },
    ];
    const scales = { x: { time: true, range: [given.x[0], given.x[given.x.length - 1] + (given.x[1] - given.x[0])] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } };
    if (given.series.some((one) => one.scale === "backlog")) {
      axes.push({ ...common, label: "backlog", scale: "backlog", side: 1, grid: { show: false }, size: 40, values, space: 36, incrs });
      scales.backlog = { range: (_, __, most) => [0, Math.max(1, most * 1.1)] };
    }
    element.replaceChildren();
    plots.set(element, new uPlot({
      width: element.clientWidth, height: Number(element.dataset.height) || 240, axes, scales, series, legend: { show: false },
      tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"),
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } }, plugins: [tip(given.series, span)],
    }, data, element));
  };

  const all = () => document.querySelectorAll("[data-chart]").forEach(draw);
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = plots.get(target);
      if (plot && target.clientWidth && plot.width !== target.clientWidth) plot.setSize({ width: target.clientWidth, height: plot.height });
    }
  });
  const begin = () => {
    for (const [element, plot] of plots) if (!element.isConnected) { plot.destroy(); plots.delete(element); resized.unobserve(element); }
    document.querySelectorAll("[data-chart]").forEach((element) => {
      if (!plots.has(element)) { draw(element); resized.observe(element); }
    });
  };
  document.addEventListener("DOMContentLoaded", begin);

  // --- pages that refresh themselves: not while hidden, nor under a person's hands ---
  const live = () => document.querySelector("[data-live-page]");
  document.addEventListener("htmx:beforeRequest", (event) => {
    const part = live();
    if (part && event.target === part && (document.hidden || part.contains(document.activeElement) || part.querySelector("details[open]"))) event.preventDefault();
  });
  const away = () => document.querySelectorAll("[data-live]").forEach((one) => {
    one.textContent = "not live";
    one.parentElement.className = "chip warn";
  });
  document.addEventListener("htmx:responseError", away);
  document.addEventListener("htmx:sendError", away);
  document.addEventListener("htmx:afterSettle", begin);
  document.addEventListener("themechange", all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
})();
