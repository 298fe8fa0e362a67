package assign

import "time"

// Absence is a time for which a user gets no work.
type Absence struct {
	ID         int64      `json:"id,string"`
	User       string     `json:"user"`
	From       time.Time  `json:"from"`
	Until      *time.Time `json:"until"`      // nil: until somebody ends it
	Substitute *string    `json:"substitute"` // who gets their work under tasks whose on_away is to
	Source     string     `json:"source"`     // the list that it was imported with; empty: it was entered by hand
	CreatedBy  string     `json:"created_by"`
	EndedAt    *time.Time `json:"ended_at"` // nil: it is in force, or is to come
	EndedBy    *string    `json:"ended_by"` // nil: nobody, its time was over
}

// AbsenceWish is what somebody says of an absence.
type AbsenceWish struct {
	From       *time.Time `json:"from"` // nil: now
	Until      *time.Time `json:"until"`
	Substitute *string    `json:"substitute"`
}

// Check returns a [Refusal] that is [Invalid] and names a field below prefix if there can be no such absence of the user.
func (w AbsenceWish) Check(user, prefix string) error {
	field := func(name, detail string, args ...any) error {
		return RefuseField(prefix+name, detail, args...)
	}
	if w.From != nil && w.Until != nil && !w.Until.After(*w.From) {
		return field("until", "an absence ends after it begins: until is after %s", w.From.UTC().Format(time.RFC3339))
	}
	if w.Substitute == nil {
		return nil
	}
	if err := CheckUser(*w.Substitute); err != nil {
		return field("substitute", "the substitute's name is not one: 1 to 128 bytes of UTF-8 without control and invisible characters and without blanks around it")
	}
	if *w.Substitute == user {
		return field("substitute", "%s can't be their own substitute; name somebody else, or nobody", user)
	}
	return nil
}

// The values of the setting on_away.
const (
	KeepAway    = "keep"    // work stays its holder's
	ReleaseAway = "release" // it goes back
	PassAway    = "to"      // it goes to the holder's substitute, and back if they have none who may have it
)
