// Puts the page together: headline, chart along the sequence, table, details of the chosen pair.
'use strict';

// The same words as the text report (HeadText in report_text.cc).
function headText() {
  const count = report.pairs.length, failing = report.pairs.filter((pair) => !passes(pair)).length;
  if (!count) return 'no pair of tensors to compare';
  if (!failing) return count === 1 ? 'the pair passes' : `all ${count} pairs pass`;
  const first = report.pairs[report.first_divergence];
  return `${failing} of ${count} ${count === 1 ? 'pair' : 'pairs'} ${failing === 1 ? 'differs' : 'differ'}` +
      (first ? `; first divergence: ${pairTag(first)} (number ${first.index})` : '');
}

function showHead() {
  document.title = `${report.title}: ${report.passes ? 'passes' : 'does not pass'}`;
  document.getElementById('title').textContent = report.title;
  const line = document.getElementById('verdict');
  line.textContent = `${report.passes ? 'pass' : 'FAIL'}: ${headText()}`;
  line.classList.add(report.passes ? 'pass' : 'fail');
  document.getElementById('compared').append(
    ...definitions([['candidate', report.candidate], ['reference', report.reference]]));
  const remarks = document.getElementById('remarks');
  remarks.append(...report.remarks.map((text) => make('li', {}, text)));
  remarks.hidden = !report.remarks.length;
}

// The first divergence; without one the pair that is furthest off.
function firstChoice() {
  if (report.pairs[report.first_divergence]) return report.first_divergence;
  const failing = report.pairs.find((pair) => !passes(pair));
  if (failing) return failing.index;
  const error = (pair) => statistic(pair, 'relative_l2') || 0;
  return report.pairs.reduce((worst, pair) => error(pair) > error(worst) ? pair : worst).index;
}

function start() {
  report.pairs.forEach((pair, index) => {
    pair.index = index;
  });
  showHead();
  if (!report.pairs.length) {
    document.getElementById('layers').hidden = true;
    return;
  }
  useThemeInCharts();
  let chosen;
  const choose = (index, withFocus) => {
    chosen = index;
    table.mark(index);
    sequence.mark(index);
    details.show(report.pairs[index]);
    if (withFocus) details.focus();
  };
  const table = new LayerTable(report.pairs, choose);
  const sequence = new SequenceChart(report.pairs, choose);
  const details = new Details(() => table.focus());
  document.getElementById('sequence').hidden = report.pairs.length < 2;
  sequence.draw();
  choose(firstChoice(), false);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    useThemeInCharts();
    sequence.draw();
    details.show(report.pairs[chosen]);
  });
}

start();
