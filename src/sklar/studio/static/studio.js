"use strict";
// The live parts of the pages. Every page works without them; no library, no network but the studio itself.

// Figures of another epsilon must not stand beside the one that was typed.
const forget = (told) => {
  for (const id of ["buys", "preview", "means", "asked", "use"]) document.getElementById(id)?.replaceChildren();
  if (!told) return;
  const line = document.createElement("p");
  line.className = "said failed";
  line.textContent = told;
  document.getElementById("buys")?.append(line);
};
// Say that nobody answers, once, above what asked.
const unheard = (part) => {
  forget("");
  if (document.getElementById("unheard")) return;
  const told = document.createElement("p");
  told.id = "unheard";
  told.className = "said failed";
  told.setAttribute("role", "alert");
  told.textContent = `The studio does not answer.${part.dataset.live ? " The release goes on without it." : ""} Start sklar studio again in the same folder, and open its address: nothing that was saved is lost.`;
  part.before(told);
};
// A form that nobody would take is not sent: what was typed stays.
for (const form of document.querySelectorAll("form[method=post]")) {
  let heard = false;
  form.addEventListener("submit", (event) => {
    if (heard) return;
    event.preventDefault();
    // What takes long shows that it is under way, until the next page comes.
    const busy = document.createElement("progress");
    busy.setAttribute("aria-label", "Under way");
    const soon = setTimeout(() => form.append(busy), 500);
    window.addEventListener("pagehide", () => [clearTimeout(soon), busy.remove()]);
    fetch("/static/icon.svg")
      .then(() => {
        heard = true;
        form.requestSubmit(event.submitter);
        heard = false;
      })
      .catch(() => [clearTimeout(soon), busy.remove(), unheard(form)]);
  });
}

// Parts that are fetched once, after the page: [data-later].
for (const part of document.querySelectorAll("[data-later]")) {
  fetch(part.dataset.later)
    .then((answer) => (answer.ok ? answer.text() : Promise.reject(answer)))
    .then((text) => {
      part.innerHTML = text;
      part.dispatchEvent(new CustomEvent("filled", { bubbles: true }));
    })
    .catch(() => {
      part.textContent = "This part could not be fetched. Reload the page.";
    });
}

// Work under way: [data-live] is fetched again and again; when the work is over, the page is loaded anew.
for (const part of document.querySelectorAll("[data-live]")) {
  const look = () => {
    fetch(part.dataset.live)
      .then((answer) => (answer.ok ? answer.text() : Promise.reject(answer)))
      .then((text) => {
        part.innerHTML = text;
        const state = part.querySelector("[data-state]");
        if (state && state.dataset.state !== "running") location.replace(location.pathname);
        else setTimeout(look, 700);
      })
      .catch(() => {
        unheard(part);
        setTimeout(look, 2000);
      });
  };
  setTimeout(look, 700);
}
// A large table that is being read: its form goes on by itself.
for (const told of document.querySelectorAll("[data-reading]")) {
  const look = () => {
    fetch(told.dataset.reading)
      .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer)))
      .then((found) => {
        told.textContent = `${found.rows.toLocaleString("en")} rows were read.`;
        if (found.over) document.querySelector("main form").requestSubmit();
        else setTimeout(look, 700);
      })
      .catch(() => setTimeout(look, 2000));
  };
  look();
}
// Rows that are read while cards are shown: say when they are, and leave alone what is being typed.
for (const told of document.querySelectorAll("[data-looking]")) {
  const look = () => {
    fetch(told.dataset.looking)
      .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer)))
      .then((found) => {
        if (!found.over) {
          setTimeout(look, 1000);
          return;
        }
        const again = document.createElement("a");
        again.href = location.pathname + location.search;
        again.textContent = "Load the page again";
        told.replaceChildren("The rows have been read. ", again, " to see what they show.");
      })
      .catch(() => setTimeout(look, 3000));
  };
  setTimeout(look, 1000);
}
if (document.querySelector("[data-wait]")) setTimeout(() => location.reload(), 1200);

// A filter over a list on the page: [data-filter] names its items.
for (const field of document.querySelectorAll("[data-filter]")) {
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const item of document.querySelectorAll(field.dataset.filter)) {
      item.hidden = !item.textContent.toLowerCase().includes(wanted);
    }
  });
}

