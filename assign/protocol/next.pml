/* One request over several tasks ("get next"), as a model that Spin checks before there is code: docs/protocol.md describes what and
 * how. getwork.pml is the protocol of one task, and begins with an introduction to Promela. What that model proves is taken for granted
 * here: items are only counted, and what fails in a run is its node.
 *
 * Brackets, as in [WakeLingering], name functions of package assign whose steps these are. The rest are rules of this feature.
 *
 * There are two tasks. A has a query, which may find nothing, and may take for ever; and a shelf, while no run is under way. B is an
 * inbox, or with B_QUERIES a second such query. Up to three people click once each: one on A alone, the others on both tasks. Their
 * requests for both stand in a line of their own, that of task 0, whose rows the rounds of both tasks may serve. A query runs only for the first of
 * the tasks that are still to be asked for a request: its todo.
 */

#ifndef PEOPLE            /* of whom one clicks on A alone; with NO_ORDINARY nobody does */
#define PEOPLE 2
#endif
#ifndef NODES
#define NODES 1
#endif
#ifndef CRASHES           /* how many times node 0 may be killed. It starts again at once, knowing nothing */
#define CRASHES 0
#endif
#ifndef FREED             /* how many items are pushed, or become free again */
#define FREED 1
#endif
#ifndef FOUND             /* how many items the queries find at most, all together */
#define FOUND 1
#endif
#ifndef REPEATS            /* how many times rounds plan again, because a constraint refused their plan */
#define REPEATS 0
#endif
#ifndef LINGERERS         /* who lingers, as a set */
#define LINGERERS 3
#endif

#define A         0
#define B         1
#define NEITHER   2
#define BOTH      3                    /* sets of tasks, of people, or of wake-ups are bits of a byte */
#define BIT(i)    (1 << (i))
#define NOBODY    0                    /* has the lock; otherwise it is the holder's _pid + 1 */

#ifdef B_QUERIES
#define QUERIES       BOTH
#define HAS_QUERY(t)  true
#else
#define QUERIES       BIT(A)
#define HAS_QUERY(t)  (t == A)
#endif

/* ---------------------------------------------------------------------------------------------------------- the database */

mtype = { unrecorded, pending, assigned, none };
mtype state[PEOPLE] = unrecorded;      /* table work_requested. People are numbered as they draw their ids */
byte drawn;                            /* the sequence of the ids */
byte ordinary = PEOPLE;                /* who clicks on A alone */
byte todo[PEOPLE];                     /* the tasks that are still to be asked */
byte unseen[PEOPLE];                   /* the tasks whose rounds have not met it yet: each takes itself off if it has nothing for it */
byte items[2];                         /* what is ready in the inbox, or free on the shelf */

byte run_lock[2];                      /* the row of table task is locked */
byte assign_lock[2];                   /* the row of table task_state is locked */
byte row_lock[PEOPLE];                 /* the request's row is locked */
bool running[2];                       /* a run is under way */

/* ------------------------------------------------------------------------------------- the nodes: lost when they are killed */

byte woken;                            /* node and task: look, also for what became free [WakeLingering] */
byte killed;                           /* the same: kill -9 */
byte pushed;                           /* tasks woken for a push by another node, which lives */
byte connected;                        /* people whose HTTP requests are open */

byte found = FOUND, agains = REPEATS;
hidden byte i;                         /* a counter inside of a step */

#define IS_FIRST(r, t)   ((todo[r] & BIT(t)) && (t == A || !(todo[r] & BIT(A))))
#define IN_LINE(r)       (state[r] == pending && r != ordinary)
#define MAY(r, t)        (state[r] == pending && (r != ordinary || t == A))         /* a round of the task may serve it */
#define IS_FOR(r, t)     (MAY(r, t) && (r == ordinary || IS_FIRST(r, t)))           /* the task's run is for it */
#define IS_UNSEEN(r, t)  (IN_LINE(r) && (unseen[r] & BIT(t)))

