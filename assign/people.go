package assign

import "time"

// User is somebody who has come in, or a service, as administrators see them.
type User struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"` // person or service
	Issuer    string     `json:"iss"`
	Subject   string     `json:"sub"`
	Role      Role       `json:"role,omitempty"`
	Admin     bool       `json:"admin"`
	Groups    []string   `json:"groups"`
	Blocked   bool       `json:"blocked"`
	BlockedAt *time.Time `json:"blocked_at"`
	SeenAt    *time.Time `json:"seen_at"`
	CreatedAt time.Time  `json:"created_at"`
	Sessions  int        `json:"sessions"` // that live now
	Tokens    int        `json:"tokens"`
	Holds     int        `json:"holds"` // items that they hold
}

// Token is a token as lists show it: without what opens anything.
type Token struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"` // personal, service or cli
	User      string     `json:"user"`
	Label     string     `json:"label"`
	Role      Role       `json:"role"`
	Admin     bool       `json:"admin"`
	Scopes    []string   `json:"scopes"`
	Tasks     []string   `json:"tasks"` // null: all
	MadeBy    string     `json:"made_by"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	UsedAt    *time.Time `json:"used_at"`
	UsedFrom  *string    `json:"used_from"`
	EndedAt   *time.Time `json:"ended_at"`
	EndedBy   *string    `json:"ended_by"`
}

// Session is a browser's log-in.
type Session struct {
	ID        string     `json:"id"` // its public one, which opens nothing
	User      string     `json:"user"`
	Role      Role       `json:"role,omitempty"`
	Admin     bool       `json:"admin"`
	CreatedAt time.Time  `json:"created_at"`
	ActiveAt  time.Time  `json:"active_at"`
	IdleAt    *time.Time `json:"idle_at"` // when it ends unless its user does something; null: it has no such end
	EndsAt    time.Time  `json:"ends_at"`
	Address   *string    `json:"address"`
	Agent     *string    `json:"agent"` // the browser

	Wall       bool       `json:"wall"`        // of a screen on a wall
	OpensUntil *time.Time `json:"opens_until"` // its link was not opened yet
}
