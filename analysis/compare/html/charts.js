// Charts by Chart.js: bars over channels, histograms, the line along the sequence. Each is a canvas in a box of fixed
// height.
'use strict';

Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.family = 'system-ui, sans-serif';
Chart.defaults.plugins.legend.display = false;

function useThemeInCharts() {
  Chart.defaults.color = colour('faint');
  Chart.defaults.borderColor = colour('line');
}

// What a logarithmic axis cannot place: 0 goes to `floor`, infinity and NaN to `ceiling`.
function logarithmicEnds(values) {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  const low = Math.min(...positive), high = Math.max(...positive);
  if (!positive.length) return {floor: 0.1, ceiling: 10};
  // Chart.js computes with powers of ten: none may become 0 or infinite.
  return {floor: Math.max(low / 10, 1e-300), ceiling: Math.min(high * 10, 1e300)};
}

function isPowerOfTen(value) {
  return Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
}

function logarithmicAxis(title) {
  return {
    type: 'logarithmic', title: {display: Boolean(title), text: title},
    ticks: {maxTicksLimit: 7, callback: (value) => isPowerOfTen(value) ? formatNumber(value, 2) : null},
  };
}

class BarChart {
  // bars: {labels, values, marked (positions), title(i), text(i), logarithmic}; label: for those who do not see the
  // canvas.
  constructor(label, bars, small) {
    this.bars = bars;
    this.canvas = make('canvas', {role: 'img', 'aria-label': label});
    this.element = make('div', {class: small ? 'chart small' : 'chart'}, this.canvas);
  }

  // Once the canvas is in the page and has a size.
  draw() {
    const {labels, values, marked = new Set(), title, text, logarithmic} = this.bars;
    const finite = values.filter(Number.isFinite), top = finite.length ? Math.max(...finite) : 0;
    // What is not finite stands higher than all others, in a colour of its own.
    const drawn = values.map((value) => {
      if (!Number.isFinite(value)) return (top || 1) * 1.1;
      return logarithmic && value === 0 ? null : value;
    });
    const plain = colour('bar'), striking = colour('fail');
    const fill = values.map((value, i) => {
      if (!Number.isFinite(value)) return NOT_FINITE_COLOUR;
      return marked.has(i) ? striking : plain;
    });
    const linearAxis = {beginAtZero: true, ticks: {maxTicksLimit: 5, callback: (value) => formatNumber(value, 3)}};
    this.chart = new Chart(this.canvas, {
      type: 'bar',
      data: {
        labels,
        datasets: [{
          data: drawn, backgroundColor: fill, categoryPercentage: 1, barPercentage: labels.length > 40 ? 1 : 0.85,
        }],
      },
      options: {
        scales: {
          x: {grid: {display: false}, ticks: {maxRotation: 0, autoSkip: true}},
          y: logarithmic ? {...logarithmicAxis(''), min: 0.5} : linearAxis,
        },
        interaction: {mode: 'index', intersect: false},
        plugins: {tooltip: {displayColors: false, callbacks: {
          title: (items) => title(items[0].dataIndex), label: (item) => text(item.dataIndex),
        }}},
      },
    });
  }

  destroy() {
    if (this.chart) this.chart.destroy();
  }
}

const SEQUENCE_MEASURES = [
  {title: 'relative L2 error', value: (pair) => statistic(pair, 'relative_l2')},
  {title: 'largest absolute error', value: (pair) => statistic(pair, 'max_abs')},
  {title: 'largest relative error', value: (pair) => statistic(pair, 'max_rel')},
  {title: 'largest error in ULPs', value: mostUlps},
  {title: 'share of elements that fail', value: failedShare},
];

// How the error grows from pair to pair, in the order of execution.
class SequenceChart {
  constructor(pairs, onChoose) {
    this.pairs = pairs;
    this.onChoose = onChoose;
    this.at = 0;
    this.canvas = document.getElementById('sequence-chart');
    this.readout = document.getElementById('sequence-readout');
    this.measure = document.getElementById('sequence-measure');
    this.measure.append(...SEQUENCE_MEASURES.map(({title}, i) => make('option', {value: i}, title)));
    this.measure.addEventListener('change', () => this.draw());
    this.canvas.addEventListener('keydown', (event) => this.onKey(event));
    this.canvas.addEventListener('focus', () => this.point(this.at));
  }

