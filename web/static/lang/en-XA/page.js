/**
 * A language for tests: every English text with accents, longer by 40 %, and in brackets, so that one sees what was not meant to be
 * translated, and what has no room.
 */
const plain = 'ACDEGHIKLNORSTUWYZacdeghiklnorstuwyz';
const accented = 'ÀÇĎÉĜĤÎĶĻÑÖŔŠŤÛŴÝŽàçďéĝĥîķļñöŕšťûŵýž';

function longer(english) {
  const [text] = english.split('##');
  if (!/\p{L}/u.test(text.replace(/\{\d\}/g, ''))) return text;
  const more = Array.from({ length: Math.ceil(0.4 * text.replace(/\{\d\}/g, '').length) }, (_, i) => (i % 7 ? '~' : ' ')).join('');
  return `[${text.replace(/[A-Za-z]/g, (c) => accented[plain.indexOf(c)] ?? c)}${more.trimEnd()}]`;
}

export default new Proxy({}, { get: (_, english) => (typeof english === 'string' ? longer(english) : undefined) });