#if PEOPLE == 3
#define ANYBODY(p, t)    (p(0, t) || p(1, t) || p(2, t))
#define EVERYBODY(p, t)  (p(0, t) | p(1, t) << 1 | p(2, t) << 2)
#elif PEOPLE == 2
#define ANYBODY(p, t)    (p(0, t) || p(1, t))
#define EVERYBODY(p, t)  (p(0, t) | p(1, t) << 1)
#else
#define ANYBODY(p, t)    p(0, t)
#define EVERYBODY(p, t)  p(0, t)
#endif

#ifdef WITHOUT_ELSEWHERE               /* a request is a reason for the runs of all its tasks */
#define IS_REASON(r, t)  (MAY(r, t) && (r == ordinary || todo[r] != 0))
#else
#define IS_REASON(r, t)  IS_FOR(r, t)
#endif
#define WAITS(t)         ANYBODY(IS_REASON, t)
#define SERVES(t)        (!running[t] && items[t] > 0)                              /* without a run */
#define HAS_A_ROUND(t)   (SERVES(t) && ANYBODY(MAY, t) || !running[t] && ANYBODY(IS_UNSEEN, t))     /* others would change nothing */

/* The periodic look, at requests that a task's run is for, or that no round of the task has seen [rescueAll]. */
#ifdef WITHOUT_RESCUING
#define IS_ORPHAN(r, t)  false
#else
#ifdef WITHOUT_RESCUING_ALL            /* only the former */
#define IS_ORPHAN(r, t)  (IS_FOR(r, t) && !running[t])
#else
#ifdef WITHOUT_RESCUING_BESIDE_RUN     /* not while the run is under way that is for them, as it is with one task */
#define IS_ORPHAN(r, t)  (!running[A] && !running[B] && (IS_FOR(r, t) || IS_UNSEEN(r, t)))
#else
#define IS_ORPHAN(r, t)  (!running[t] && (IS_FOR(r, t) || IS_UNSEEN(r, t)))
#endif
#endif
#endif

#define wake(node, tasks)  woken = woken | (tasks) << 2 * (node)
#ifdef WITHOUT_WAKING_ALL              /* one task alone is woken */
#define ALL(r)  (todo[r] == BIT(B) -> BIT(B) : BIT(A))
#else
#define ALL(r)  (r == ordinary -> BIT(A) : BOTH)
#endif

inline let_go() {
  for (i : A .. B) {
    if :: run_lock[i] == _pid + 1 -> run_lock[i] = NOBODY; running[i] = false :: else fi;
    if :: assign_lock[i] == _pid + 1 -> assign_lock[i] = NOBODY :: else fi
  }
  for (i : 0 .. PEOPLE - 1) {
    if :: row_lock[i] == _pid + 1 -> row_lock[i] = NOBODY :: else fi
  }
  i = 0
}

/* ------------------------------------------------------------------------------------------------------------- a round
 * It has its task's assign lock. It reads the task's line and that of task 0 in one statement, as far as it has items to give, and
 * locks the rows by id: it waits for those that a round of the other task has locked, and goes by what they are then
 * [readWaiting, selectWaiting]. in_full: it answers all, also those for whom it has nothing, as a run's round does. */

#ifdef WITHOUT_LOCKING_BY_ID
#define NTH(k)  (t == B -> PEOPLE - 1 - (k) : (k))
#else
#define NTH(k)  (k)
#endif

#define MUST(r)  (in_full || IS_UNSEEN(r, t))

inline begin_reading() {
  d_step {
    snapshot = EVERYBODY(MAY, t);
#ifndef WITHOUT_READING_UPWARDS        /* if it plans again, it reads no row below those that it has locked */
    if
    :: who & 4 -> snapshot = snapshot & 4
    :: !(who & 4) && (who & 2) -> snapshot = snapshot & 6
    :: else
    fi;
#endif
    snapshot = snapshot & ~who;
    left = items[t] + more;
    k = 0
  }
}

