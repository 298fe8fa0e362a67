/** The types of getwork.js. Its comments describe each call; /openapi.json describes what the server sends. */

/** RFC 3339 in UTC. */
export type Time = string;
/** In Go's form: '90s', '2m', '24h'. */
export type Duration = string;
export type Role = 'worker' | 'agent' | 'observer' | 'manager';

export interface Work {
  id: string;
  task: string;
  item: string;
  user: string;
  instance?: string;
  slot: number;
  /** The other columns of the query. */
  details: Record<string, unknown>;
  assigned_at: Time;
  lease_expires_at: Time | null;
  attempt: number;
  state: 'held' | 'completed' | 'returned' | 'never' | 'failed' | 'expired' | 'reassigned';
  closed_at: Time | null;
  available_at: Time | null;
  note: string | null;
  /** Of an outcome of its task, or one of the server's, which begins with _. */
  code?: string;
  result?: Record<string, string | number | boolean>;
  /** Its holder has put it aside until then. */
  later_until?: Time;
  /** Only of an item with one. */
  deadline?: Time;
  lease?: Duration;
  closed_by?: string;
  error?: string;
  to_others?: boolean;
  exhausted?: boolean;
  expiring?: boolean;
  /** The completed work that its item went on from. */
  from?: string;
  /** Somebody had let go of the item before. */
  again?: boolean;
  /** How: only from showWork(), for those who may know. */
  earlier?: { id: string; user: string; instance?: string; state: string; closed_at: Time; closed_by?: string; code?: string; note: string | null; error?: string }[];
  /** There are details that are too large for this answer; details is {}, and showWork() reads them, unless they are too large for any. */
  details_left_out?: boolean;
}

export interface Request {
  id: string;
  task: string;
  user: string;
  instance?: string;
  wanted: number;
  requested: number;
  assigned: number;
  /** 'lost' only in the event `request`: the server does not know it any more. */
  state: 'pending' | 'assigned' | 'partial' | 'none' | 'failed' | 'cancelled' | 'lost';
  reason: 'no_match' | 'all_held' | 'rules' | 'at_limit' | 'paused' | 'away' | null;
  error: string | null;
  lease: Duration | null;
  created_at: Time;
  linger_until: Time | null;
  completed_at: Time | null;
  /** What was committed before, the ranking of its items saw; null if it got none, or pushed ones. */
  ranked_at: Time | null;
  /** Its items are from a shelf that had expired, while its refresh ran. */
  stale: boolean;
  eta_seconds: number | null;
  position: number | null;
  /** Of a request over several tasks; its task is '*' until one of them has answered. */
  tasks?: string[];
  /** While it waits: the one whose query is to run for it. */
  asking?: string;
  work: Work[];
}

export interface Task {
  name: string;
  title: string;
  description: string;
  /** null: an inbox. Absent: only managers and observers may read it. */
  query?: string | null;
  recheck?: string | null;
  query_timeout: Duration;
  fresh_for: Duration;
  stale_for: Duration;
  max_candidates: number;
  max_request: number;
  max_open: number | null;
  lease: Duration | null;
  slots: number;
  done_by: number;
  once: boolean;
  max_attempts: number | null;
  backoff: Duration;
  rerun_after: Duration;
  conflicts_with: string[];
  groups: string[];
  notes: 'holders' | 'managers';
  on_away: 'keep' | 'release' | 'to';
  priority: number;
  pick: 'any' | 'next';
  on_complete: { task: string; share: number; when?: { code: string[] } } | null;
  alert_waiting: Duration;
  alert_backlog_age: Duration | null;
  paused: boolean;
  version: number;
  waiting: number;
  held: number;
  shelf: number;
  /** What the last run found; of an inbox, what is ready. null until a run has finished. */
  backlog: { found: number; free: number; as_of: Time | null; oldest: Time | null } | null;
  /** Completed since midnight by the database's time zone, and an hour; when the backlog is done at that pace. */
  done_today: number;
  pace: number | null;
  through_at: Time | null;
  /** Of what is held, on the shelf or in the inbox: how much is late, and the earliest deadline of the rest. */
  late: number;
  next_deadline: Time | null;
  /** How many need groups or skills that nobody known has. */
  items_nobody?: number;
  running_since: Time | null;
  usual_seconds: number | null;
  /** Settings of newer servers. */
  [more: string]: unknown;
}

