/** The floor's headline, made by rules from its figures: the first rule that applies says it. It reads nothing, and draws nothing. */

import { plural, t } from '../../lang.js';

const long = 5 * 60_000; // ms that nobody should wait for work

/**
 * What the figures say, as {title, more}: a sentence with a number, and what else is worth saying, or ''.
 * figures: {left, done, waiting, longest (ms), late, paused: whether all tasks are, failing: [title], lateIn: [title],
 * behind: [{title, came, done, through}], through}; left and done are null while nobody knows them, through is the text of a time, or ''.
 */
export function headline(figures) {
  const { left, done, waiting, longest, late, paused, failing, lateIn, behind, through } = figures;
  const one = (titles) => titles.length === 1 && titles[0];
  const pace = t`${done ?? 0} done today, ${left ?? 0} to go.`;
  if (failing.length) {
    return { title: one(failing) ? t`${one(failing)} fails. ${pace}` : plural(failing.length, '{0} task fails. {1}', '{0} tasks fail. {1}', pace), more: rest(figures) };
  }
  if (waiting && longest > long) {
    return { title: plural(waiting, '{0} person waits for work, and has for {1} min.', '{0} people wait for work, the first for {1} min.', Math.floor(longest / 60_000)), more: `${pace} ${rest(figures)}`.trim() };
  }
  if (left === null && !done) return { title: t`Nothing is known yet.`, more: t`The first run of a task’s query says how much there is to do.` };
  if (late) {
    return { title: `${one(lateIn) ? plural(late, '{0} item is late, in {1}.', '{0} items are late, all in {1}.', one(lateIn)) : plural(late, '{0} item is late.', '{0} items are late.')} ${pace}`, more: rest(figures) };
  }
  if (paused) return { title: t`Everything is paused. ${pace}`, more: '' };
  if (behind.length) {
    const title = behind.length === 1 ? t`${pace} Only ${behind[0].title} falls behind.` : plural(behind.length, '{1} {0} task falls behind.', '{1} {0} tasks fall behind.', pace);
    return { title, more: rest(figures) };
  }
  if (!left && done) return { title: plural(done, 'All is done: {0} item today, and none is left.', 'All is done: {0} items today, and none is left.'), more: '' };
  if (!left) return { title: t`A quiet day: there is nothing to do.`, more: '' };
  if (!done) return { title: plural(left, 'Nothing is done yet today, and {0} item waits.', 'Nothing is done yet today, and {0} items wait.'), more: '' };
  return { title: through ? t`${pace} All is through by ${through}.` : pace, more: '' };
}

/** What lies behind the pace: which task falls behind, and when everything else is through. */
function rest({ behind, through }) {
  const worst = behind.map(({ title, came, done, through: end }) => {
    if (came === null) return end ? t`${title} is through by ${end}, at this pace.` : t`${title} isn’t through soon, at this pace.`;
    return end ? t`${title}: ${done} were done and ${came} came in, so it is through by ${end}.` : t`${title}: ${done} were done and ${came} came in.`;
  });
  const others = through && (behind.length ? t`All else is through by ${through}.` : t`All is through by ${through}, at this pace.`);
  return [...worst.slice(0, 2), others].filter(Boolean).join(' ');
}
