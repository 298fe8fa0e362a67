/* The protocol by which getwork hands out work, as a model that Spin checks: docs/protocol.md describes what and how.
 *
 * Promela in ten lines, for readers who have never seen it:
 *
 *   proctype         a process. They run side by side; Spin tries every order in which their steps can interleave.
 *   a; b   a -> b    first a, then b: two steps, and anything may happen between them.
 *   x == 1           a condition standing alone waits until it is true.
 *   if :: … :: … fi  takes a branch whose first step can be taken now; if several can, Spin tries each. "else": if none can.
 *   do :: … od       the same again and again, until break or goto.
 *   d_step { … }     one step that nothing divides: what one SQL statement does, or a node under its mutex. If it begins
 *                    with a condition it waits for that.
 *   {…} unless {…}   executes the first until the second can begin, then the second: how a node is killed.
 *   assert(…)        must be true whenever it is reached. Spin looks for an execution in which it is not.
 *   end…:            a label where a process may rest for ever. To be stuck anywhere else is an error.
 *   inline           a macro. _pid is the number of the process that takes the step.
 *
 * Brackets, as in [recordBatch], name the functions and statements of package assign whose steps these are. A
 * switch WITHOUT_… takes one line of defence away: with these the test proves that the model can fail.
 *
 * There is one task, CLICKERS people who each click once for one item, NODES nodes, and ITEMS items; the lowest is the best.
 */

#ifndef CLICKERS
#define CLICKERS 3
#endif
#ifndef NODES
#define NODES 2
#endif
#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef CRASHES           /* how many times nodes may be killed */
#define CRASHES 0
#endif
#ifndef CUTS              /* how many transactions the database may end: connections cut, nodes frozen for too long */
#define CUTS 0
#endif
#ifndef CLOSINGS          /* how many items their holders may complete */
#define CLOSINGS 0
#endif
#ifndef REFRESHES         /* how many runs may be started ahead of need, beside a fresh shelf */
#define REFRESHES 0
#endif
/* CANCELS: people may cancel.  SHELF: a run's leftovers are handed out without a run for a while (fresh_for is above 0). */

#define PROCESSES (NODES + CLICKERS)   /* each has at most one transaction open, which is called by its _pid */
#define CLICKER   (_pid - NODES)       /* which person a process is */
#define BIT(i)    (1 << (i))           /* sets of items, requests or nodes are bits of a byte */
#define NOBODY    0                    /* has the lock; otherwise it is the holder's _pid + 1 */

/* ---------------------------------------------------------------------------------------------------- the database
 * All of this is committed, and every process sees it. A transaction's writes are invisible until its commit, which
 * is one step. If it is rolled back, or its node dies, only its locks must be undone. */

mtype = { unrecorded, pending, assigned, none, cancelled }
mtype state[CLICKERS] = unrecorded;    /* table work_requested: each person's one request */
byte drawn;                            /* the sequence of its ids: how many were drawn, committed or not. People are numbered as
                                          they draw theirs, so person 0 has the first */
byte waiting;                          /* those whose state is pending, as a set */
byte held;                             /* table work: items that somebody holds */
byte done;                             /* and those that were completed: the query no longer finds them */

byte run_lock = NOBODY;                /* the row of table task is locked */
byte assign_lock = NOBODY;             /* the row of table task_state is locked */
byte locked;                           /* rows of work_requested that are locked, */
byte row_locks[PROCESSES];             /* and by which transaction */
byte inserting;                        /* items with an uncommitted row of work: the unique index makes others that write */
byte inserted[PROCESSES];              /* the same item wait; and by which transaction */
bool open[PROCESSES];                  /* the transaction is open. If it was ended from outside, its node learns that from its next statement */

byte run_row = NOBODY;                 /* table run: whose run is called running */
bool delay;                            /* task_state.retry_at is to come: a run failed, through no fault of the query */

#ifdef SHELF                           /* an earlier run has filled it */
bool fresh = true;                     /* task_state.fresh_until is to come */
byte shelf = BIT(ITEMS) - 1;           /* table candidate: what the last run found */
#else
bool fresh;
byte shelf;
#endif
byte closed_shelf;                     /* items closed since that run's snapshot, by pg_visible_in_snapshot */
byte closed[PROCESSES];                /* the same for a run that is under way */
bool refresh_due;                      /* the task is in use, and its shelf about to end */

