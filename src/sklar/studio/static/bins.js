"use strict";
// The bins of a column as a picture: bars of what the rows show, and edges that can be dragged, or moved by the keyboard.
// The text field below holds the same edges; either may be changed, and the other follows.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 480;
const HEIGHT = 184;
const BASE = 124;
const LEFT = 40;
const DAY = 86400000;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

function draw(room) {
  const given = JSON.parse(room.dataset.bins);
  const form = room.closest("form");
  const field = form.querySelector(given.bounds ? "[data-bounds]" : "[data-edges]") || form.querySelector("[data-edges]");
  if (!field) return;
  const days = given.kind === "date";
  const whole = given.kind !== "real";
  const number = (text) => (days ? Date.parse(`${text}T00:00Z`) / DAY : Number(text));
  const written = (value) => {
    if (days) return new Date(Math.round(value) * DAY).toISOString().slice(0, 10);
    if (whole) return String(Math.round(value));
    return String(Number(value.toPrecision(6)));
  };
  // As people write numbers; a field holds them as files do.
  const shown = (value) =>
    days || given.kind === "year" ? written(value) : Number(written(value)).toLocaleString("en", { maximumSignificantDigits: 6 });
  const { low, high } = given;
  const span = high - low || 1;
  const grain = whole ? Math.max(1, Math.round(span / 100)) : span / 100;
  const room_wide = WIDTH - LEFT - 12;
  const x = (value) => LEFT + (room_wide * (Math.min(Math.max(value, low), high) - low)) / span;
  let edges = given.edges.map(number);
  let chosen = 0;

  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", class: "picture" });
  svg.setAttribute("aria-label", `Bins of ${room.dataset.name}: move an edge with the arrow keys, Delete removes it`);
  const most = Math.max(...given.bars.map((bar) => bar[2]), 1e-9);
  for (const [first, last, share, told] of given.bars) {
    const tall = (96 * share) / most;
    const wide = Math.max(x(last) - x(first) - 1, 0.5);
    const bar = element("rect", { class: "bar", x: x(first), y: BASE - tall, width: wide, height: tall }, svg);
    element("title", {}, bar).textContent = `${told} of the rows`;
    if (share === most) {
      element("line", { class: "axis", x1: LEFT, y1: BASE - tall, x2: WIDTH - 12, y2: BASE - tall }, svg);
      element("text", { class: "soft", x: LEFT - 5, y: BASE - tall + 4, "text-anchor": "end", "font-size": 12 }, svg).textContent = told;
    }
  }
  element("line", { class: "axis", x1: LEFT, y1: BASE, x2: WIDTH - 12, y2: BASE }, svg);
  for (const [value, label] of given.ticks) {
    const at = x(value);
    element("line", { class: "axis", x1: at, y1: BASE, x2: at, y2: BASE + 5 }, svg);
    const near = at < LEFT + 20 ? "start" : at > WIDTH - 30 ? "end" : "middle";
    element("text", { class: "soft", x: at, y: BASE + 23, "text-anchor": near, "font-size": 12 }, svg).textContent = label;
  }
  const handles = element("g", {}, svg);

  const tell = () => {
    field.value = edges.map(written).join(", ");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const bounded = (place, value) => {
    const step = whole ? 1 : span / 1e6;
    const least = place > 0 ? edges[place - 1] + step : -Infinity;
    const largest = place < edges.length - 1 ? edges[place + 1] - step : Infinity;
    return Math.min(Math.max(whole ? Math.round(value) : value, least), largest);
  };
  const move = (place, value) => {
    edges[place] = bounded(place, value);
    tell();
    show();
  };
  const remove = (place) => {
    if (edges.length <= 2 || given.bounds) return;
    edges.splice(place, 1);
    tell();
    show();
    focus(Math.min(place, edges.length - 1));
  };
  const add = (value) => {
    const next = whole ? Math.round(value) : value;
    if (given.bounds || edges.includes(next)) return;
    edges = [...edges, next].sort((a, b) => a - b);
    tell();
    show();
    focus(edges.indexOf(next));
  };
  const focus = (place) => {
    chosen = place;
    const handle = handles.children[place];
    if (handle) handle.focus();
  };

  function show() {
    const held = handles.contains(document.activeElement);
    handles.replaceChildren();
    let told = -Infinity;
    edges.forEach((value, place) => {
      const at = x(value);
      const beyond = value < low ? "below" : value > high ? "above" : "";
      const handle = element("g", { class: `edge ${beyond}`, tabindex: "0", role: "slider" }, handles);
      handle.setAttribute("aria-label", `Edge ${place + 1} of ${edges.length} of ${room.dataset.name}`);
      handle.setAttribute("aria-valuemin", String(Math.min(low, edges[0])));
      handle.setAttribute("aria-valuemax", String(Math.max(high, edges[edges.length - 1])));
      handle.setAttribute("aria-valuenow", String(value));
      handle.setAttribute("aria-valuetext", written(value));
      element("line", { x1: at, y1: 8, x2: at, y2: BASE }, handle);
      element("rect", { class: "grip", x: at - 5, y: BASE - 2, width: 10, height: 12, rx: 3 }, handle);
      // A larger place to take hold of, which is not seen.
      element("rect", { class: "hold", x: at - 9, y: 0, width: 18, height: HEIGHT }, handle);
      const last = place === edges.length - 1;
      const room_left = x(edges[edges.length - 1]) - at > 56;
      if (last || (at - told > 56 && room_left) || place === 0) {
        told = at;
        const near = at < LEFT + 30 ? "start" : at > WIDTH - 40 ? "end" : "middle";
        const text = element("text", { x: at, y: place === 0 && edges.length > 1 ? HEIGHT - 22 : HEIGHT - 6, "text-anchor": near, "font-size": 12 }, handle);
        const times = Math.floor((beyond === "below" ? low - value : value - high) / span);
        const far = beyond && times > 1 ? ` (${times.toLocaleString("en")} times beyond what is drawn)` : "";
        text.textContent = `${beyond === "below" ? "◂ " : ""}${shown(value)}${far}${beyond === "above" ? " ▸" : ""}`;
      }
      handle.addEventListener("keydown", (event) => {
        const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
        if (event.key in steps) {
          event.preventDefault();
          chosen = place;
          move(place, edges[place] + steps[event.key] * grain);
        } else if (event.key === "Delete" || event.key === "Backspace") {
          event.preventDefault();
          remove(place);
        }
      });
      handle.addEventListener("focus", () => {
        chosen = place;
      });
      handle.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        chosen = place;
        const box = svg.getBoundingClientRect();
        const value_at = (moved) => low + (((moved.clientX - box.left) / box.width) * WIDTH - LEFT) * (span / room_wide);
        const follow = (moved) => move(place, value_at(moved));
        const end = () => {
          window.removeEventListener("pointermove", follow);
          window.removeEventListener("pointerup", end);
          focus(place);
        };
        window.addEventListener("pointermove", follow);
        window.addEventListener("pointerup", end);
      });
    });
    if (held) focus(Math.min(chosen, edges.length - 1));
  }

  svg.addEventListener("dblclick", (event) => {
    const box = svg.getBoundingClientRect();
    add(low + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) * (span / room_wide));
  });
  field.addEventListener("input", (event) => {
    if (!event.isTrusted) return;
    const typed = field.value.split(",").map((text) => number(text.trim()));
    if (typed.length > 1 && typed.every(Number.isFinite)) {
      edges = typed;
      show();
    }
  });

  room.replaceChildren(svg);
  if (given.bounds && !days && given.kind !== "year") {
    // Round numbers that anybody may know as limits, none of them below what was seen.
    const largest = Math.max(...(given.seen.length ? given.seen : [low, high]).map(Math.abs), 1);
    const size = 10 ** Math.floor(Math.log10(largest));
    const told = document.createElement("p");
    told.className = "small round";
    told.append("Round bounds: ");
    for (const times of [1, 2, 5, 10, 100, 1000]) {
      const most = times * size;
      if (most < largest) continue;
      const least = number(given.edges[0]) < 0 ? -most : 0;
      const choose = document.createElement("button");
      choose.type = "button";
      choose.className = "small";
      choose.textContent = `${least.toLocaleString("en")} to ${most.toLocaleString("en")}`;
      choose.addEventListener("click", () => {
        edges = [least, most];
        tell();
        show();
      });
      told.append(choose, " ");
    }
    room.append(told);
  }
  if (!given.bounds) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "small";
    more.textContent = "Add an edge";
    more.addEventListener("click", () => {
      // In the middle of the bin with the most rows on the picture, so that the picture shows it.
      let best = 0;
      let rows = -1;
      for (let place = 0; place + 1 < edges.length; place += 1) {
        const inside = given.bars.reduce((sum, [first, last, share]) => {
          const middle = (first + last) / 2;
          return middle >= edges[place] && middle < edges[place + 1] ? sum + share : sum;
        }, 0);
        if (inside > rows && edges[place + 1] - edges[place] > (whole ? 1 : 0)) {
          rows = inside;
          best = place;
        }
      }
      add((Math.max(edges[best], low) + Math.min(edges[best + 1], high)) / 2);
    });
    room.append(more);
  }
  show();
}

for (const room of document.querySelectorAll("[data-bins]")) draw(room);
