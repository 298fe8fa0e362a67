// Package hook tells other programs of events, by web hooks: it posts them to URLs, signed by Standard Webhooks
// (https://www.standardwebhooks.com). [Registry] has the hooks, [Sender] sends.
//
// Triggers write an event for each hook that is to be told, in the event's own transaction (014_hook.sql), so there is an event
// if and only if it happened. They are switched off while there is no hook. Every node sends what is due:
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
package hook
