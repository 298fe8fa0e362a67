package explain

// These are for the tests of package explain_test: enginetest imports this one.
const (
	SelectPlaceOnShelf = selectPlaceOnShelf
	SelectTaskNow      = selectTaskNow
	SelectStanding     = selectStanding
	SelectBinding      = selectBinding
	SelectMember       = selectMember
	SelectElsewhere    = selectElsewhere
)