/* ----------------------------------------------------------------------------------------- the nodes: lost when killed */

bool asked[NODES];                     /* Look was called: begin one, or look once more if one is under way [wake] */
bool timer[NODES];                     /* look when the retry delay is over [wakeAfter] */
bool killed[NODES];                    /* kill -9 */
bool dead[NODES];                      /* and not started again; the last node always is */
byte node_of[CLICKERS];                /* where the person's HTTP request went */
bool connected[CLICKERS];              /* and the request is still open */

/* -------------------------------------------------------------------------- for the properties: no step depends on these */

byte answered;                         /* people who wait, and know that their request is recorded */
byte before[CLICKERS];                 /* those who knew so before this one was recorded */
byte querying;                         /* nodes whose query executes */

hidden byte i, k, n;                   /* counters inside of a step; nothing is kept in them. (A step can't end with a loop.) */

#ifdef SHELF
#define SHELF_IS_FRESH  fresh
#define REFRESH_IS_DUE  (fresh && refresh_due)
#else
#define SHELF_IS_FRESH  false
#define REFRESH_IS_DUE  false
#endif
#define NOTHING_TO_DO   (!REFRESH_IS_DUE && (waiting == 0 || delay && !SHELF_IS_FRESH))      /* [plan.Next] */

#ifdef WITHOUT_RUN_LOCK
#define RUN_LOCK_IS_FREE  true
#else
#define RUN_LOCK_IS_FREE  (run_lock == NOBODY)
#endif
#ifdef WITHOUT_ASSIGN_LOCK
#define ASSIGN_LOCK_IS_FREE  true
#else
#define ASSIGN_LOCK_IS_FREE  (assign_lock == NOBODY)
#endif

#ifdef WITHOUT_EVERYBODY
#define WHO_WAITS(recorded)  (recorded != 0 -> recorded : waiting)
#else
#define WHO_WAITS(recorded)  (waiting | recorded)
#endif
#ifdef WITHOUT_ORDER
#define NTH(i)  (CLICKERS - 1 - i)
#else
#define NTH(i)  i
#endif

#ifdef WITHOUT_LOOK_ONCE_MORE
#define LOOK_MORE  false
#else
#define LOOK_MORE  asked[_pid]
#endif

#ifdef WITHOUT_SNAPSHOT
#define CLOSED(since)  0
#else
#define CLOSED(since)  (since)
#endif

/* The periodic look leaves requests to a run that is alive: its transaction is open [selectOrphans]. */
#define RUN_IS_ALIVE  (run_row != NOBODY && open[run_row - 1])

/* let_go frees what a transaction holds, however it ends. */
inline let_go(tx) {
  open[tx] = false;
  locked = locked & ~row_locks[tx];
  row_locks[tx] = 0;
  inserting = inserting & ~inserted[tx];
  inserted[tx] = 0;
  if :: run_lock == tx + 1 -> run_lock = NOBODY :: else fi;
  if :: assign_lock == tx + 1 -> assign_lock = NOBODY :: else fi
}

/* end_request: a request ends once. So a confirmed cancel stays one, too. */
inline end_request(r, how) {
  assert(state[r] == pending);
  state[r] = how;
  waiting = waiting & ~BIT(r)
}

/* reset what no step depends on any more, so that states which differ in nothing else are one. */
inline forget(r) {
  before[r] = 0;
  answered = answered & ~BIT(r)
}

/* ------------------------------------------------------------------------------------------------------------- a round
 * Its statements, in a transaction that has the assign lock. Waiting people and items are sets. The plan follows from
 * them, and is what [plan.Assign] makes: the lowest id gets the best item, and so on, until none is left. */

/* CAN_WRITE: no other open transaction has locked those rows, or written such items. */
#ifdef WITHOUT_UNIQUE_INDEX
#define CAN_WRITE(recorded)  ((locked & ~row_locks[_pid] & who & ~(recorded)) == 0)
#else
#define CAN_WRITE(recorded)  ((locked & ~row_locks[_pid] & who & ~(recorded)) == 0 && (inserting & given) == 0)
#endif

