/* The story as it was told first, before getwork added to it: steps 1 to 7, without the look again and without the periodic
 * look. Spin finds a request in it that nobody ever serves. getwork.pml begins with an introduction to Promela.
 *
 * Two people click once each, on nodes that know nothing of each other. Each process is a person and that person's node.
 * There are enough items for both.
 *
 * -D LOOK_AGAIN adds the missing step: after its commit the holder of the lock looks whether somebody waits.
 *
 * When Spin replays its finding, the processes print the table in story.trail.txt: who, what, and the database's state
 * then. In a verification they print nothing.
 */

mtype = { Oliver, Tracy, nobody }

bool waits[4];                         /* work_requested: (1, 0); by person */
bool assigned[4];                      /* work_requested: (1, 1), and a row of work */
mtype lock = nobody;                   /* who has locked the task's row */

#define NOBODY_WAITS  (!waits[Oliver] && !waits[Tracy])

/* ROW prints a line of the table. */
#define ROW(what) \
  printf("| %e | ", me); printf(what); printf(" | %e |", lock); \
  printf(" %d, %d |", waits[Oliver] || assigned[Oliver], assigned[Oliver]); \
  printf(" %d, %d |\n", waits[Tracy] || assigned[Tracy], assigned[Tracy])

proctype Person(mtype me) {
  bool oliver, tracy;                  /* who is on the list that was read */

  d_step { waits[me] = true; ROW("is recorded, and commits (step 1)") };

attempt:
  if                                   /* try to lock the task's row; never wait for it */
  :: d_step { lock == nobody -> lock = me; ROW("finds the task's row free, and locks it (2, 4)") }
  :: d_step { lock != nobody -> ROW("finds the row locked: busy, \"ask again\" (3)") }; goto asks
  fi;

  d_step { ROW("the heavy query returns (5)") };
  d_step {
    oliver = waits[Oliver]; tracy = waits[Tracy];
    ROW("reads who waits (5)")
  };
  d_step {                             /* one step: a commit makes all of it true at once, and releases the lock */
    if :: oliver -> waits[Oliver] = false; assigned[Oliver] = true :: else fi;
    if :: tracy -> waits[Tracy] = false; assigned[Tracy] = true :: else fi;
    oliver = false; tracy = false;
    lock = nobody;
    ROW("assigns to those on the list, commits, is unlocked (5)")
  };
#ifdef LOOK_AGAIN
  if
  :: !NOBODY_WAITS -> goto attempt
  :: NOBODY_WAITS
  fi;
#endif

asks:
  if                                   /* which reads work_requested alone, and starts nothing: wait until it is so */
  :: d_step { assigned[me] -> ROW("asks, and is told the result (6, 7)") }
  fi
}

init {
  atomic { run Person(Oliver); run Person(Tracy) }
}