/** What createTask and updateTask take; see Settings in /openapi.json. */
export type Settings = Partial<Omit<Task, 'version' | 'waiting' | 'held' | 'shelf' | 'backlog' | 'done_today' | 'pace' | 'through_at' | 'late' | 'next_deadline' | 'items_nobody' | 'running_since' | 'usual_seconds'>>;

export interface Run {
  id: string;
  task: string;
  phase: 'started' | 'finished' | 'failed' | 'cancelled';
  eta_seconds: number | null;
  candidates: number | null;
  duration_ms: number | null;
}

export interface Absence {
  id: string;
  user: string;
  from: Time;
  /** null: until somebody ends it. */
  until: Time | null;
  substitute: string | null;
  /** The list that it was imported from, or ''. */
  source: string;
  created_by: string;
  ended_at: Time | null;
  ended_by: string | null;
}
export interface NewAbsence {
  /** For managers. */
  user?: string;
  from?: Time;
  until?: Time;
  substitute?: string;
}

export interface Pipeline {
  work: Work[];
  requests: Request[];
  absences?: Absence[];
}

/** What became of one user's work lately, and what is left to do. */
export interface Day {
  done: number;
  /** Newest first, at most 200. */
  ended: { work: string; task: string; item: string; title?: string; at: Time; state: Work['state']; code?: string }[];
  left: number;
  late: number;
  tasks: number;
}

/** What is wrong with a task now. */
export interface Alert {
  kind: 'failing' | 'unserved' | 'late' | 'backlog';
  task: string;
  since: Time;
  count: number;
  /** How the query failed last. */
  detail?: string;
}

export interface Me {
  user: string;
  role?: Role;
  groups: string[];
  admin: boolean;
  by: string;
  ends_at: Time | null;
  idle_at?: Time | null;
  log_out: boolean;
  /** How many items they hold and may hold, over all tasks. */
  open?: number;
  max_open?: number;
  away?: Absence | null;
  [more: string]: unknown;
}

/** How many items one user may hold, over all tasks; null: no limit. */
export interface Limits {
  everybody?: number | null;
  groups?: Record<string, number | null>;
  people?: Record<string, number | null>;
}

export interface Hello {
  node: string;
  user: string;
  role: Role;
  server_time: Time;
}

/** What a code leaves to be said may be left out. */
export type Disposition =
  | { outcome: 'complete' | 'never'; note?: string; result?: Result }
  | { outcome: 'return'; after: Duration; to?: 'all' | 'others'; note?: string; result?: Result }
  | { code: string; outcome?: 'complete' | 'return' | 'never'; after?: Duration; to?: 'all' | 'others'; note?: string; result?: Result }
  | { outcome: 'fail'; error?: string; note?: string };

/** By the fields that its task keeps. */
export type Result = Record<string, string | number | boolean | null>;

/** A list of the API: {<plural>: […], next_cursor?}. */
export type Page<Plural extends string, Row> = { [name in Plural]: Row[] } & { next_cursor?: string };
/** Empty values do not filter. */
export type Filter<Name extends string> = { [name in Name]?: string | number | boolean | null };
/** An object that /openapi.json describes. */
export type Described = Record<string, any>;

/** What each person did since then, of whose work nothing counts that a manager took away. */
export interface Person {
  user: string;
  assigned: number;
  closed: number;
  completed: number;
  returned: number;
  never: number;
  failed: number;
  expired: number;
  share: number | null;
  /** Over the hours in which they completed anything. */
  done_per_hour: number | null;
  /** Half of what they completed took no longer. */
  handling_p50_seconds: number | null;
  /** Now. */
  held: number;
  /** Of what they closed, by its code. */
  codes?: Record<string, number>;
}

export interface Returns {
  /** The nodes show no figures of people, and people is empty. */
  people_hidden?: boolean;
  from: Time;
  team: { closed: number; returned: number; share: number | null };
  people: Person[];
  items: Described[];
}

export interface NewItem {
  item: string;
  priority?: number;
  not_before?: Time | Duration;
  deadline?: Time;
  needs?: string[];
  needs_until?: Time;
  slots?: number;
  done_by?: number;
  exclusive?: string;
  details?: Record<string, unknown>;
}