/* plan_and_write [serve] ends with the plan written, or with the transaction lost. recorded: the request that this
 * transaction records; 0 if none. */
inline plan_and_write(recorded, found, since) {
  again = true;
  do
  :: again ->
       if                              /* read who waits: wait for locked rows, and lock them [readWaiting, readOn, selectWaiting] */
       :: d_step {
#ifdef WITHOUT_ROW_LOCKS
            open[_pid] ->
            who = WHO_WAITS(recorded)
#else
            open[_pid] && (locked & ~row_locks[_pid] & waiting) == 0 ->
            who = WHO_WAITS(recorded);
            row_locks[_pid] = waiting;
            locked = locked | waiting
#endif
          }
       :: !open[_pid] -> break
       fi;
       if                              /* read the items [take, availability] */
       :: d_step { open[_pid] -> choose(found, since) }
       :: !open[_pid] -> break
       fi;
       if                              /* [write]. The index and the row locks make a second writer wait for the first */
       :: d_step {
            open[_pid] && CAN_WRITE(recorded) ->
            check(recorded);
            if
            :: again ->               /* rollback to savepoint, and again. (In PostgreSQL the rows that it read stay locked; here they don't) */
                 locked = locked & ~row_locks[_pid]; row_locks[_pid] = 0; who = 0
            :: else ->
                 inserted[_pid] = given; inserting = inserting | given;
                 row_locks[_pid] = row_locks[_pid] | (who & ~(recorded)); locked = locked | row_locks[_pid]
            fi;
            given = 0
          }
       :: !open[_pid] -> break
       fi
  :: else -> break
  od;
  again = false
}

/* choose: of the items found, those that are free now and were not closed since; as many as there are people. */
inline choose(found, since) {
  given = 0;
  n = 0;
  for (i : 0 .. CLICKERS - 1) {
    if :: who & BIT(i) -> n++ :: else fi
  }
  for (i : 0 .. ITEMS - 1) {
    if
    :: n > 0 && (found & ~held & ~CLOSED(since) & BIT(i)) -> given = given | BIT(i); n--
    :: else
    fi
  }
  n = 0
}

/* check repeats the writes' conditions on what was read; "again" if they are no longer true [errMoved, again]. */
inline check(recorded) {
  again = false;
#ifndef WITHOUT_UNIQUE_INDEX
  if :: (given & held) != 0 -> again = true :: else fi                      /* index work_held_slot */
#endif
#ifndef WITHOUT_STILL_PENDING
  if :: (who & ~(recorded) & ~waiting) != 0 -> again = true :: else fi      /* where … state = 'pending' [answerRequests] */
#endif
}

/* publish does what the commit makes visible. Its assertions are promises. */
inline publish() {
  for (i : 0 .. CLICKERS - 1) {
    if
    :: who & BIT(NTH(i)) ->
         n = 0;
         do
         :: n < ITEMS && !(inserted[_pid] & BIT(n)) -> n++
         :: else -> break
         od;
         if
         :: n < ITEMS ->
              assert(!(held & BIT(n)));               /* nobody gets an item that somebody holds, */
              assert(!(done & BIT(n)));               /* nor one that was completed: no outdated result is used */
              held = held | BIT(n);
              inserted[_pid] = inserted[_pid] & ~BIT(n); inserting = inserting & ~BIT(n);
              end_request(NTH(i), assigned)
         :: else -> end_request(NTH(i), none)
         fi
    :: else
    fi
  }
  for (i : 0 .. CLICKERS - 1) {        /* a person who was answered before another was recorded is not served later, nor given less */
    for (k : 0 .. CLICKERS - 1) {
      if
      :: (who & BIT(i)) && (before[i] & BIT(k)) ->
           assert(state[k] != pending);
           assert(!((who & BIT(k)) && state[i] == assigned && state[k] == none))
      :: else
      fi
    }
  }
  for (i : 0 .. CLICKERS - 1) {
    if :: who & BIT(i) -> forget(i) :: else fi
  }
  who = 0
}

/* -------------------------------------------------------------------------------------------------------------- a node
 * Its look at the task [runServeLoop, serveOnce]: one at a time. The node sleeps until it is asked, or its timer goes off, or its
 * periodic look finds a request that nobody serves [rescuer.run, rescue]. */

