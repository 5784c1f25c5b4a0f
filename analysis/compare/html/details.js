// What is known of one pair: verdict, hints, statistics, worst elements, and where the error is.
'use strict';

class Details {
  constructor(onLeave) {
    this.element = document.getElementById('details');
    this.views = [];
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') onLeave();
    });
  }

  show(pair) {
    for (const view of this.views) view.destroy();
    this.views = [];
    this.title = make('h2', {id: 'details-title', tabindex: '-1'}, `${pair.index}: ${pairTag(pair)}`);
    const cards = [this.verdictCard(pair)];
    if (pair.whole) {
      cards.push(this.heatCard(pair), this.axesCard(pair), this.termsCard(pair), this.statisticsCard(pair),
                 this.sidesCard(pair), this.histogramCard('ULP distance', pair.ulp_bins, ulpBin),
                 this.histogramCard('Relative error', pair.decade_bins, decadeBin),
                 this.elementsCard('Worst elements by absolute error', pair.worst),
                 this.elementsCard('Worst elements by relative error', pair.worst_relative));
    }
    this.element.replaceChildren(this.title, make('div', {class: 'cards'}, ...cards.filter(Boolean)));
    this.element.hidden = false;
    for (const view of this.views) view.draw();
  }

  focus() {
    this.title.focus();
    this.title.scrollIntoView({block: 'start'});
  }

  add(view) {
    this.views.push(view);
    return view.element;
  }

  verdictCard(pair) {
    const {verdict} = pair;
    const sides = [['candidate', pair.candidate || 'missing'], ['reference', pair.reference || 'missing']];
    if (pair.outcome !== 'missing') sides.push(['dtype, shape', `${pair.dtype}, ${formatShape(pair.shape)}`]);
    const hints = (pair.patterns || []).map(([kind, text, evidence, confidence]) => make('li', {}, `${text} `,
        make('span', {class: 'evidence'}, `${evidence} (${kind}, confidence ${formatShare(confidence)})`)));
    return card('Verdict', true,
                make('p', {class: passes(pair) ? 'pass' : 'fail'}, verdict.text || outcomeWord(pair)),
                make('dl', {class: 'pairs'}, ...definitions(sides)),
                ...toleranceLines(pair).map((line) => make('p', {}, line)),
                hints.length ? make('h3', {}, 'What the errors have in common') : null,
                hints.length ? make('ul', {class: 'hints'}, ...hints) : null);
  }

  heatCard(pair) {
    return pair.heat ? card('Where the error is', true, this.add(new HeatMapView(pair))) : null;
  }

  axesCard(pair) {
    if (!pair.axes.length || pair.whole.max_abs === 0) return null;
    const axes = [...pair.axes].sort((a, b) => toNumber(b.explained) - toNumber(a.explained));
    const choice = make('select', {}, ...AXIS_MEASURES.map(({title}, i) => make('option', {value: i}, title)));
    const charts = make('div', {class: 'small-charts'});
    let views = [];
    const fill = () => {
      for (const view of views) view.destroy();
      this.views = this.views.filter((view) => !views.includes(view));
      const figures = axes.map((axis) => axisFigure(axis, AXIS_MEASURES[choice.value]));
      views = figures.map(({view}) => view);
      this.views.push(...views);
      charts.replaceChildren(...figures.map(({figure}) => figure));
    };
    choice.addEventListener('change', () => {
      fill();
      for (const view of views) view.draw();
    });
    fill();
    const controls = make('p', {class: 'controls'}, make('label', {}, 'Bars show ', choice));
    return card('Channels, axis by axis', true, controls, charts);
  }

  termsCard(pair) {
    if (!pair.terms.length) return null;
    const terms = pair.terms.map((term, i) => {
      // Where no entry stands out there is nothing to see.
      const peaked = term.factors.filter((factor) => factor.values.length > 1 && factor.peaks.length);
      const figures = peaked.map((factor) => factorFigure(factor, pair.shape, i + 1));
      for (const {view} of figures) this.add(view);
      const share = `Term ${i + 1} holds ${formatShare(term.explained)} of the squared error`;
      return make('div', {}, make('p', {}, `${share}: ${termText(term, pair.shape)}.`),
                  make('div', {class: 'small-charts'}, ...figures.map(({figure}) => figure)));
    });
    return card('Rank-1 terms: which slices carry the error together', true, ...terms);
  }

  statisticsCard(pair) {
    const {whole} = pair;
    const fit = `candidate ≈ ${formatNumber(whole.factor, 6)} · reference + ${formatNumber(whole.offset)}`;
    const rows = [
      ['elements', `${whole.count}, ${whole.finite} finite on both sides, ${whole.equal} equal`],
      ['fail', `${whole.failed} (${formatShare(failedShare(pair))})`],
      ['max |difference|', formatNumber(whole.max_abs)],
      ['max relative error', formatNumber(whole.max_rel)],
      ['largest ULP distance', (pair.ulps_at_least ? 'at least ' : '') + formatNumber(pair.ulps)],
      ['relative L2', formatNumber(whole.relative_l2)],
      ['L2, L1 of the difference', `${formatNumber(whole.l2)}, ${formatNumber(whole.l1)}`],
      ['RMSE', formatNumber(whole.rmse)],
      ['mean error (signed)', formatNumber(whole.mean_error)],
      ['cosine', formatCosine(toNumber(whole.cosine))],
      ['SQNR', `${formatNumber(whole.sqnr_db)} dB`],
      ['best fit', `${fit}; leaves ${formatShare(whole.left_after_fit)} of the difference`],
    ];
    return card('Statistics', false, make('dl', {class: 'pairs'}, ...definitions(rows)));
  }

  sidesCard(pair) {
    const {whole} = pair, rows = [
      ['min', whole.min_candidate, whole.min_reference],
      ['mean', whole.mean_candidate, whole.mean_reference],
      ['max', whole.max_candidate, whole.max_reference],
      ['NaN', whole.nan_candidate, whole.nan_reference, whole.nan_both],
      ['infinite', whole.inf_candidate, whole.inf_reference, whole.inf_both],
    ];
    const texts = rows.map(([name, candidate, reference, both]) =>
      [name, formatNumber(candidate), formatNumber(reference), both === undefined ? '' : formatNumber(both)]);
    return card('Both sides', false, plainTable(['', 'candidate', 'reference', 'at the same place'], texts));
  }

  histogramCard(title, bins, describe) {
    if (bins.length < 2) return null;
    const view = new BarChart(`Histogram: ${title}`, {
      labels: bins.map((_, i) => describe(i).short), values: bins, logarithmic: true,
      title: (i) => describe(i).long, text: (i) => `${bins[i]} elements`,
    });
    return card(`${title}: how many elements (logarithmic)`, false, this.add(view));
  }

  elementsCard(title, elements) {
    if (!elements.length) return null;
    const rows = elements.map(([index, candidate, reference, abs, rel, ulps, ...imaginary]) => [
      `[${index.join(', ')}]`, complexText(candidate, imaginary[0]), complexText(reference, imaginary[1]),
      formatNumber(abs), formatNumber(rel), formatNumber(ulps),
    ]);
    const heads = ['index', 'candidate', 'reference', '|difference|', 'relative', 'ULPs'];
    return card(title, false, plainTable(heads, rows));
  }
}

