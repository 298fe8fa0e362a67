/**
 * How far a bar is that tells of a wait of about total ms after elapsed ms: from 0 to less than 0.97. It keeps the pace that
 * was foretold at first, slows down as the time comes near, and never claims an end that nobody has seen.
 */
export function progress(elapsed, total) {
  const x = Math.max(0, elapsed) / Math.max(1, total);
  return x < 0.7 ? 0.9 * x : 0.97 - 0.34 * Math.exp((0.7 - x) * 0.9 / 0.34); // the two meet at one height and slope
}