inline read_waiting(in_full) {
  do
  :: atomic {
       do                              /* the next that it reads */
       :: k < PEOPLE && (!(snapshot & BIT(NTH(k))) || !(left > 0 || MUST(NTH(k)))) -> k++
       :: else -> break
       od;
       if
       :: k == PEOPLE -> snapshot = 0; k = 0; left = 0; break
       :: else ->
#ifndef WITHOUT_ROW_LOCKS
            row_lock[NTH(k)] == NOBODY || row_lock[NTH(k)] == _pid + 1;
#endif
            if
            :: MAY(NTH(k), t) ->
                 who = who | BIT(NTH(k)); row_lock[NTH(k)] = _pid + 1;
                 left = (left > 0 -> left - 1 : 0)
            :: else                    /* served meanwhile */
            fi;
            k++
       fi
     }
  od
}

#ifdef WITHOUT_STILL_PENDING
#define STILL_PENDING  true
#else                                  /* where … state = 'pending' [answerRequests] */
#define STILL_PENDING  ((who & ~EVERYBODY(MAY, t)) == 0)
#endif

/* answer ends a request. */
inline answer(r, how) {
  assert(state[r] == pending);         /* it ends once: no two tasks give it something */
  state[r] = how;
  todo[r] = 0; unseen[r] = 0
}

/* settle: nothing is to be asked any more. The request ends, or lingers from now on. Then each task has been woken for it, or is unseen. */
inline settle(r) {
  if
  :: LINGERERS & BIT(r) ->
#ifdef WITHOUT_UNSEEN                  /* the round that leaves it lingering counts as all tasks', and wakes all */
       unseen[r] = 0; waken = waken | ALL(r)
#else
       skip
#endif
  :: else -> answer(r, none)
  fi
}

#ifdef WITHOUT_ONE_TRANSACTION         /* that a task took itself off, and what follows from that */
#define TAKEN_OFF(r)  -> second = second | BIT(r)
#define IS_LOCKED(r, t)  ((second & BIT(r)) && row_lock[r] != NOBODY)
#else
#define TAKEN_OFF(r)  -> settle(r)
#endif

/* record: the request waits, if there is anything to ask or it lingers. */
inline record() {
  if
  :: me == ordinary || ask != 0 || (LINGERERS & BIT(me)) -> state[me] = pending; todo[me] = ask; unseen[me] = (me == ordinary -> 0 : BOTH)
  :: else -> state[me] = none
  fi
}

/* publish is what the commit makes true. asleep: the tasks to wake after it. */
inline publish(in_full) {
  items[t] = items[t] + more; more = 0;
  for (i : 0 .. PEOPLE - 1) {
    if
    :: !(who & BIT(i))
    :: else ->
         if
         :: items[t] > 0 -> items[t]--; answer(i, assigned)
         :: else ->
              unseen[i] = unseen[i] & ~BIT(t);
              if
              :: in_full && i == ordinary -> answer(i, none)
              :: in_full && i != ordinary && IS_FIRST(i, t) ->
                   todo[i] = todo[i] & ~BIT(t);
                   if :: todo[i] != 0 -> waken = waken | todo[i] :: else TAKEN_OFF(i) fi
              :: else
              fi
         fi
    fi
  }
  who = 0
}

/* -------------------------------------------------------------------------------------------------------------- a node
 * Its loop for a task [runServeLoop, serveOnce]. */

