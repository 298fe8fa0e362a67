/** Splits PostgreSQL's SQL into pieces for colouring: comments, strings, names, numbers, keywords, parameters. */

const keywords = new Set(`all analyse analyze and any array as asc asymmetric between both by case cast check collate column cross
  cube current current_date current_time current_timestamp current_user desc distinct else end escape except exists extract
  false fetch filter first following for from full group grouping groups having ilike in inner intersect interval into is
  isnull join last lateral leading left like limit localtime localtimestamp materialized natural next no not notnull null
  nulls of offset on only or order ordinality outer over overlaps partition percent position preceding range recursive
  right rollup row rows select session_user sets similar some symmetric table tablesample then ties to trailing true
  unbounded union unique user using values when where window with within without zone`.split(/\s+/));

// The beginnings of pieces; the order matters: e'…' is a string, not a name. A piece without an end reaches to the text's end.
const piece = new RegExp([
  /(?<comment>--[^\n]*)/,
  /(?<nested>\/\*)/,
  /(?<string>[eE]'(?:[^'\\]|''|\\[^])*'?|(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*'?)/,
  /(?<name>(?:[uU]&)?"(?:[^"]|"")*"?)/,
  /(?<parameter>\$\d+)/,
  /(?<dollar>\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$)/,
  /(?<number>0[xX][\da-fA-F_]+|(?:\d[\d_]*(?:\.(?!\.)[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?)/,
  /(?<word>[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*)/,
  /(?<other>[^])/,
].map((r) => r.source).join('|'), 'y');

/**
 * The pieces of a text in order, together all of it: [{kind, text}]. kind: comment, string, name (quoted), number, keyword,
 * parameter, or '' for the rest.
 */
export function pieces(sql) {
  const found = [];
  let at = 0;
  const take = (kind, end) => {
    const last = found.at(-1);
    if (kind === '' && last?.kind === '') last.text += sql.slice(at, end);
    else found.push({ kind, text: sql.slice(at, end) });
    at = end;
  };
  while (at < sql.length) {
    piece.lastIndex = at;
    const { groups: g, 0: text } = piece.exec(sql);
    const end = at + text.length;
    if (g.nested) take('comment', commentEnd(sql, end));
    else if (g.dollar) take('string', dollarEnd(sql, end, text));
    else if (g.word) take(keywords.has(text.toLowerCase()) ? 'keyword' : '', end);
    else take(['comment', 'string', 'name', 'parameter', 'number'].find((kind) => g[kind]) ?? '', end);
  }
  return found;
}

/** Comments nest. */
function commentEnd(sql, from) {
  const edge = /\/\*|\*\//g;
  edge.lastIndex = from;
  for (let depth = 1; ;) {
    const found = edge.exec(sql);
    if (!found) return sql.length;
    depth += found[0] === '/*' ? 1 : -1;
    if (depth === 0) return edge.lastIndex;
  }
}

function dollarEnd(sql, from, tag) {
  const end = sql.indexOf(tag, from);
  return end < 0 ? sql.length : end + tag.length;
}

/** Where in a text PostgreSQL means by a position: it counts characters from 1, and JavaScript UTF-16 units from 0. */
export function offsetOf(sql, position) {
  let at = 0;
  for (let n = 1; n < position && at < sql.length; n++) at += sql.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** An offset's line and column, both from 1. */
export function placeOf(sql, offset) {
  const before = sql.slice(0, offset).split('\n');
  return { line: before.length, column: [...before.at(-1)].length + 1 };
}