// The tolerance used, and what it would take to pass.
function toleranceLines({verdict, whole, outcome}) {
  if (!whole) return [];
  const origin = verdict.defaults ? ' (the defaults of torch.testing)' : '';
  const lines = [`Tolerance: rtol ${formatNumber(verdict.rtol)}, atol ${formatNumber(verdict.atol)}${origin}.`];
  for (const name of ['rtol', 'atol']) {
    const passing = verdict[`passing_${name}`];
    if (outcome !== 'fail' || passing === undefined) continue;
    lines.push(`Smallest ${name} that passes: ${formatNumber(passing)}.`);
  }
  if (verdict.small_value !== 0 && verdict.failed_without_small !== whole.failed) {
    lines.push(`Where |reference| < ${formatNumber(verdict.small_value)} only the absolute error counts: then ` +
               `${verdict.failed_without_small} of ${whole.failed} elements still fail.`);
  }
  if (verdict.dual_ratio !== undefined) {
    lines.push(`${formatNumber(verdict.dual_ratio)} times the error of the trusted low-precision implementation.`);
  }
  return lines;
}

function complexText(real, imaginary) {
  return formatNumber(real, 9) + (imaginary === undefined ? '' : ` + ${formatNumber(imaginary, 9)}i`);
}

function card(title, wide, ...children) {
  return make('div', {class: wide ? 'card wide' : 'card'}, make('h3', {}, title), ...children);
}