proctype Loop(byte node; byte t) {
  byte who, snapshot, left, k;         /* a round's */
  byte more;                           /* what the run found */
  byte waken, second;                  /* the tasks to wake after the commit; requests for a second transaction */
  bool freed;                          /* look for what became free, too */
  bool in_run;
  bool again;                          /* if the node is killed, another looks for what was pushed */

end_asleep:
  do
  :: {
       if
       :: d_step { woken & BIT(2 * node + t) -> woken = woken & ~BIT(2 * node + t); freed = true }
#if CRASHES > 0
       :: d_step { pushed & BIT(t) -> pushed = pushed & ~BIT(t); freed = true; again = true }
#endif
       :: ANYBODY(IS_ORPHAN, t) -> freed = true
       fi;

look:                                  /* without any lock [readTaskView, plan.Next] */
       if
       :: d_step { freed && HAS_A_ROUND(t) -> freed = false }; goto round
       :: d_step { !(freed && HAS_A_ROUND(t)) && HAS_QUERY(t) && WAITS(t) -> freed = false }
       :: d_step { !(freed && HAS_A_ROUND(t)) && !(HAS_QUERY(t) && WAITS(t)) -> freed = false }; goto asleep
       fi;

       if                              /* try the run lock [tryLock] */
       :: d_step { run_lock[t] == NOBODY -> run_lock[t] = _pid + 1 }
       :: run_lock[t] != NOBODY -> goto asleep        /* busy: its holder looks again */
       fi;
       if                              /* look before running [underLock] */
       :: d_step { !WAITS(t) -> run_lock[t] = NOBODY }; goto look
       :: WAITS(t) && SERVES(t) -> goto round
       :: d_step {
            WAITS(t) && !SERVES(t) ->
            assert(ANYBODY(IS_FOR, t));               /* no run begins unless somebody waits for it */
            running[t] = true; in_run = true
          }
       fi;

       if                              /* the query [rank, watch] */
       :: d_step { found > 0 -> found--; more = 1 }
       :: true
       :: true ->                      /* and it takes for ever, */
end_hangs:
            d_step { !WAITS(t) -> run_lock[t] = NOBODY; running[t] = false; in_run = false };
            goto look                  /* unless nobody waits for it any more */
       :: d_step { !WAITS(t) -> run_lock[t] = NOBODY; running[t] = false; in_run = false }; goto look
       fi;

round:
       atomic { assign_lock[t] == NOBODY -> assign_lock[t] = _pid + 1; begin_reading() };      /* [openRound] */
       do
       :: read_waiting(in_run);
          if
          :: atomic { agains > 0 -> agains--; begin_reading() }               /* rollback to a savepoint, which keeps the rows locked */
          :: atomic { !STILL_PENDING -> who = 0; begin_reading() }            /* [errMoved] */
          :: d_step { STILL_PENDING -> publish(in_run); in_run = false; let_go() }; break     /* [commit] */
          fi
       od;
#ifdef WITHOUT_ONE_TRANSACTION
       if
       :: d_step {
            !ANYBODY(IS_LOCKED, t) ->
            for (i : 0 .. PEOPLE - 1) {
              if :: (second & BIT(i)) && IN_LINE(i) -> settle(i) :: else fi
            }
            second = 0; i = 0
          }
       fi;
#endif
       if
       :: d_step { waken != 0 -> wake(node, waken); waken = 0 }
       :: waken == 0
       fi;
       goto look;                      /* the look again */

asleep:
       again = false
     } unless {
       d_step {
         killed & BIT(2 * node + t) ->
         killed = killed & ~BIT(2 * node + t);
         let_go();
         pushed = pushed | again << t; again = false;
         who = 0; snapshot = 0; left = 0; k = 0; more = 0; waken = 0; second = 0; freed = false; in_run = false
       }
     }
  od
}

/* ------------------------------------------------------------------------------------------------------------ a person
 * and the node's work for that person [recordBatch, recordAndServe]. */

