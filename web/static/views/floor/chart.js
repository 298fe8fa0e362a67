/** Small charts as inline SVG: bars that stand on each other, marks above them, and lines. Colours are those of time and state. */

import { html, nothing, svg } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';

const count = new Intl.NumberFormat(locale, { notation: 'compact' }).format;
const top = 12; // px above the highest grid line, for its number
const foot = 22; // and below the lowest, for the hours
const room = 0.91; // of the width is for the rows; the rest is for the grid's numbers

/** A number that is round, and not less than n: 1, 2, 4, 6, 10, 20 … */
function roundUp(n, of) {
  const unit = of === 'ms' ? [1000, 60_000, 3_600_000].findLast((ms) => n >= ms) ?? 1 : 1;
  const power = unit * 10 ** Math.floor(Math.log10(Math.max(1, n / unit)));
  return [1, 2, 4, 6, 10].map((m) => m * power).find((m) => m >= n);
}

/**
 * Draws rows. series: [{value(row), time: as data-time has it, kind: 'bar', 'mark' or 'line', dash}]; a value is null where there is none.
 * of: 'count' or 'ms'; label(row, i) is the row's name below, or ''. says: the chart in words. pointed(i) is told the row at the pointer.
 */
export function chart(rows, series, { of = 'count', height = 136, label = () => '', says, pointed }) {
  const bars = series.filter((s) => s.kind === 'bar');
  const all = rows.flatMap((row) => [bars.reduce((sum, s) => sum + (s.value(row) ?? 0), 0), ...series.filter((s) => s.kind !== 'bar').map((s) => s.value(row) ?? 0)]);
  const most = roundUp(Math.max(of === 'ms' ? 10 : 4, ...all), of);
  const inner = height - top - foot;
  const y = (v) => top + inner * (1 - v / most);
  const n = Math.max(1, rows.length);
  const told = (e) => {
    const { left, width } = e.currentTarget.getBoundingClientRect();
    const i = Math.floor(((e.clientX - left) / (width * room)) * n);
    pointed(i < rows.length ? i : undefined);
  };
  const base = rows.map(() => 0);
  return html`<svg height=${height} role="img" aria-label=${says} @pointermove=${pointed ? told : nothing} @pointerleave=${pointed ? () => pointed(undefined) : nothing}>
    ${[0, most / 2, most].map((v) => svg`<line class="grid" x1="0" x2="100%" y1=${y(v)} y2=${y(v)}></line>${v
      ? svg`<text x="100%" y=${y(v) - 4} text-anchor="end">${of === 'ms' ? short(v) : count(v)}</text>` : nothing}`)}
    <svg viewBox=${`0 0 ${n / room} ${height}`} preserveAspectRatio="none" width="100%" height=${height}>
      ${bars.map((s) => svg`<g data-time=${s.time}>${rows.map((row, i) => {
        const v = s.value(row) ?? 0;
        const from = base[i];
        base[i] += v;
        return v ? svg`<rect x=${i + 0.15} width=".7" y=${y(base[i])} height=${y(from) - y(base[i])}></rect>` : nothing;
      })}</g>`)}
      ${series.filter((s) => s.kind === 'mark').map((s) => svg`<g data-time=${s.time}>${rows.map((row, i) => {
        const v = s.value(row);
        return v ? svg`<line class="mark" vector-effect="non-scaling-stroke" x1=${i + 0.05} x2=${i + 0.95} y1=${y(v)} y2=${y(v)}></line>` : nothing;
      })}</g>`)}
      ${series.filter((s) => s.kind === 'line').map((s) => svg`<g data-time=${s.time} data-dash=${s.dash ?? nothing}>${runs(rows, s.value).map((run) => svg`<polyline
        vector-effect="non-scaling-stroke" points=${run.map(([i, v]) => `${i},${y(v)}`).join(' ')}></polyline>`)}</g>`)}
    </svg>
    ${rows.map((row, i) => {
      const name = label(row, i);
      const narrow = n > 30 || (n > 8 && i === 0); // a name in its middle would begin outside the chart
      return name ? svg`<text x=${`${(100 * room * (i + (narrow ? 0 : 0.5))) / n}%`} y=${height - 4} text-anchor=${narrow ? 'start' : 'middle'}>${name}</text>` : nothing;
    })}
  </svg>`;
}

/** A line's points, in pieces without gaps; a single one is drawn as wide as half a bar. */
function runs(rows, value) {
  const pieces = [[]];
  rows.forEach((row, i) => {
    const v = value(row);
    if (v === null) pieces.push([]);
    else pieces.at(-1).push([i + 0.5, v]);
  });
  return pieces.filter((piece) => piece.length).map((piece) => (piece.length > 1 ? piece : [[piece[0][0] - 0.25, piece[0][1]], [piece[0][0] + 0.25, piece[0][1]]]));
}

/** Milliseconds as an axis has them. */
function short(ms) {
  if (ms < 1000) return t`${ms} ms`;
  if (ms < 60_000) return t`${ms / 1000} s`;
  return ms < 3_600_000 ? t`${ms / 60_000} min` : t`${ms / 3_600_000} h`;
}

/** Bars as small as a word; the last one is the present hour. */
export function spark(values, says) {
  const most = Math.max(1, ...values);
  return html`<svg class="spark" role="img" aria-label=${says} viewBox=${`0 0 ${11 * Math.max(8, values.length)} 20`} preserveAspectRatio="none">${values.map((v, i) => {
    const height = Math.max(1, Math.round((20 * v) / most));
    return svg`<rect x=${11 * i} y=${20 - height} width="8" height=${height}></rect>`;
  })}</svg>`;
}

/** What the colours of a chart mean. */
export const keys = (series) => series.map((s) => html`<span class="keyed small soft" data-time=${s.time}>${s.name}</span>`);