/** The error of a failed call. */
export class Problem extends Error {
  constructor(status: number, body?: { type?: string; title?: string; detail?: string; errors?: { field: string; detail: string }[]; log_in?: string }, retryAfter?: number);
  /** 0: no answer at all. */
  status: number;
  /** Such as '/problems/lease-lost'. */
  type: string;
  title: string;
  detail: string;
  errors: { field: string; detail: string }[];
  /** The path to log in at, or ''. */
  logIn: string;
  /** In ms; 0 if the server did not say. */
  retryAfter: number;
}

export interface RestOptions {
  url?: string;
  headers?: Record<string, string>;
  fetch?: typeof globalThis.fetch;
  parse?: (text: string) => any;
  /** Puts the problem of a call into another language. */
  translate?: (problem: Problem) => Problem | Promise<Problem>;
  clock?: { setTimeout(f: () => void, ms: number): any };
  dated?: (ms: number) => void;
}

export interface CallOptions {
  body?: unknown;
  headers?: Record<string, string>;
  /** ms */
  within?: number;
  keepalive?: boolean;
  signal?: AbortSignal;
  repeats?: number;
}

export interface Answer<Body> {
  status: number;
  tag: string | null;
  /** The address of the next page of a table, if there is one. */
  next?: string;
  /** undefined with status 304. */
  body: Body;
}

/** All calls of the API, and nothing live. Each promise fails with a Problem. */
export interface Rest {
  call(method: string, path: string, options?: CallOptions): Promise<Answer<any>>;
  logIn(user: string, role?: Role): Promise<void>;
  logOut(): Promise<void>;
  me(): Promise<Me>;
  tasks(): Promise<Task[]>;
  task(name: string): Promise<{ task: Task; tag: string | null }>;

  absences(filter?: Filter<'user' | 'cursor' | 'limit'>): Promise<Page<'absences', Absence>>;
  away(absence?: NewAbsence): Promise<Absence>;
  back(id: string): Promise<Absence>;
  skills(user: string): Promise<string[]>;
  setSkills(user: string, skills: string[]): Promise<string[]>;

  pipeline(): Promise<Pipeline>;
  day(filter?: Filter<'since'>): Promise<Day>;
  request(id: string, tag?: string | null): Promise<Answer<Request>>;
  getWork(task: string, body: { count: number; linger?: Duration; lease?: Duration }, headers?: Record<string, string>): Promise<Answer<Request>>;
  getNext(body: { tasks: string[]; count: number; linger?: Duration; lease?: Duration }, headers?: Record<string, string>): Promise<Answer<Request>>;
  cancel(id: string): Promise<Request>;
  showWork(id: string): Promise<Work>;
  dispose(id: string, body: Disposition, options?: { keepalive?: boolean; repeats?: number }): Promise<Work>;
  extend(id: string): Promise<Work>;
  later(id: string, until: Time | null): Promise<Work>;
  /** For the caller, or for whom a manager names. */
  claim(task: string, item: string, to?: { user: string; force?: boolean }): Promise<Work>;

  waiting(filter?: Filter<'task' | 'cursor' | 'limit'>): Promise<Page<'requests', Request>>;
  work(filter?: Filter<'task' | 'user' | 'item' | 'state' | 'value' | 'cursor' | 'limit'>): Promise<Page<'work', Work>>;
  workTable(filter?: Filter<'task' | 'user' | 'item' | 'state' | 'value'>, options?: { signal?: AbortSignal }): AsyncGenerator<string>;
  holders(filter?: Filter<'task' | 'user' | 'cursor' | 'limit'>): Promise<Page<'holders', Described> & { total?: { users: number; held: number } }>;
  runs(task: string, filter?: Filter<'cursor' | 'limit'>): Promise<Page<'runs', Described>>;
  alerts(): Promise<Alert[]>;
  history(filter?: Filter<'task' | 'from' | 'step' | 'zone'>): Promise<Described>;
  returns(filter?: Filter<'task' | 'from'>): Promise<Returns>;
  limits(): Promise<{ limits: Limits; tag: string | null }>;

