// A program in TypeScript that uses getwork.js; it is compiled, and never run. Lines after @ts-expect-error must be wrong.
import { connect, rest, Problem, type State } from '../static/getwork.js';

const client = connect({ url: 'https://work.example', headers: { Authorization: 'Bearer …' } });
client.addEventListener('change', () => console.log([...client.work.values()].map((work) => `${work.item} ${client.left(work)}`)));
client.addEventListener('request', ({ detail }) => console.log(detail.state, detail.work.length));
client.addEventListener('gone', ({ detail: work }) => console.log(work.state));
client.addEventListener('state', ({ detail }) => console.log(words(detail)));
client.addEventListener('run', ({ detail: run }) => console.log(run.phase, run.eta_seconds ?? 0));
client.addEventListener('task', (e) => console.log(`${e.detail.waiting} wait`));

function words(state: State): string {
  switch (state.name) {
    case 'polling': return `asking every ${state.every / 1000} s ${state.error?.detail ?? ''}`;
    case 'stopped': return state.reason;
    default: return state.name;
  }
}

try {
  const request = await client.getWork('verify', 2, { linger: '10m', key: 'once' });
  for (const work of request.work) await client.dispose(work.id, { outcome: 'return', after: '4h', to: 'others' });
  await client.extend(request.work[0].id);
} catch (e) {
  if (e instanceof Problem && e.type === '/problems/lease-lost') console.log(e.detail, e.retryAfter);
}
const api = rest();
const { task, tag } = await api.task('verify');
await api.updateTask(task.name, { title: 'Verify' }, tag);
const { holders, next_cursor: next } = await api.holders({ task: 'verify,approve' });
console.log(holders.length, next, (await api.push('photos', [{ item: 'a.jpg', priority: 3 }])).accepted);

// @ts-expect-error a return says for how long
void client.dispose('1', { outcome: 'return' });
// @ts-expect-error there is no such outcome
void client.dispose('1', { outcome: 'done' });
// @ts-expect-error the count is a number
void client.getWork('verify', '2');
// @ts-expect-error there is no such event of a client with a typed detail
client.addEventListener('request', ({ detail }) => detail.nothing);
// @ts-expect-error there is no such filter
void api.work({ colour: 'red' });
