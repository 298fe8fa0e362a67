// The guides: / leads to the search, code can be copied, and /openapi.json is shown as a page. It inserts text, never markup.

const methods = ['get', 'post', 'put', 'patch', 'delete'];

/** Makes an element with attributes and children; null children are left out. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

const lastPart = (ref) => ref.slice(ref.lastIndexOf('/') + 1);

/** Follows a reference within the description. */
function resolve(api, part) {
  if (!part?.$ref) return part;
  return part.$ref.slice(2).split('/').reduce((at, key) => at[key], api);
}

/** Says in a few words what a schema takes: a type, or a link to a named schema. */
function kind(schema) {
  if (!schema) return 'anything';
  if (schema.$ref) {
    const name = lastPart(schema.$ref);
    return element('a', { href: `#${name}` }, name);
  }
  if (schema.anyOf) return element('span', {}, schema.anyOf.flatMap((one, i) => (i ? [' or ', kind(one)] : [kind(one)])));
  if (schema.const !== undefined) return element('code', {}, JSON.stringify(schema.const));
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(', ');
  const type = [schema.type ?? 'anything'].flat().join(' or ');
  if (schema.items) return element('span', {}, `${type} of `, kind(schema.items));
  return schema.format ? `${type} (${schema.format})` : type;
}

function table(rows) {
  return element('div', { class: 'scroll', tabindex: '0' }, element('table', {}, element('tbody', {}, rows.map(([name, what, text]) => element('tr', {},
    element('th', { scope: 'row' }, element('code', {}, name)), element('td', {}, what), element('td', {}, text ?? ''))))));
}

function properties(schema) {
  const needed = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties ?? {}).map(([name, one]) => [
    name, kind(one), [needed.has(name) ? '' : 'may be missing.', one.description].filter(Boolean).join(' ')]);
  return rows.length ? table(rows) : null;
}

const bodyOf = (part) => Object.entries(part?.content ?? {});

function operation(api, path, method, call) {
  const parameters = (call.parameters ?? []).map((p) => resolve(api, p)).map((p) => [p.name, `in the ${p.in}`, p.description]);
  const sent = bodyOf(call.requestBody).map(([type, body]) => element('p', {}, `Send ${type}: `, kind(body.schema)));
  const answers = Object.entries(call.responses).map(([status, one]) => {
    const response = resolve(api, one);
    const shapes = bodyOf(response).flatMap(([type, body]) => [`${type}: `, kind(body.schema)]);
    return [status, element('span', {}, shapes), response.description];
  });
  return element('details', {},
    element('summary', {}, element('span', { class: 'method' }, method.toUpperCase()), element('code', {}, path),
      element('span', { class: 'soft' }, ` ${call.summary}`)),
    call.description ? element('p', {}, call.description) : null,
    parameters.length ? table(parameters) : null, sent, table(answers));
}

function page(api) {
  const calls = Object.entries(api.paths).flatMap(([path, item]) =>
    methods.filter((method) => item[method]).map((method) => operation(api, path, method, item[method])));
  const schemas = Object.entries(api.components.schemas).map(([name, schema]) => element('section', { id: name },
    element('h3', {}, name), schema.description ? element('p', {}, schema.description) : null, properties(schema)));
  return [
    element('h1', {}, api.info.title),
    element('p', {}, api.info.description),
    element('p', {}, element('a', { href: '/openapi.json' }, '/openapi.json'), ' is the same for programs.'),
    element('h2', { id: 'calls' }, 'Calls'), calls,
    element('h2', { id: 'shapes' }, 'Shapes'), schemas,
  ].flat();
}

/** The parts of the page, as links beside it. */
function parts(main) {
  const beside = document.querySelector('nav[aria-label="On this page"]');
  beside.firstElementChild.append(...[...main.querySelectorAll('h2')].map((h) => element('a', { href: `#${h.id}` }, h.textContent)));
  beside.hidden = false;
}

const main = document.getElementById('docs');
if (main) {
  try {
    const response = await fetch('/openapi.json');
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    main.replaceChildren(...page(await response.json()));
    parts(main);
    document.getElementById(location.hash.slice(1))?.scrollIntoView(); // the browser looked for it before it was there
  } catch (error) {
    main.replaceChildren(element('p', {}, `The description can't be read: ${error.message}. Try again in a moment.`));
  }
}

document.addEventListener('keydown', (e) => {
  if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.('input, textarea, select')) return;
  e.preventDefault();
  document.querySelector('[type=search]').focus();
});

for (const code of document.querySelectorAll('.shell')) {
  const button = element('button', { type: 'button' }, 'Copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(code.querySelector('code').textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(code.querySelector('code')); // the browser refuses: it can be copied by keyboard
    }
  });
  code.append(button);
}