active [NODES] proctype Node() {
  bool moved;                          /* the attempt has moved the task on */
  bool off_shelf;                      /* the round hands out the shelf's items, not those of a run of its own */
  byte found;                          /* what its query returned */
  byte who, given; bool again;

end_asleep:
  do
  :: {
       if
       :: d_step { asked[_pid] -> asked[_pid] = false }
       :: d_step { timer[_pid] && !delay -> timer[_pid] = false }
#ifndef WITHOUT_SWEEP
       :: waiting != 0 && !delay && !RUN_IS_ALIVE -> goto try
#endif
#if REFRESHES > 0
       :: REFRESH_IS_DUE
#endif
       fi;

look:                                  /* is there anything to do? Without any lock [readTaskView] */
       if
       :: d_step { NOTHING_TO_DO -> timer[_pid] = delay && waiting != 0 }; goto looked
       :: d_step { !NOTHING_TO_DO -> timer[_pid] = delay && waiting != 0 }
       fi;

try:
       if                              /* try the run lock; never wait for it [tryLock, runLock] */
       :: d_step { RUN_LOCK_IS_FREE -> run_lock = _pid + 1; open[_pid] = true }
       :: !RUN_LOCK_IS_FREE -> goto looked            /* busy: its holder looks again after releasing it */
       fi;

       if                              /* look before running: its last holder may have served all who wait [underLock] */
       :: open[_pid] && NOTHING_TO_DO ->
            d_step {
              let_go(_pid);
#ifndef WITHOUT_LOOK_AFTER_NOTHING
              asked[_pid] = true       /* a click recorded after we read has found the lock taken */
#endif
            };
            goto looked
#ifdef SHELF
       :: open[_pid] && SHELF_IS_FRESH && waiting != 0 -> off_shelf = true; goto round
#endif
       :: open[_pid] && !NOTHING_TO_DO && !(SHELF_IS_FRESH && waiting != 0)
       :: !open[_pid] -> goto looked
       fi;

       run_row = _pid + 1;             /* in a transaction of its own. A run that is called running now must be dead [beginRun] */

       if                              /* the query sees what is committed when it begins [rank] */
       :: d_step {
            open[_pid] ->
#ifndef RUNS_MAY_MEET
            assert(querying == 0);                    /* one run at a time */
#endif
            querying = querying | BIT(_pid);
            closed[_pid] = 0;
            found = (BIT(ITEMS) - 1) & ~held & ~done
          }
       :: !open[_pid] -> goto give_up
       fi;
       if                              /* and half a minute later … */
       :: d_step { open[_pid] -> querying = querying & ~BIT(_pid) }
#ifdef CANCELS
       :: waiting == 0 && !REFRESH_IS_DUE ->          /* nobody waits any more [watch, giveUp, logServeError] */
            d_step { let_go(_pid); querying = querying & ~BIT(_pid); found = 0; closed[_pid] = 0 };
            d_step { ASSIGN_LOCK_IS_FREE -> if :: run_row == _pid + 1 -> run_row = NOBODY :: else fi };
#ifndef WITHOUT_LOOK_AFTER_GIVING_UP
            asked[_pid] = true;
#endif
            goto looked
#endif
       :: !open[_pid] -> goto give_up  /* the query is lost with the lock: they are on one connection */
       fi;

#ifdef SHELF
round:
#endif
       if                              /* the assign lock: wait for it [handOut, serveShelf, openRound] */
       :: d_step { open[_pid] && ASSIGN_LOCK_IS_FREE -> assign_lock = _pid + 1 }
       :: !open[_pid] -> goto give_up
       fi;
#ifdef SHELF
       if
       :: off_shelf && !fresh -> d_step { let_go(_pid); moved = true }; goto looked      /* it expired after we looked */
       :: off_shelf && fresh -> plan_and_write(0, shelf, closed_shelf)
       :: !off_shelf -> plan_and_write(0, found, closed[_pid])
       fi;
#else
       plan_and_write(0, found, closed[_pid]);
#endif
       if                              /* [commit] */
       :: d_step {
            open[_pid] && (off_shelf || run_row == _pid + 1) ->
            publish();
            if
            :: !off_shelf ->           /* [settleRun] */
                 run_row = NOBODY; delay = false;
#ifdef SHELF
                 shelf = found; closed_shelf = closed[_pid]; fresh = true; refresh_due = false
#endif
            :: else
            fi;
            let_go(_pid);
            open[_pid] = true          /* it is not, but we do not know yet whether it was committed */
          }
       :: open[_pid] && !off_shelf && run_row != _pid + 1 -> goto give_up      /* our run was judged dead [finishRun] */
       :: !open[_pid] -> goto give_up
       fi;
       if
       :: d_step {
            open[_pid] -> open[_pid] = false;
#ifndef WITHOUT_LOOK_AGAIN
            moved = true
#endif
          }
       :: !open[_pid] -> goto give_up
       fi;
       goto looked;

give_up:                               /* something broke. If it was our run, delay the next [giveUp, retry] */
       atomic { let_go(_pid); who = 0; given = 0 };
       if
       :: off_shelf
       :: d_step {
            !off_shelf && ASSIGN_LOCK_IS_FREE ->
            if :: run_row == _pid + 1 -> run_row = NOBODY; delay = true :: else fi;
            timer[_pid] = delay && waiting != 0
          }
       fi;

looked:                                /* [runServeLoop] */
       atomic { found = 0; closed[_pid] = 0; off_shelf = false };
       if
       :: d_step { moved || LOOK_MORE -> moved = false; asked[_pid] = false }; goto look      /* the look again */
       :: d_step { !moved && !LOOK_MORE -> asked[_pid] = false }
       fi
     } unless {
       d_step {
         killed[_pid] ->
         killed[_pid] = false;
         moved = false; off_shelf = false; found = 0; closed[_pid] = 0; who = 0; given = 0; again = false
       };
       if :: dead[_pid] -> break :: !dead[_pid] fi    /* or started again, knowing nothing */
     }
  od
}

