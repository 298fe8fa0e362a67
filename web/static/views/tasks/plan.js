/** PostgreSQL's plan of a query, from "explain (format json)", reduced to what people need. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';

const costs = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
const percent = new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 0 });

/** The number of rows from which a warning is shown. */
const many = 10_000;

/**
 * The query's own part of a preview's plan, as a tree of {title, on, facts, rows, cost, share, warnings, children}. share: the
 * step's own part of the whole cost. Around it are getwork's steps, which count, and drop held items; they cost very little.
 */
export function planOf(plan) {
  const root = plan[0].Plan;
  const query = queryIn(root);
  return step(query, Number(query['Total Cost']), Number(query['Total Cost']) || 1);
}

/** The query is in a scan of that name. If the planner needs none, getwork numbers its rows, inside "keyed". */
function queryIn(root) {
  const own = find(root, (n) => n.Alias === 'getwork_query');
  if (own) return own.Plans?.[0] ?? own;
  const keyed = find(root, (n) => n.Alias === 'keyed');
  let node = keyed?.Plans?.[0];
  for (const type of ['WindowAgg', 'Sort', 'WindowAgg']) {
    if (!node?.['Node Type'].endsWith(type)) return root;
    node = node.Plans?.[0];
  }
  return node ?? root;
}

function find(node, is) {
  if (is(node)) return node;
  for (const child of node.Plans ?? []) {
    const found = find(child, is);
    if (found) return found;
  }
  return undefined;
}

/** cost: what the node costs in its place, as often as it is executed there; whole: the query's. */
function step(node, cost, whole, parent) {
  const parts = partsOf(node, cost);
  const own = Math.max(0, cost - parts.reduce((sum, c) => sum + c, 0));
  return {
    title: titleOf(node), on: placeOf(node), facts: factsOf(node),
    rows: Number(node['Plan Rows']), cost: Number(node['Total Cost']), share: Math.min(1, own / whole),
    warnings: warningsOf(node, parent, own / whole),
    children: (node.Plans ?? []).map((child, i) => step(child, parts[i], whole, node)),
  };
}

/** Each child's cost: the inner side of a loop and a subplan count once a row; together never more than the node's. */
function partsOf(node, cost) {
  const plans = node.Plans ?? [];
  const outer = plans.find((p) => p['Parent Relationship'] === 'Outer');
  const times = (child) => {
    const is = child['Parent Relationship'];
    if (is === 'SubPlan' && !child['Subplan Name']?.startsWith('CTE')) return Math.max(1, node['Plan Rows']);
    return node['Node Type'] === 'Nested Loop' && is === 'Inner' ? Math.max(1, outer?.['Plan Rows'] ?? 1) : 1;
  };
  const costs = plans.map((child) => child['Total Cost'] * times(child));
  const sum = costs.reduce((total, c) => total + c, 0);
  return sum > cost ? costs.map((c) => (c * cost) / sum) : costs;
}

function titleOf(node) {
  const kind = node['Node Type'];
  if (kind === 'Aggregate' && node.Strategy && node.Strategy !== 'Plain') return `${node.Strategy} ${kind}`;
  return node['Join Type'] && node['Join Type'] !== 'Inner' ? `${kind}, ${node['Join Type'].toLowerCase()}` : kind;
}

function placeOf(node) {
  const name = node['Relation Name'] ?? node['CTE Name'] ?? node['Function Name'] ?? '';
  const alias = node.Alias && node.Alias !== name ? ` ${node.Alias}` : '';
  return `${name}${alias}`.trim();
}

/** The facts shown of a node, with names that differ from PostgreSQL's. */
const told = ['Subplan Name', 'Index Name', 'Index Cond', 'Recheck Cond', 'Hash Cond', 'Merge Cond', 'Join Filter', 'Filter',
  'Sort Key', 'Group Key', 'Presorted Key'];
const names = { 'Subplan Name': 'part', 'Index Name': 'index' };

function factsOf(node) {
  return told.filter((key) => node[key] !== undefined)
    .map((key) => ({ name: names[key] ?? key.toLowerCase(), text: [node[key]].flat().join(', ') }));
}

function warningsOf(node, parent, share) {
  const found = [];
  const kind = node['Node Type'];
  const is = node['Parent Relationship'];
  const expected = Number(node['Plan Rows']);
  if (kind === 'Seq Scan') {
    const table = node['Relation Name'];
    const repeated = parent?.['Node Type'] === 'Nested Loop' && is === 'Inner';
    if (repeated && node['Total Cost'] > 100) {
      found.push(t`Reads the whole table ${table} again for each row beside it.`);
    } else if (expected >= many || (node['Total Cost'] >= many && share > 0.1)) {
      found.push(node.Filter ? t`Reads the whole table ${table} to find what its filter keeps; an index may help.` : t`Reads the whole table ${table}.`);
    }
  }
  if (kind === 'Sort' && expected >= 10 * many) {
    found.push(t`Sorts ${expected} rows; an index in that order would spare it.`);
  }
  if (kind === 'Nested Loop' && expected >= 100 * many) {
    found.push(t`Joins to ${expected} rows; is a join’s condition missing?`);
  }
  if (is === 'SubPlan' && parent['Plan Rows'] >= many) {
    found.push(t`Is asked again for each of ${Number(parent['Plan Rows'])} rows.`);
  }
  return found;
}

/** All warnings of a tree. */
export const warningsIn = (node) => [...node.warnings, ...node.children.flatMap(warningsIn)];

/** The tree, to be folded by step. */
export const planTree = (root) => html`<ul class="plan" aria-label=${t`Plan`}>${branch(root)}</ul>`;

function branch(node) {
  const fact = (f) => html`<div><dt>${f.name}</dt><dd dir="ltr"><code>${f.text}</code></dd></div>`;
  return html`<li>
    <details open>
      <summary>
        <span class="plan-step"><b>${node.title}</b>${node.on ? html` ${t`on ${html`<code dir="auto">${node.on}</code>`}`}` : nothing}</span>
        <span class="soft small">${plural(node.rows, 'about {0} row', 'about {0} rows')}</span>
        <span class="plan-share">${node.share >= 0.005 ? html`<meter min="0" max="1" .value=${node.share}
          aria-label=${t`Share of the cost`}></meter><span>${percent.format(node.share)}</span>` : nothing}</span>
        ${node.warnings.map((w) => html`<span class="tag" data-time="half" dir="auto">${w}</span>`)}
      </summary>
      ${node.facts.length ? html`<dl class="plan-facts">${node.facts.map(fact)}</dl>` : nothing}
      ${node.children.length ? html`<ul>${node.children.map(branch)}</ul>` : nothing}
    </details>
  </li>`;
}

/** A cost as people read it. */
export const costText = (cost) => costs.format(cost);
