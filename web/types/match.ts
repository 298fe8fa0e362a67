// getwork.js itself fits getwork.d.ts: nothing that the types promise is missing, and nothing that it has is untyped. check copies the
// module to impl.js, where the compiler reads its code instead of its types.
import * as impl from './impl.js';
import type * as types from '../static/getwork.js';

const rest: typeof types.rest = impl.rest;
// The compiler takes a state's name for any text, so the states are not compared.
const connect: (options?: types.ConnectOptions) => Omit<types.Client, 'state'> = impl.connect;
const Problem: typeof types.Problem = impl.Problem;
void [rest, connect, Problem];

type None<Names extends never> = Names;
type Client = ReturnType<typeof impl.connect>;
export type Untyped = [
  None<Exclude<keyof typeof impl, keyof typeof types>>,
  None<Exclude<keyof ReturnType<typeof impl.rest>, keyof types.Rest>>,
  None<Exclude<keyof Client, keyof types.Client>>,
  None<Exclude<keyof impl.Problem, keyof types.Problem>>,
];
