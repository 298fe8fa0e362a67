/** What the server says about calls that failed, in another language. lang/de/problems.js has its sentences, and why it is not all of them. */

import { t } from './lang.js';

const states = /^(completed|returned|never|failed|expired|reassigned)$/; // of work: the only values that are words

/** Reads a language's table, and returns what puts a problem (RFC 9457) into it: by its detail, else by the title of its type. */
export async function read(lang) {
  const { default: texts } = await import(`./lang/${lang}/problems.js`);
  const shapes = Object.keys(texts).filter((english) => english.includes('{0}')).sort((a, b) => bare(b) - bare(a))
    .map((english) => [new RegExp(`^${english.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace(/\{\d\}/g, '(.+)')}$`, 's'), texts[english]]);
  const known = (detail) => {
    if (Object.hasOwn(texts, detail)) return texts[detail];
    for (const [shape, text] of shapes) {
      const found = shape.exec(detail);
      if (found) return text.replace(/\{(\d)\}/g, (_, i) => (states.test(found[Number(i) + 1]) ? t([found[Number(i) + 1]]) : found[Number(i) + 1]));
    }
    return undefined;
  };
  return (problem) => {
    const { title, detail, errors = [] } = problem;
    const what = texts[title];
    const say = (english) => known(english) ?? (!what ? english : english && english !== title ? `${what}: ${english}` : what);
    const [first] = errors; // a call with several wrong fields names the first of them: “slots: from 1 to 10000”
    const named = first && detail === `${first.field}: ${first.detail}` ? `${first.field}: ` : '';
    const message = named + say(detail.slice(named.length));
    return Object.assign(problem, { message, detail: message, errors: errors.map((e) => ({ ...e, detail: say(e.detail) })) });
  };
}

const bare = (english) => english.replace(/\{\d\}/g, '').length;
