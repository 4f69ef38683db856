"use strict";

// Plots were drawn while the page was read, before their columns had their widths.
for (const chart of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(chart);

// Tables: a click on a heading sorts by it, a second click turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort((one, other) => sign * compared(one.cells[column], other.cells[column]));
    // Cells without a number stay last in either order.
    const last = rows.filter((row) => value(row.cells[column]) === null);
    table.tBodies[0].append(...rows.filter((row) => !last.includes(row)), ...last);
  }));
}

function value(cell) {
  const text = cell.textContent.trim();
  if (!cell.classList.contains("number")) return text;
  const number = parseFloat(text.replaceAll(",", "").replace("−", "-"));
  return Number.isNaN(number) ? null : number;
}

function compared(one, other) {
  const [a, b] = [value(one), value(other)];
  if (a === null || b === null) return 0;
  return typeof a === "number" ? a - b : a.localeCompare(b);
}

// Pictures: two rows' images of a prompt, one over the other, and their difference.
const data = JSON.parse(document.getElementById("data").textContent);
if (data.prompts.length) {
  const at = (id) => document.getElementById(id);
  const label = Object.fromEntries(data.rows.map((row) => [row.name, row.label]));
  const least = (prompt) => Math.min(Infinity, ...Object.values(prompt.psnr));

  function option(select, value, text) {
    const element = document.createElement("option");
    element.value = value;
    element.textContent = text;
    select.append(element);
  }

  function listPrompts() {
    const prompts = [...data.prompts];
    if (at("worst").checked) prompts.sort((one, other) => least(one) - least(other));
    at("prompt").replaceChildren();
    for (const prompt of prompts) {
      const suffered = Number.isFinite(least(prompt)) ? ` (${least(prompt).toFixed(1)} dB)` : "";
      option(at("prompt"), data.prompts.indexOf(prompt), prompt.text + suffered);
    }
  }

  function move() {
    at("above").style.clipPath = `inset(0 ${100 - at("position").value}% 0 0)`;
    at("edge").style.left = `${at("position").value}%`;
  }

  async function show() {
    const prompt = data.prompts[at("prompt").value];
    const [left, right] = [at("left").value, at("right").value];
    at("caption").textContent = `“${prompt.text}”, seed ${prompt.seed}`;
    at("left-name").textContent = label[left];
    at("right-name").textContent = label[right];
    at("above").src = prompt.images[left] ?? "";
    at("below").src = prompt.images[right] ?? "";
    at("above").alt = `${prompt.text}, by ${label[left]}`;
    at("below").alt = `${prompt.text}, by ${label[right]}`;
    if (!prompt.images[left] || !prompt.images[right]) {
      at("measured").textContent = "One of the two pictures is missing.";
      return;
    }
    await Promise.all([at("above").decode(), at("below").decode()]);
    difference();
  }

  function pixels(image) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, canvas.width, canvas.height);
  }

  function difference() {
    const [one, other] = [pixels(at("above")), pixels(at("below"))];
    const canvas = at("difference");
    [canvas.width, canvas.height] = [one.width, one.height];
    const gain = Number(at("gain").value);
    const out = new ImageData(one.width, one.height);
    let squares = 0;
    for (let i = 0; i < out.data.length; i += 4) {
      for (let c = 0; c < 3; c += 1) {
        const apart = Math.abs(one.data[i + c] - other.data[i + c]);
        squares += apart * apart;
        out.data[i + c] = Math.min(255, gain * apart);
      }
      out.data[i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(out, 0, 0);
    at("gain-value").textContent = gain;
    const error = squares / (3 * one.width * one.height);
    const psnr = error === 0 ? "identical" : `PSNR ${(10 * Math.log10(255 ** 2 / error)).toFixed(2)} dB`;
    at("measured").textContent = `${label[at("left").value]} against ${label[at("right").value]}: ${psnr}`;
  }

  for (const row of data.rows) {
    option(at("left"), row.name, row.label);
    option(at("right"), row.name, row.label);
  }
  const names = data.rows.map((row) => row.name);
  at("left").value = names.includes(data.baseline) ? data.baseline : names[0];
  at("right").value = names.find((name) => name !== at("left").value) ?? names[0];
  at("worst").addEventListener("change", () => { listPrompts(); show(); });
  for (const id of ["prompt", "left", "right"]) at(id).addEventListener("change", show);
  at("position").addEventListener("input", move);
  at("gain").addEventListener("input", difference);
  listPrompts();
  move();
  show();
}
