/**
 * The state of a progress bar for a wait of about total ms, after elapsed ms: from 0 to less than 0.97. It begins at the
 * predicted pace, slows down as the predicted end comes near, and never shows an end that has not come.
 */
export function progress(elapsed, total) {
  const x = Math.max(0, elapsed) / Math.max(1, total);
  return x < 0.7 ? 0.9 * x : 0.97 - 0.34 * Math.exp((0.7 - x) * 0.9 / 0.34); // the two meet at one height and slope
}
