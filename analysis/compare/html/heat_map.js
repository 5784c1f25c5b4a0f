// The spatial map of the error: one cell per tile, coloured by the logarithm of its largest |difference|.
'use strict';

// From small to large; read as light grows, so that it works without colour vision, too.
const RAMP = [[30, 18, 74], [92, 26, 128], [170, 42, 112], [226, 84, 66], [250, 160, 52], [253, 243, 172]];
const NOT_FINITE_COLOUR = 'rgb(0, 190, 255)';
const TALLEST_MAP_PX = 384, LARGEST_CELL_PX = 28;

function rampColour(place) {
  const at = Math.min(Math.max(place, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(at), RAMP.length - 2);
  const channel = (c) => Math.round(RAMP[i][c] + (RAMP[i + 1][c] - RAMP[i][c]) * (at - i));
  return `rgb(${channel(0)}, ${channel(1)}, ${channel(2)})`;
}

function byteColour(byte) {
  if (byte === ZERO_BYTE) return colour('zero');
  if (byte === NOT_FINITE_BYTE) return NOT_FINITE_COLOUR;
  return rampColour((byte - 1) / (HIGHEST_BYTE - 1));
}

class HeatMapView {
  constructor(pair) {
    this.heat = pair.heat;
    this.shape = pair.shape;
    this.cells = decodeBytes(this.heat.cells);
    this.cursor = this.heat.peak;
    this.canvas = make('canvas', {
      class: 'heat', tabindex: '0', role: 'img', 'aria-label': `Heat map of the error, ${this.heat.rows} rows of ` +
          `${this.heat.columns} tiles over ${this.heat.axes}; arrow keys read a tile, m the largest`,
    });
    this.readout = make('output', {class: 'readout', 'aria-live': 'polite'});
    this.box = make('div', {}, this.canvas);
    this.element = make('div', {}, this.box, this.readout, this.makeLegend(),
                        make('p', {class: 'hint'}, this.describeTiles()));
    this.canvas.addEventListener('pointermove', (event) => this.pointAt(event));
    this.canvas.addEventListener('pointerdown', (event) => this.pointAt(event));
    this.canvas.addEventListener('keydown', (event) => this.onKey(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.box);
  }

  describeTiles() {
    const {tile, folded, axes} = this.heat;
    return `${axes}: ${folded.join(' × ')}, in tiles of ${tile.join(' × ')}; a tile shows its largest ` +
        '|difference|. Point at a tile, or use the arrow keys (m: the largest).';
  }

  makeLegend() {
    const scale = make('canvas', {width: '160', height: '12', 'aria-hidden': 'true'});
    const context = scale.getContext('2d');
    for (let x = 0; x < scale.width; ++x) {
      context.fillStyle = rampColour(x / (scale.width - 1));
      context.fillRect(x, 0, 1, scale.height);
    }
    const swatch = (fill, text) => {
      const canvas = make('canvas', {width: '12', height: '12', 'aria-hidden': 'true'});
      const small = canvas.getContext('2d');
      small.fillStyle = fill;
      small.fillRect(0, 0, 12, 12);
      return make('span', {}, canvas, ` ${text}`);
    };
    const {low, high} = this.heat, middle = Math.sqrt(low) * Math.sqrt(high);
    return make('div', {class: 'legend'},
                high > 0 ? make('span', {}, `${formatNumber(low, 2)} `, scale,
                                ` ${formatNumber(high, 2)} (logarithmic, middle ${formatNumber(middle, 2)})`) : null,
                this.cells.includes(ZERO_BYTE) ? swatch(colour('zero'), 'equal') : null,
                this.cells.includes(NOT_FINITE_BYTE) ? swatch(NOT_FINITE_COLOUR, 'not finite on one side') : null);
  }

  draw() {
    const {rows, columns} = this.heat, ratio = window.devicePixelRatio || 1;
    this.cellWidth = Math.min(LARGEST_CELL_PX, this.box.clientWidth / columns);
    this.cellHeight = Math.min(LARGEST_CELL_PX, Math.max(this.cellWidth, 8), TALLEST_MAP_PX / rows);
    const width = this.cellWidth * columns, height = this.cellHeight * rows;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context = this.canvas.getContext('2d');
    this.context.scale(this.canvas.width / width, this.canvas.height / height);
    this.palette = Array.from({length: 256}, (_, byte) => byteColour(byte));
    for (let cell = 0; cell < this.cells.length; ++cell) this.fillCell(cell);
    this.drawCursor();
    this.read();
  }

  fillCell(cell) {
    const {columns} = this.heat, row = Math.floor(cell / columns), column = cell % columns;
    // Edges on whole pixels of the screen leave no seams.
    const ratio = this.canvas.width / (this.cellWidth * columns), snap = (x) => Math.round(x * ratio) / ratio;
    const left = snap(column * this.cellWidth), top = snap(row * this.cellHeight);
    this.context.fillStyle = this.palette[this.cells[cell]];
    const right = snap((column + 1) * this.cellWidth), bottom = snap((row + 1) * this.cellHeight);
    this.context.fillRect(left, top, right - left, bottom - top);
  }

  drawCursor() {
    const {columns} = this.heat, row = Math.floor(this.cursor / columns), column = this.cursor % columns;
    const left = column * this.cellWidth, top = row * this.cellHeight;
    for (const [style, inset] of [['#000000', 0.5], ['#ffffff', 1.5]]) {
      this.context.strokeStyle = style;
      this.context.strokeRect(left + inset, top + inset, Math.max(this.cellWidth - 2 * inset, 1),
                              Math.max(this.cellHeight - 2 * inset, 1));
    }
  }

  moveTo(cell) {
    if (cell === this.cursor || !this.context) return;
    this.cursor = cell;
    this.draw();
  }

  pointAt(event) {
    const {rows, columns} = this.heat;
    const column = Math.min(columns - 1, Math.max(0, Math.floor(event.offsetX / this.cellWidth)));
    const row = Math.min(rows - 1, Math.max(0, Math.floor(event.offsetY / this.cellHeight)));
    this.moveTo(row * columns + column);
  }

  onKey(event) {
    const {rows, columns} = this.heat, row = Math.floor(this.cursor / columns), column = this.cursor % columns;
    const at = (r, c) => Math.min(Math.max(r, 0), rows - 1) * columns + Math.min(Math.max(c, 0), columns - 1);
    const targets = {
      ArrowLeft: at(row, column - 1), ArrowRight: at(row, column + 1),
      ArrowUp: at(row - 1, column), ArrowDown: at(row + 1, column),
      Home: at(row, 0), End: at(row, columns - 1), PageUp: at(0, column), PageDown: at(rows - 1, column),
      m: this.heat.peak,
    };
    if (!(event.key in targets) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.moveTo(targets[event.key]);
  }

  read() {
    const {columns, tile, folded, low, high} = this.heat, byte = this.cells[this.cursor];
    const row = Math.floor(this.cursor / columns) * tile[0], column = (this.cursor % columns) * tile[1];
    const where = `rows ${formatRange(row, tile[0], folded[0])}, columns ${formatRange(column, tile[1], folded[1])}`;
    const index = this.indexOf(row, column), from = index ? ` (from [${index.join(', ')}])` : '';
    const value = quantisedValue(byte, low, high);
    const what = byte === ZERO_BYTE ? 'equal' : byte === NOT_FINITE_BYTE ? 'not finite on one side'
        : this.cursor === this.heat.peak ? `|difference| up to ${formatNumber(high)}, the largest`
        : `|difference| up to ≈ ${formatNumber(value, 2)}`;
    this.readout.textContent = `${where}${from}: ${what}`;
  }

  // The tensor's index of an element of the folded matrix: its columns are the last dimension that is not 1, its rows
  // all before. Undefined if the matrix was folded otherwise.
  indexOf(row, column) {
    let last = this.shape.length - 1;
    while (last > 0 && this.shape[last] === 1) --last;
    const before = this.shape.slice(0, Math.max(last, 0));
    const product = before.reduce((a, b) => a * b, 1);
    if (last < 0 || product !== this.heat.folded[0] || this.shape[last] !== this.heat.folded[1]) return undefined;
    const index = this.shape.map(() => 0);
    index[last] = column;
    for (let axis = last - 1, rest = row; axis >= 0; --axis) {
      index[axis] = rest % this.shape[axis];
      rest = Math.floor(rest / this.shape[axis]);
    }
    return index;
  }

  destroy() {
    this.observer.disconnect();
  }
}
