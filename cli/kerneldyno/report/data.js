"use strict";
// The data of the page. Everything from outside reaches the page as text nodes; nothing here, or in the other files of
// this script, makes markup out of text.

const unpacked = new Map();

// The value in the block of data `id`. The last blocks that were asked for are kept.
function unpack(id) {
  if (!unpacked.has(id)) {
    if (unpacked.size > 12) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(id, decompress(document.getElementById(id).textContent));
  }
  return unpacked.get(id);
}

async function decompress(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

// The value number `number` of the blocks `family`, of which `starts` says with which value each begins.
async function valueOf(family, starts, number) {
  let block = starts.length - 1;
  while (starts[block] > number) block -= 1;
  return (await unpack(family + "-" + block))[number - starts[block]];
}

// An element with text and other elements in it. `attributes` are properties, but for those with a dash.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// As `factor` of kerneldyno.rewards.factors writes it.
function times(value) {
  if (value === null) return "";
  if (value < 1e-6 || value >= 1e6) return value.toExponential(value < 1 ? 1 : 2) + "x";
  const power = Math.floor(Math.log10(value));
  return value.toFixed(power < 0 ? 1 - power : Math.max(2 - power, 0)) + "x";
}

function lasting(seconds) {
  for (const [factor, unit] of [[1, "s"], [1e3, "ms"], [1e6, "us"]]) {
    if (seconds * factor >= 1) return Number((seconds * factor).toPrecision(3)) + " " + unit;
  }
  return Number((seconds * 1e9).toPrecision(3)) + " ns";
}

function outcomeTag(index, row) {
  const [name, style] = index.outcomes[index.outcome[row]];
  return make("span", { className: "outcome " + style }, name);
}