function plainTable(heads, rows) {
  const cells = (name, texts) => texts.map((text, i) => make(name, {class: i === 0 ? 'words' : ''}, text));
  return make('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'table'},
              make('table', {}, make('thead', {}, make('tr', {}, ...cells('th', heads))),
                   make('tbody', {}, ...rows.map((row) => make('tr', {}, ...cells('td', row))))));
}

const AXIS_MEASURES = [
  {title: 'share of the squared error', key: 'share', text: formatShare},
  {title: 'largest |difference|', key: 'max_abs', text: formatNumber},
  {title: 'elements that fail', key: 'failed', text: formatNumber},
];

// The bars, of `perBar` slices each, that hold these slices.
function barsOf(indices, perBar) {
  return new Set(indices.map((index) => Math.floor(index / perBar)));
}

function axisFigure(axis, measure) {
  const values = axis[measure.key].map(toNumber), name = `dim ${axis.axis}`, binned = axis.per_bar > 1;
  const worst = axis.ranked.slice(0, 5).map(([index, share]) =>
    `${formatRange(index, axis.bin, axis.size)} (${formatShare(share)})`);
  const text = `${name} (${axis.size}) explains ${formatShare(axis.explained)}` +
      (worst.length ? `; worst: ${worst.join(', ')}` : '');
  const view = new BarChart(`${measure.title} over ${name}. ${text}`, {
    values, labels: values.map((_, i) => String(i * axis.per_bar)),
    marked: barsOf(axis.ranked.map(([index]) => index), axis.per_bar),
    title: (i) => `${name}: ${formatRange(i * axis.per_bar, axis.per_bar, axis.size)}` +
        (binned ? ' (the largest of these)' : ''),
    text: (i) => measure.text(values[i]),
  }, true);
  return {view, figure: make('figure', {}, make('figcaption', {}, text), view.element)};
}

function factorFigure(factor, shape, term) {
  const values = factor.values.map(toNumber), name = `dim ${factor.axis}`;
  const text = `${name}: ${peaksText(factor, shape)}`;
  const view = new BarChart(`Term ${term}, factor of ${text}`, {
    values, labels: values.map((_, i) => String(i * factor.per_bar)), marked: barsOf(factor.peaks, factor.per_bar),
    title: (i) => `${name}: ${formatRange(i * factor.per_bar, factor.per_bar, shape[factor.axis])}`,
    text: (i) => formatNumber(values[i], 3),
  }, true);
  return {view, figure: make('figure', {}, make('figcaption', {}, text), view.element)};
}

function peaksText(factor, shape) {
  const places = factor.peaks.map((index) => formatRange(index, factor.bin, shape[factor.axis]));
  return places.length ? `at ${places.join(', ')}` : 'no entry stands out';
}
function termText(term, shape) {
  const peaked = term.factors.filter((factor) => factor.peaks.length);
  if (!peaked.length) return 'spread over all axes';
  return peaked.map((factor) => `dim ${factor.axis} ${peaksText(factor, shape)}`).join('; ');
}

// Histograms in comparison.h.
const LAST_ULP_BIN = 33, LAST_DECADE_BIN = 19;
function ulpBin(i) {
  if (i === 0) return {short: '0', long: 'equal'};
  if (i === LAST_ULP_BIN) return {short: '∞', long: `at least ${2 ** (i - 1)} ULPs, or not finite on one side`};
  const low = 2 ** (i - 1), high = 2 ** i - 1;
  return {short: low < 1024 ? String(low) : `2^${i - 1}`, long: low === high ? `${low} ULP` : `${low} to ${high} ULPs`};
}
function decadeBin(i) {
  if (i === 0) return {short: '0', long: 'relative error 0'};
  if (i === LAST_DECADE_BIN) return {short: '∞', long: 'relative error at least 10, or not finite'};
  return {short: `1e${i - 18}`, long: `relative error from 1e${i - 18} to 1e${i - 17}`};
}
