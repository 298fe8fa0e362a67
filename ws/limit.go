package ws

import "getwork/assign"

// take reserves a place for a user's socket, before the socket costs anything.
func (h *Hub) take(user string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.MaxSockets > 0 {
		each := max(h.MaxSockets/8, min(h.MaxSockets, 32))
		switch {
		case h.users[user] >= each:
			return assign.Refuse(assign.Busy, "you have %d live channels open on this node, as many as a user may; close some", each)
		case h.taken >= h.MaxSockets:
			return assign.Refuse(assign.Unavailable, "this node has as many live channels open as it allows; another node may have room")
		}
	}
	h.taken++
	h.users[user]++
	return nil
}

// give releases the place if no socket was opened.
func (h *Hub) give(user string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.free(user)
}

// free is give; h.mu must be held.
func (h *Hub) free(user string) {
	h.taken--
	if h.users[user]--; h.users[user] == 0 {
		delete(h.users, user)
	}
}
