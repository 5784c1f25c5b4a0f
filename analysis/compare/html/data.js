// The report's data (written by html_data.cc) and how its numbers are read and written.
'use strict';

const report = JSON.parse(document.getElementById('data').textContent);

// Numbers that JSON cannot write are strings.
function toNumber(value) {
  switch (value) {
    case 'inf': return Infinity;
    case '-inf': return -Infinity;
    case 'nan': return NaN;
    default: return value;
  }
}

function formatNumber(value, digits = 4) {
  const number = toNumber(value);
  if (number === undefined || number === null) return '–';
  if (Number.isNaN(number)) return 'NaN';
  if (!Number.isFinite(number)) return number > 0 ? '∞' : '−∞';
  if (Number.isInteger(number) && Math.abs(number) < 1e9) return String(number).replace('-', '−');
  const size = Math.abs(number);
  const text = size >= 1e-3 && size < 1e6 ? String(Number(number.toPrecision(digits)))
                                          : Number(number.toPrecision(digits)).toExponential();
  return text.replace(/-/g, '−');
}

function formatShare(share) {
  const number = toNumber(share);
  if (!(number > 0)) return number === 0 ? '0 %' : '–';
  const percent = 100 * number;
  if (percent < 0.001) return '< 0.001 %';
  if (number < 1 && percent > 99.99) return '> 99.99 %';
  return `${Number(percent.toPrecision(3))} %`;
}

function formatShape(shape) {
  return shape.length ? shape.join(' × ') : 'scalar';
}

function formatRange(first, count, end) {
  const last = Math.min(first + count, end) - 1;
  return last > first ? `${first}–${last}` : String(first);
}

// Quantised magnitudes (QuantisedValues in html_data.h).
const ZERO_BYTE = 0, NOT_FINITE_BYTE = 255, HIGHEST_BYTE = 254;
function decodeBytes(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}
function quantisedValue(byte, low, high) {
  if (byte === ZERO_BYTE) return 0;
  if (byte === NOT_FINITE_BYTE) return Infinity;
  return low * Math.pow(high / low, (byte - 1) / (HIGHEST_BYTE - 1));
}

const OUTCOME_WORDS = {
  pass: 'pass', fail: 'FAIL', shape: 'shapes differ', dtype: 'dtypes differ', nothing: 'nothing compared',
};
function outcomeWord(pair) {
  if (pair.outcome !== 'missing') return OUTCOME_WORDS[pair.outcome];
  return pair.candidate ? 'missing in reference' : 'missing in candidate';
}
function passes(pair) {
  return pair.outcome === 'pass';
}
function pairTag(pair) {
  return pair.tag || pair.candidate || pair.reference;
}

// An element of the page. Text never becomes markup: children are nodes or text.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'class') element.className = value;
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Rows of [name, text] as children of a <dl>.
function definitions(rows) {
  return rows.flatMap(([name, text]) => [make('dt', {}, name), make('dd', {}, text)]);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
