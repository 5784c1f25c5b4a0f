// The sortable table of pairs. One row is in the tab order at a time; arrows move, Enter chooses.
'use strict';

const COLUMNS = [
  {title: '#', value: (pair) => pair.index, first: 'ascending'},
  {title: 'Tag', value: pairTag, words: true, first: 'ascending'},
  {title: 'Verdict', value: outcomeWord, words: true, first: 'ascending'},
  {title: 'Max abs', value: (pair) => statistic(pair, 'max_abs')},
  {title: 'Max rel', value: (pair) => statistic(pair, 'max_rel')},
  {title: 'Relative L2', value: (pair) => statistic(pair, 'relative_l2')},
  {title: 'Cosine', value: (pair) => statistic(pair, 'cosine'), text: formatCosine, first: 'ascending', optional: true},
  {title: 'SQNR dB', value: (pair) => statistic(pair, 'sqnr_db'), first: 'ascending', optional: true},
  {title: 'ULPs', value: mostUlps, text: (value, pair) => (pair.ulps_at_least ? '≥ ' : '') + formatNumber(value)},
  {title: 'Failed', value: failedShare, text: formatShare},
  {title: 'Dtype', value: (pair) => pair.dtype, words: true, first: 'ascending', optional: true},
  {title: 'Shape', value: (pair) => formatShape(pair.shape), words: true, first: 'ascending', optional: true},
];

// Undefined where nothing was compared: zeros would look like results.
function statistic(pair, key) {
  return pair.whole && pair.outcome !== 'nothing' ? toNumber(pair.whole[key]) : undefined;
}
function mostUlps(pair) {
  return pair.outcome !== 'nothing' ? toNumber(pair.ulps) : undefined;
}
function failedShare(pair) {
  const count = statistic(pair, 'count');
  return count > 0 ? pair.whole.failed / count : undefined;
}
// Close to 1 only the distance from 1 tells anything.
function formatCosine(value) {
  if (value === undefined || !(value > 0.999 && value < 1)) return formatNumber(value);
  return `1 − ${formatNumber(1 - value, 2)}`;
}

class LayerTable {
  constructor(pairs, onChoose) {
    this.onChoose = onChoose;
    this.table = document.getElementById('table');
    this.body = this.table.tBodies[0];
    this.filter = document.getElementById('filter');
    this.onlyFailing = document.getElementById('only-failing');
    this.entries = pairs.map((pair) => ({pair, row: this.makeRow(pair)}));
    this.headers = COLUMNS.map((column, index) => this.makeHeader(column, index));
    this.table.tHead.rows[0].append(...this.headers);
    this.filter.addEventListener('input', () => this.show());
    this.onlyFailing.addEventListener('change', () => this.show());
    this.body.addEventListener('click', (event) => {
      const row = event.target.closest('tr');
      if (row) this.onChoose(Number(row.dataset.pair), false);
    });
    this.body.addEventListener('keydown', (event) => this.onKey(event));
    this.sort(0, 'ascending');
  }

  makeHeader(column, index) {
    const button = make('button', {type: 'button'}, column.title);
    button.addEventListener('click', () => {
      const now = this.headers[index].getAttribute('aria-sort');
      const first = column.first || 'descending';
      const other = first === 'ascending' ? 'descending' : 'ascending';
      this.sort(index, now === first ? other : first);
    });
    return make('th', {scope: 'col', class: cellClass(column), 'aria-sort': 'none'}, button);
  }

  makeRow(pair) {
    const cells = COLUMNS.map((column) => {
      const value = column.value(pair);
      const text = column.words ? value : (column.text || ((number) => formatNumber(number)))(value, pair);
      return make('td', {class: cellClass(column), title: column.words ? text : undefined}, text);
    });
    cells[2].classList.add(passes(pair) ? 'pass' : 'fail');
    if (pair.index === report.first_divergence) {
      cells[1].append(make('span', {class: 'mark'}, 'first divergence'));
    }
    return make('tr', {tabindex: '-1', 'data-pair': pair.index, class: passes(pair) ? '' : 'failing'}, ...cells);
  }

  sort(index, direction) {
    this.headers.forEach((header, i) => header.setAttribute('aria-sort', i === index ? direction : 'none'));
    const value = COLUMNS[index].value, sign = direction === 'ascending' ? 1 : -1;
    this.entries.sort((a, b) => compareValues(value(a.pair), value(b.pair), sign) || a.pair.index - b.pair.index);
    this.show();
  }

  show() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = ({pair}) => {
      if (this.onlyFailing.checked && passes(pair)) return false;
      const text = [pair.tag, pair.candidate, pair.reference, pair.dtype, formatShape(pair.shape), pair.shape.join('x'),
                    outcomeWord(pair)].join(' ').toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const shown = this.entries.filter(matches);
    this.body.replaceChildren(...shown.map((entry) => entry.row));
    document.getElementById('shown').textContent = `${shown.length} of ${this.entries.length} shown`;
    const current = this.body.querySelector('tr[aria-current]') || this.body.rows[0];
    if (current) this.makeReachable(current);
  }

  makeReachable(row) {
    for (const other of this.body.querySelectorAll('tr[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
  }

  onKey(event) {
    const row = event.target.closest('tr');
    if (!row || event.ctrlKey || event.altKey || event.metaKey) return;
    const rows = this.body.rows, at = row.sectionRowIndex;
    const targets = {
      ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: rows.length - 1,
    };
    if (event.key in targets) {
      const target = rows[Math.min(Math.max(targets[event.key], 0), rows.length - 1)];
      this.makeReachable(target);
      target.focus();
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.onChoose(Number(row.dataset.pair), true);
    } else {
      return;
    }
    event.preventDefault();
  }

  // The row of pair `index` as the chosen one.
  mark(index) {
    for (const {pair, row} of this.entries) {
      if (pair.index === index) {
        row.setAttribute('aria-current', 'true');
        this.makeReachable(row);
        if (row.isConnected) this.scrollTo(row);
      } else {
        row.removeAttribute('aria-current');
        row.tabIndex = -1;
      }
    }
    if (!this.body.querySelector('tr[tabindex="0"]') && this.body.rows[0]) this.makeReachable(this.body.rows[0]);
  }

  // Inside the table's own box: the page stays where it is.
  scrollTo(row) {
    const box = this.table.parentElement, head = this.table.tHead.offsetHeight;
    const top = row.offsetTop - head, bottom = row.offsetTop + row.offsetHeight;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  }

  focus() {
    const row = this.body.querySelector('tr[tabindex="0"]');
    if (row) row.focus();
    else this.filter.focus();
  }
}

function cellClass(column) {
  return [column.words && 'words', column.optional && 'optional'].filter(Boolean).join(' ');
}

// What has no value comes last in either direction; NaN is worse than any number.
function compareValues(a, b, sign) {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  if (typeof a === 'string') return sign * a.localeCompare(b, undefined, {numeric: true});
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(b) - Number.isNaN(a);
  return sign * (a < b ? -1 : a > b ? 1 : 0);
}