/* ------------------------------------------------------------------------------------------------------------ a person
 * and the node's work for that person [GetWork, recordBatch, recordAndServe, Cancel]. */

inline draw() {
  drawn++;
  before[CLICKER] = answered
}

inline hang_up() {
  connected[CLICKER] = false;
  node_of[CLICKER] = 0
}

active [CLICKERS] proctype Clicker() {
  byte who, given; bool again;

  atomic {                             /* the click reaches a living node; for the first click all nodes are equal */
    drawn == CLICKER;
    do
    :: !dead[node_of[CLICKER]] -> break
    :: node_of[CLICKER] < NODES - 1 && (node_of[CLICKER] < CLICKER || CRASHES > 0) -> node_of[CLICKER]++
    od;
    connected[CLICKER] = true
  }

#ifdef SHELF
  if                                   /* fresh? Then record and serve in one transaction [admit, recordAndServe] */
  :: d_step { connected[CLICKER] && fresh && ASSIGN_LOCK_IS_FREE -> assign_lock = _pid + 1; open[_pid] = true }
  :: goto record                       /* or it was not fresh when we looked: a look without a lock sees only the past */
  fi;
  if
  :: d_step { open[_pid] && !fresh -> let_go(_pid) }; goto record      /* it expired while we waited for the lock */
  :: d_step { open[_pid] && fresh -> draw() }
  :: !open[_pid] -> goto refused
  fi;
  plan_and_write(BIT(CLICKER), shelf, closed_shelf);
  if
  :: d_step {
       open[_pid] ->
       state[CLICKER] = pending; waiting = waiting | BIT(CLICKER);
       publish();
       let_go(_pid); hang_up()
     };
     goto ended
  :: !open[_pid] -> goto refused
  fi;

record:
#endif
  if                                   /* insert … [insertClicks] */
  :: d_step { connected[CLICKER] -> draw() }
  :: !connected[CLICKER] -> goto refused
  fi;
#ifdef WITHOUT_COMMIT_FIRST
  asked[node_of[CLICKER]] = true;
#endif
  if                                   /* and commit. Only then … */
  :: d_step { connected[CLICKER] -> state[CLICKER] = pending; waiting = waiting | BIT(CLICKER) }
  :: !connected[CLICKER] -> goto refused
  fi;
  if                                   /* is the node asked to look, and the person told to wait [answer] */
  :: d_step {
       connected[CLICKER] ->
       answered = answered | (waiting & BIT(CLICKER));
#ifndef WITHOUT_COMMIT_FIRST
       asked[node_of[CLICKER]] = true;
#endif
       hang_up()
     }
  :: d_step { !connected[CLICKER] -> hang_up() }      /* the node died: the request is recorded, and nobody knows */
  fi;

#ifdef CANCELS
  if
  :: true
  :: true ->                           /* the person cancels [Cancel] */
       if                              /* a round that has read the row holds it until its commit */
       :: d_step {
            !(locked & BIT(CLICKER)) && state[CLICKER] == pending ->
            end_request(CLICKER, cancelled); forget(CLICKER)
          }
       :: !(locked & BIT(CLICKER)) && state[CLICKER] != pending      /* too late: 409 */
       fi
  fi;
#endif

  state[CLICKER] != pending;           /* the person asks again, which reads the request and starts nothing */
  goto ended;
refused:                               /* nothing was recorded, and the person was told so, or nothing */
  atomic {
    if :: drawn == CLICKER -> drawn++ :: else fi;
    who = 0; given = 0; hang_up()
  };
ended:
  skip
}

