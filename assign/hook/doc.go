// Package hook reports events to other programs by web hooks: it posts them to URLs, signed by Standard Webhooks
// (https://www.standardwebhooks.com). [Registry] has the hooks, [Sender] sends.
//
// Triggers write an event for each hook that wants it, in the event's own transaction, so there is an event if and only if it
// happened. They are switched off while there is no hook. Every node sends what is due:
//
//  1. Claim: lock events that are due, skipping those that another node has locked; count the attempt, and set the time at which
//     they are due again, which is the end of the lease. Commit.
//  2. Post each, without a transaction or a connection.
//  3. Write the result, if the attempt is still the same. Otherwise the lease was over, and another node has begun again.
//
// If the node dies anywhere, the event is due again when the lease ends. So it is delivered at least once, perhaps more often,
// always with the same webhook-id. An event is due only if no older one of the same item waits: that is the order per item. Ids
// follow causes, because work is closed and committed before the item is handed out again, and so a late commit can't be
// overtaken by what follows from it.
//
// Nothing is derived from rows by a cursor, so nothing that commits late is skipped. With a hook each event costs one row with
// six index entries, roughly 0.1 ms.
//
// Alerts begin and end by time alone, so no trigger can write their events. Every node looks from time to time, beside tidying, and
// writes an event with what the hook has been told by then, in one transaction.
//
// # Races
//
//   - Two nodes notice an alert at once. Each repeats what it has read that the hook was told: one changes it, the other writes nothing.
//     One that dies before its commit has told nothing, and the next to look does. TestAlertIsToldOnce
//   - A node dies while it sends. The event is due again when the lease ends. A node that shuts down hands its events back.
//     TestLease, TestHandedBack
//   - A node freezes while it sends, and writes its result when it wakes. A result counts only for its own attempt. TestLease
//   - An item's events overtake each other. One is due only if none with a lower id waits for its hook and item.
//     TestOrderPerItem
//   - A receiver is slow or away, and others wait. Each hook has eight attempts at once on a node; no connection waits for an
//     answer. A hook that fails is tried with one event. Of more than 32 busy hooks a node takes others each time.
//     TestFailingHookWaits, TestManyHooksTakeTurns
//   - A receiver was away for hours, and what failed waits for hours more. When it accepts a test, all of that is sent at
//     once. TestAcceptedTestEndsBackOff
//   - Millions of dead events are redriven, and all results wait. A redrive goes in batches, each a transaction; it locks the
//     hook's row, not the table. TestRedriveInParts, TestResultsDontWaitForARedrive
//   - The last hook is deleted while another is made, and the triggers stay off. Both lock the table hook.
//   - A click waits because the triggers are switched. The switch waits for its lock for 0.1 s, and is tried again. Only after
//     5 s, as during a vacuum, it waits once for 1.5 s. TestClicksDontWaitForTheSwitch
//   - A login that may only write to work runs code of its own as the owner, by temporary types. pg_temp is the last in the
//     search_path of the triggers' functions. TestTriggersIgnoreTemporaryTypes
//   - A name is resolved to an inner address after it was checked. The address is checked when it is dialled.
//     TestRefusedWhenDialled
package hook