  draw() {
    if (this.chart) this.chart.destroy();
    const measure = SEQUENCE_MEASURES[this.measure.value];
    this.values = this.pairs.map(measure.value);
    const {floor, ceiling} = logarithmicEnds(this.values.filter((value) => value !== undefined));
    const place = (value) => {
      if (value === undefined) return null;
      return Number.isFinite(value) ? Math.min(Math.max(value, floor), ceiling) : ceiling;
    };
    const radius = this.pairs.length <= 60 ? 4 : 2.5;
    const colours = this.pairs.map((pair) => colour(passes(pair) ? 'bar' : 'fail'));
    this.canvas.setAttribute('aria-label', `Chart: ${measure.title} of ${this.pairs.length} tensors in the order of ` +
        'execution; arrow keys read a point, Enter shows its details');
    this.chart = new Chart(this.canvas, {
      type: 'line',
      data: {datasets: [{
        data: this.pairs.map((pair, i) => ({x: pair.index, y: place(this.values[i])})),
        borderColor: colour('bar'), borderWidth: 1.5, spanGaps: false, clip: 10,
        // Hollow: 0, which the axis has no place for.
        pointBackgroundColor: colours.map((filled, i) => this.values[i] === 0 ? colour('page') : filled),
        pointBorderColor: colours,
        pointStyle: this.values.map((value) => Number.isFinite(value) ? 'circle' : 'triangle'),
        pointRadius: this.pairs.map((pair) => pair.index === report.first_divergence ? 6 : radius),
        pointHoverRadius: 7,
      }]},
      options: {
        scales: {
          x: {
            type: 'linear', min: 0, max: this.pairs.length - 1, ticks: {precision: 0},
            title: {display: true, text: 'number, in the order of execution'},
          },
          y: {...logarithmicAxis(measure.title), min: floor, max: ceiling},
        },
        interaction: {mode: 'nearest', axis: 'x', intersect: false},
        onClick: (event, elements) => {
          if (elements.length) this.onChoose(this.pairs[elements[0].index].index, false);
        },
        plugins: {tooltip: {displayColors: false, callbacks: {
          title: (items) => this.describe(items[0].dataIndex).tag, label: (item) => this.describe(item.dataIndex).value,
        }}},
      },
      plugins: [{id: 'first-divergence', beforeDatasetsDraw: (chart) => this.drawFirstDivergence(chart)}],
    });
  }

  describe(i) {
    const pair = this.pairs[i], value = this.values[i];
    const number = value === undefined ? 'nothing to compare' : value === 0 ? '0' : formatNumber(value);
    return {tag: `${pair.index}: ${pairTag(pair)}`, value: `${number} (${outcomeWord(pair)})`};
  }

  drawFirstDivergence(chart) {
    const first = this.pairs.find((pair) => pair.index === report.first_divergence);
    if (!first) return;
    const {ctx, chartArea, scales} = chart, x = scales.x.getPixelForValue(first.index);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour('fail');
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, chartArea.top);
    ctx.lineTo(x, chartArea.bottom);
    ctx.stroke();
    const right = x > (chartArea.left + chartArea.right) / 2;
    ctx.textAlign = right ? 'right' : 'left';
    ctx.textBaseline = 'top';
    ctx.font = '12px system-ui, sans-serif';
    ctx.fillText('first divergence', x + (right ? -6 : 6), chartArea.top);
    ctx.restore();
  }

  point(i) {
    this.at = Math.min(Math.max(i, 0), this.pairs.length - 1);
    const {tag, value} = this.describe(this.at);
    this.readout.textContent = `${tag}: ${value}`;
    const active = this.values[this.at] === undefined ? [] : [{datasetIndex: 0, index: this.at}];
    this.chart.setActiveElements(active);
    this.chart.tooltip.setActiveElements(active, {x: 0, y: 0});
    this.chart.update();
  }

  onKey(event) {
    const targets = {ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: this.pairs.length - 1};
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in targets) this.point(targets[event.key]);
    else if (event.key === 'Enter' || event.key === ' ') this.onChoose(this.pairs[this.at].index, true);
    else return;
    event.preventDefault();
  }

  mark(index) {
    this.at = this.pairs.findIndex((pair) => pair.index === index);
  }
}
