"use strict";
// Elements, and numbers as a person reads them.

/** A new element; children are elements or texts, properties those of the element. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A number in the unit that fits; what is unknown is an expression, and stays as it is. */
function scaled(value, step, units) {
  if (typeof value !== "number") return String(value);
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`.trim();
}

const countText = (value) => scaled(value, 1000, ["", "k", "M", "G", "T"]);
const operationsText = (value) => `${countText(value)}FLOP`.replace(/(\d)FLOP/, "$1 FLOP");
const bytesText = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB"]);
const secondsText = (value) =>
  value >= 1 ? `${value.toPrecision(3)} s` : scaled(value * 1e9, 1000, ["ns", "µs", "ms"]);
const shapeText = (item) => `${item.type} [${item.shape.join(", ")}]`;
const shareText = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)}%` : "");
const known = (value) => (typeof value === "number" ? value : 0);
const sum = (items, count) => items.reduce((total, item) => total + known(count(item)), 0);
