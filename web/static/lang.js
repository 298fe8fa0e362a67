/**
 * The page's language. A text stands in English where it is shown, t`like this`. Another language is a table of these texts, in files
 * of lang/, one for each part of the page. README.md says how a language is added.
 */

/** The languages, and the parts that have a table; en-XA, for tests, makes its texts itself. */
const tables = {
  en: [],
  de: ['page', 'problems', 'desk', 'floor', 'tasks', 'items', 'people', 'wall', 'account', 'users', 'audit', 'webhooks', 'limits', 'card'],
  'en-XA': ['page'],
};
export const stored = 'getwork.lang'; // in localStorage
const asked = new URLSearchParams(location.search).get('lang'); // ?lang=de chooses, and ?lang= leaves it to the browser again
if (asked !== null) localStorage.setItem(stored, asked);

const [base] = navigator.languages.filter((tag) => Object.hasOwn(tables, tag.split('-')[0]));
const chosen = localStorage.getItem(stored);

/** How dates and numbers are written, such as de-AT. */
export const locale = !Object.hasOwn(tables, chosen) ? base ?? 'en' : base?.split('-')[0] === chosen ? base : chosen;
const lang = Object.hasOwn(tables, locale) ? locale : locale.split('-')[0];
const number = new Intl.NumberFormat(locale);
const forms = new Intl.PluralRules(locale);
let texts; // by the English text

/** Loads parts' tables. Until then their texts are English. */
export async function speak(...parts) {
  const files = parts.filter((part) => tables[lang].includes(part)).map((part) => import(`./lang/${lang}/${part}.js`));
  for (const { default: more } of await Promise.all(files)) texts = texts ? Object.assign(texts, more) : more;
}

let problems; // the server's, once it has told one

/** Puts a call's problem into the page's language. What the server says is loaded with the first one; while it is away, nothing can be. */
export async function translate(e) {
  if (!tables[lang].includes('problems') || e.status === undefined) return e;
  const message = e.status ? t`the server answered with status ${e.status}` : t`the server can’t be reached`;
  if (!e.status || !e.title) return Object.assign(e, { message, detail: message });
  problems ??= import('./problems.js').then(({ read }) => read(lang));
  return problems.then((put) => put(e), () => {
    problems = undefined; // the next problem tries again
    return e;
  });
}

const text = (v) => (typeof v === 'number' ? number.format(v) : v);

/** A text in the page's language. What follows ## tells it from a text with the same words and another meaning. With markup among its values it is a list. */
export function t(english, ...values) {
  const key = english.reduce((all, s, i) => `${all}{${i - 1}}${s}`);
  const parts = (texts?.[key] ?? key.split('##')[0]).split(/\{(\d)\}/).map((s, i) => (i % 2 ? text(values[s]) : s));
  return values.every((v) => v === null || !['object', 'symbol'].includes(typeof v)) ? parts.join('') : parts;
}

/** A text that depends on a number, n, which stands in it as {0}; {1} and so on are others. */
export function plural(n, one, many, ...others) {
  const form = texts?.[many]?.[forms.select(n)] ?? texts?.[many] ?? (n === 1 ? one : many);
  return form.replace(/\{(\d)\}/g, (_, i) => text([n, ...others][i]));
}

/** Says which language the document is in, and puts the texts of its own markup, and of some attributes, into it. */
export function speakIn(root) {
  document.documentElement.lang = lang;
  if (lang === 'en') return;
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const { currentNode: node } = walk;
    const english = node.data.trim();
    if (english && texts[english] && !node.parentElement.closest('code, noscript, .brand')) node.data = node.data.replace(english, texts[english]);
  }
  for (const name of ['aria-label', 'title']) {
    for (const element of root.querySelectorAll(`[${name}]`)) element.setAttribute(name, texts[element.getAttribute(name)] ?? element.getAttribute(name));
  }
}

await speak('page');