  createTask(settings: Settings & { name: string }): Promise<Task>;
  updateTask(name: string, changes: Settings, tag: string | null): Promise<Task>;
  setPaused(name: string, paused: boolean): Promise<Task>;
  setLimits(limits: Limits, tag: string | null): Promise<{ limits: Limits; tag: string | null }>;
  taskLog(name: string, filter?: Filter<'cursor' | 'limit'>): Promise<Described>;
  deleteTask(name: string): Promise<void>;
  versions(name: string, filter?: Filter<'cursor' | 'limit'>): Promise<Page<'versions', Described>>;
  restore(name: string, version: number, tag?: string | null): Promise<Task>;
  preview(name: string | null | undefined, options?: Described, call?: { signal?: AbortSignal; within?: number }): Promise<Described>;
  compare(task: string, options: Described, call?: { signal?: AbortSignal; within?: number }): Promise<Described>;
  /** The tables and columns that a ranking query may read. */
  schema(): Promise<Described>;
  explain(task: string, item: string, call?: { signal?: AbortSignal }): Promise<Described>;
  push(task: string, items: NewItem[]): Promise<{ accepted: number; duplicates: number }>;
  redrive(task: string, items?: string[]): Promise<{ count: number }>;
  reassign(id: string, user: string, force?: boolean): Promise<Work>;
  release(filter: { user?: string; task?: string; dry_run?: boolean; token?: string }): Promise<{ count: number; requests: number; token?: string }>;
}

export function rest(options?: RestOptions): Rest;

export type State =
  | { name: 'connecting' | 'live' | 'lagging'; reason?: undefined }
  | { name: 'polling'; every: number; next: number; error?: Problem; reason?: undefined }
  | { name: 'stopped'; reason: 'patience' | 'unauthenticated' | 'forbidden' | 'closed' };

/** The events of a client, each a CustomEvent with this as its detail. */
export interface Events {
  state: State;
  change: undefined;
  request: Request;
  reviewed: Work;
  gone: Work;
  absence: Absence;
  run: Run;
  task: Task;
  tasks: undefined | Record<string, never>;
  reread: undefined;
  hello: Hello;
  problem: Problem;
}

export interface ConnectOptions extends Omit<RestOptions, 'clock' | 'dated'> {
  watch?: boolean;
  WebSocket?: any;
  clock?: { now(): number; setTimeout(f: () => void, ms: number): any; clearTimeout(id: any): void };
  random?: () => number;
  delays?: { poll?: number[]; stop?: number; socket?: [number, number]; ping?: number; silence?: number; steady?: number; wake?: number };
}

/** One user's pipeline, kept live. */
export interface Client extends EventTarget {
  work: Map<string, Work>;
  requests: Map<string, Request>;
  absences: Map<string, Absence>;
  state: State;
  /** The pipeline has been read: until then an empty `work` says nothing. */
  known: boolean;
  user: Hello | null;
  /** By how many ms the server's clock is ahead of this machine's. */
  ahead: number;
  getWork(task: string, count: number, options?: { linger?: Duration; lease?: Duration; key?: string }): Promise<Request>;
  /** tasks: names, or ['*'] for all. */
  getNext(tasks: string[], count: number, options?: { linger?: Duration; lease?: Duration; key?: string }): Promise<Request>;
  cancel(id: string): Promise<Request>;
  dispose(id: string, disposition: Disposition, options?: { keepalive?: boolean; repeats?: number }): Promise<Work>;
  extend(id: string): Promise<Work>;
  later(id: string, until: Time | null): Promise<Work>;
  claim(task: string, item: string): Promise<Work>;
  away(absence?: NewAbsence): Promise<Absence>;
  back(id: string): Promise<Absence>;
  left(work: Work): number | null;
  me(): Promise<Me>;
  tasks(): Promise<Task[]>;
  subscribe(names: Iterable<string>): void;
  unsubscribe(names: Iterable<string>): void;
  resume(): void;
  close(): void;
  refresh(): Promise<void>;
  addEventListener<Type extends keyof Events>(type: Type, listener: (event: CustomEvent<Events[Type]>) => void, options?: boolean | AddEventListenerOptions): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions): void;
}

export function connect(options?: ConnectOptions): Client;