/* ----------------------------------------------------------------------------------------------------------- the world */

/* sever ends a transaction from outside. Its locks, and the query on its connection, end with it. */
inline sever(tx) {
  let_go(tx);
  if :: tx < NODES -> querying = querying & ~BIT(tx) :: else fi
}

/* kill: a node dies, with its connections, its open HTTP requests, and its memory. */
inline kill(node) {
  d_step {
    crashes--;
    killed[node] = true; asked[node] = false; timer[node] = false;
    sever(node);
    for (k : 0 .. CLICKERS - 1) {
      if :: connected[k] && node_of[k] == node -> connected[k] = false; sever(NODES + k) :: else fi
    }
    k = 0
  }
}

active proctype World() {
  byte crashes = CRASHES, cuts = CUTS, closings = CLOSINGS, refreshes = REFRESHES;
  byte t;

end:
  do
  :: delay -> delay = false            /* time passes */
#ifdef LIVENESS
  :: waiting != 0 && !delay            /* and passes when nothing happens */
#endif
#ifdef SHELF
  :: fresh -> d_step { fresh = false; refresh_due = false }
#endif
#if REFRESHES > 0
  :: refreshes > 0 && fresh && !refresh_due -> d_step { refreshes--; refresh_due = true }
#endif
#if CRASHES > 0
  :: crashes > 0 -> crashes = 0        /* perhaps no node is killed */
  :: atomic {                          /* kill -9, at any time */
       crashes > 0 -> select(t : 0 .. NODES - 1);
       if
       :: dead[t]
       :: !dead[t] && t < NODES - 1 -> dead[t] = true; kill(t)
       :: !dead[t] -> kill(t)          /* it is started again */
       fi;
       t = 0
     }
#endif
#if CUTS > 0
  :: cuts > 0 -> cuts = 0
  :: atomic {
       cuts > 0 -> select(t : 0 .. PROCESSES - 1);
       if
       :: open[t] -> d_step { sever(t); cuts--; t = 0 }
       :: !open[t] -> t = 0
       fi
     }
#endif
#if CLOSINGS > 0
  :: atomic {                          /* somebody completes an item [closeWork] */
       closings > 0 -> select(t : 0 .. ITEMS - 1);
       if
       :: held & BIT(t) ->
            d_step {
              closings--; held = held & ~BIT(t); done = done | BIT(t);
              closed_shelf = closed_shelf | BIT(t);
              for (k : 0 .. NODES - 1) { closed[k] = closed[k] | BIT(t) };
              t = 0
            }
       :: !(held & BIT(t)) -> t = 0
       fi
     }
#endif
  od
}

#ifdef LIVENESS
/* Nobody is lost: some day nobody waits, and that stays so. Nothing leaves an ended state (an assertion), and people click
 * once, so this means that every recorded request ends. */
ltl nobody_is_lost { <>[] (waiting == 0) }
#endif