proctype Clicker(byte me) {
  byte who, snapshot, left, k, more, waken, second;
  byte t;
  byte ask = QUERIES;                  /* its todo */

  atomic {
    drawn == me;
#ifndef NO_ORDINARY
    if
    :: ordinary == PEOPLE -> ordinary = me
    :: ordinary < PEOPLE || me < PEOPLE - 1
    fi;
#endif
    if :: me == ordinary -> ask = 0 :: else fi;
#ifdef YOUNG                           /* their last runs are so young that they are not asked again */
    if :: true :: ask = 0 fi;
#endif
#if CRASHES > 0
    connected = connected | BIT(me);
#endif
    t = NEITHER;                       /* one look without locks says which task can give something. It sees only the past */
    if
    :: SERVES(A) -> t = A
    :: SERVES(B) && me != ordinary -> t = B
    :: else
    fi
  }
  {
    if
    :: atomic { t != NEITHER && assign_lock[t] == NOBODY && !running[t] -> assign_lock[t] = _pid + 1; drawn++; begin_reading() }
    :: atomic { t == NEITHER || running[t] -> drawn++; t = NEITHER; goto insert }
    fi;
    do                                 /* in the round of that task, with all who wait */
    :: read_waiting(false);
       if
       :: atomic { !STILL_PENDING -> who = 0; begin_reading() }
       :: d_step {
            STILL_PENDING ->
            publish(false);
            if
            :: items[t] > 0 -> items[t]--; state[me] = assigned
            :: else -> record()
            fi;
            let_go()
          };
          break
       fi
    od;
    goto recorded;
insert:
    if
    :: d_step { true -> record() }
    fi;
recorded:
    atomic {                           /* only after the commit */
      waken = waken | (state[me] == pending -> ALL(me) : 0);
      wake(me % NODES, waken); waken = 0; t = A; ask = 0;
      connected = connected & ~BIT(me)
    }
  } unless {
    d_step {
      CRASHES > 0 && !(connected & BIT(me)) ->
      let_go();
      if :: drawn == me -> drawn++ :: else fi
    }
  }
}

/* ----------------------------------------------------------------------------------------------------------- the world */

active proctype Freed() {              /* an item is pushed to B, or something in A is given back [closeWork, WakeFreed] */
  byte n = FREED, t;

  do
  :: n == 0 -> break
  :: atomic { n > 0 -> if :: true :: t = B fi; items[t]++; n-- };
#if CRASHES > 0
       atomic { pushed = pushed | BIT(t); t = A }
#else
       atomic { wake(NODES - 1, BIT(t)); t = A }      /* only after the commit. That node is not killed: then a look_after finds it */
#endif
  od
}

#if CRASHES > 0
active proctype Killer() {
  byte n = CRASHES;

end:
  do
  :: n == 0 -> break
  :: d_step {
       n > 0 -> n--;
       killed = killed | BOTH;
       woken = woken & ~BOTH;
       for (i : 0 .. PEOPLE - 1) {
         if :: i % NODES == 0 -> connected = connected & ~BIT(i) :: else fi
       }
       i = 0
     }
  od
}
#endif

active proctype AtLast() {             /* nothing can happen any more but by time: a look_after, or the end of a query that hangs */
  timeout;
  assert(assign_lock[A] == NOBODY && assign_lock[B] == NOBODY);               /* no round is stuck */
  for (i : 0 .. PEOPLE - 1) {
    if
    :: IN_LINE(i) ->
         assert(items[A] == 0 || running[A]);         /* nobody waits for what is free in A, */
         assert(items[B] == 0 || running[B]);         /* or in B */
         if
         :: todo[i] != 0 -> assert(IS_FIRST(i, A) && running[A] || IS_FIRST(i, B) && running[B])
         :: else -> assert(LINGERERS & BIT(i))        /* no request is lost */
         fi
    :: state[i] == pending && i == ordinary -> assert(running[A])
    :: else
    fi
  }
}

init {
  atomic {
    for (i : 0 .. NODES - 1) { run Loop(i, A); run Loop(i, B) };
    for (i : 0 .. PEOPLE - 1) { run Clicker(i) };
    i = 0
  }
}
