/** One chart, drawn by uPlot: bars that stand on each other, and lines. Its colours are the style sheet's. */

import { locale, t } from '../../lang.js';

let library;

/** uPlot is a classic script, which makes itself a global; it is loaded when the first chart is drawn. */
export function uPlot() {
  library ??= load().catch((e) => {
    library = undefined;
    throw e;
  });
  return library;
}

async function load() {
  const parts = [...document.getElementById('uplot').content.cloneNode(true).children];
  const loaded = parts.map((part) => new Promise((resolve, reject) => {
    part.addEventListener('load', resolve);
    part.addEventListener('error', () => reject(new Error(t`their program can’t be loaded`)));
  }));
  document.head.append(...parts);
  await Promise.all(loaded);
  return window.uPlot;
}

const hour = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
const count = new Intl.NumberFormat(locale, { notation: 'compact' }).format;
const height = 170;
const font = '12px system-ui, sans-serif';
const color = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
const whole = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6, 7].map((e) => n * 10 ** e)).sort((a, b) => a - b);
const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400];
const durations = [...whole.filter((ms) => ms <= 500), ...seconds.map((s) => s * 1000)];
const dashes = { solid: undefined, dashed: [6, 4], dotted: [2, 4] };

export class Plot {
  #u; #range; #resized;

  /**
   * chart: {of: 'count' | 'ms', series: [{value(row), tone, bar?, line?}]}; bars stand on each other in their order. pointed is
   * told which row is under the pointer, of any chart: undefined when there is none.
   */
  constructor(uPlot, element, chart, pointed) {
    this.bars = chart.series.filter((s) => s.bar);
    this.lines = chart.series.filter((s) => !s.bar);
    const options = {
      width: element.clientWidth || 300,
      height,
      padding: [null, 34, null, null], // for half of the last hour's name, such as 11:20 AM
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: 'history' }, points: { show: false } },
      scales: { x: { range: () => this.#range }, y: { range: (u, min, max) => [0, Math.max(chart.of === 'ms' ? 10 : 4, max * 1.05)] } },
      axes: axes(chart.of),
      series: [{}, ...this.bars.toReversed().map((s) => bar(uPlot, s)), ...this.lines.map(line)],
      hooks: { setCursor: [(u) => pointed(u.cursor.left < 0 ? undefined : u.cursor.idx ?? undefined)] },
    };
    this.#range = [0, 1];
    this.#u = new uPlot(options, options.series.map(() => []), element);
    this.#resized = new ResizeObserver(() => {
      if (element.clientWidth) this.#u.setSize({ width: element.clientWidth, height });
    });
    this.#resized.observe(element);
  }

  /** rows: as History has them; ms: how long each is. A value stands in the middle of its time. */
  show(rows, ms) {
    this.#range = [rows[0].at / 1000, (rows.at(-1).at + ms) / 1000];
    const sums = rows.map(() => 0);
    const bars = this.bars.map(({ value }) => rows.map((row, i) => (sums[i] += value(row))));
    const lines = this.lines.map(({ value }) => rows.map((row) => value(row)));
    this.#u.setData([rows.map((row) => (row.at + ms / 2) / 1000), ...bars.toReversed(), ...lines]);
  }

  /** The colours have changed. */
  repaint() { this.#u.redraw(); } // bars have their colours with their paths

  end() {
    this.#resized.disconnect();
    this.#u.destroy();
  }
}

function axes(of) {
  const shared = { stroke: color('--quiet'), font, grid: { stroke: color('--line'), width: 1 }, ticks: { show: false } };
  return [
    { ...shared, grid: { show: false }, size: 26, gap: 4, space: 70, values: (u, at) => at.map((s) => hour.format(s * 1000)) },
    { ...shared, size: 52, gap: 4, space: 34, incrs: of === 'ms' ? durations : whole, values: (u, at) => at.map(of === 'ms' ? short : count) },
  ];
}

function bar(uPlot, { tone }) {
  return { width: 0, fill: color(tone), points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 40], gap: 0 }) };
}

function line({ tone, dash = 'solid', points = false }) {
  return { width: 2, stroke: color(tone), dash: dashes[dash], points: { show: points, size: 5, fill: color(tone) } };
}

/** Milliseconds as an axis has them. */
function short(ms) {
  if (ms === 0) return '0';
  if (ms < 1000) return t`${ms} ms`;
  if (ms < 60_000) return t`${ms / 1000} s`;
  return ms < 3_600_000 ? t`${ms / 60_000} min` : t`${ms / 3_600_000} h`;
}