// On a phone the bar of steps is wider than the screen: show the present one.
const bar = document.querySelector(".steps");
const present = bar && bar.querySelector(".here");
const centered = () => {
  if (present) bar.scrollLeft = present.offsetLeft - (bar.clientWidth - present.offsetWidth) / 2;
};
centered();
window.addEventListener("resize", centered);

// What an address points to gets the focus, so that the keyboard goes on from there.
if (location.hash) {
  const place = document.getElementById(location.hash.slice(1));
  const heading = place && (place.matches("[tabindex]") ? place : place.querySelector("[tabindex]"));
  if (heading) heading.focus({ preventScroll: true });
}

// The column whose card is open is in sight, where its card stands beside the list.
if (location.hash === "#card" && matchMedia("(min-width: 64rem)").matches) {
  document.querySelector(".columns .here")?.scrollIntoView({ block: "center" });
}

// The plan: a slider over epsilons, and what each buys.
const plan = document.querySelector("[data-plan]");
if (plan) {
  const epsilons = plan.dataset.epsilons.split(",").map(Number);
  const slider = plan.querySelector("[data-slider]");
  const exact = plan.querySelector("[data-epsilon]");
  let last = 0;
  let waiting = 0;
  const same = document.querySelector("[data-same]");
  const ask = () => {
    same.value = exact.value;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const number = ++last;
      fetch(`${plan.dataset.plan}?epsilon=${encodeURIComponent(exact.value)}`)
        .then((answer) => (answer.ok ? answer.text() : Promise.reject(answer)))
        .then((text) => {
          if (number !== last) return;
          const parts = document.createElement("template");
          parts.innerHTML = text;
          for (const part of parts.content.querySelectorAll("[id]")) {
            const old = document.getElementById(part.id);
            if (!old) continue;
            // Whoever has come to its button by the keyboard stays there.
            const held = old.contains(document.activeElement);
            old.replaceChildren(...part.childNodes);
            if (held) old.querySelector("button")?.focus();
          }
        })
        .catch(() => unheard(plan));
    }, 60);
  };
  slider.addEventListener("input", () => {
    exact.value = epsilons[Number(slider.value)];
    slider.setAttribute("aria-valuetext", exact.value);
    ask();
  });
  exact.addEventListener("input", () => {
    const wanted = Number(exact.value);
    if (!(wanted >= 0.001 && wanted <= 1000)) {
      clearTimeout(waiting);
      last += 1;
      forget(`Epsilon must be a number from 0.001 to 1000, not “${exact.value}”.`);
      return;
    }
    let nearest = 0;
    epsilons.forEach((each, place) => {
      if (Math.abs(Math.log(each / wanted)) < Math.abs(Math.log(epsilons[nearest] / wanted))) nearest = place;
    });
    slider.value = nearest;
    slider.setAttribute("aria-valuetext", exact.value);
    ask();
  });
}

// Cards: what a column costs with the answer that is being given.
for (const form of document.querySelectorAll("form[data-cost]")) {
  const shown = form.querySelector(".cost");
  let last = 0;
  let waiting = 0;
  const ask = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (!form.querySelector("[name=choice]:checked")) return;
      const number = ++last;
      const body = new URLSearchParams(new FormData(form));
      fetch(form.dataset.cost, { method: "POST", body })
        .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer)))
        .then((found) => {
          if (number !== last) return;
          const lines = found.problem ? [found.problem] : found.told;
          shown.classList.toggle("problem", Boolean(found.problem));
          shown.replaceChildren(
            ...lines.map((line) => {
              const text = document.createElement("p");
              text.textContent = line;
              return text;
            }),
          );
        })
        .catch(() => {});
    }, 200);
  };
  form.addEventListener("input", ask);
  form.addEventListener("change", ask);
  // Typing an answer chooses it.
  for (const typed of form.querySelectorAll(".typed input, .typed textarea, .typed select")) {
    typed.addEventListener("input", () => {
      const choice = typed.closest(".choice").querySelector("[name=choice]");
      if (!choice.checked) choice.checked = true;
    });
  }
  form.addEventListener("focusin", ask, { once: true });
}
